"""Each rule against a twin: NumPy, SciPy, a minimiser, brute force, or a closed form."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from fedkoopman.cli import main
from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.aggregators.aggregator import take_step
from fedkoopman.federation.aggregators.geometric_median import weiszfeld
from fedkoopman.federation.aggregators.history import (
    arrays_of,
    capped_sizes,
    flat,
    lower_median,
    norm_of,
    noted,
    padded,
    step_of,
    usual_length,
)
from fedkoopman.federation.aggregators.krum import krum_scores
from fedkoopman.federation.options import AggregationOptions

SIZE = 7


class Server:
    """A rule with its memory; models are vectors here."""

    def __init__(self, name, clients=5, **options):
        self.rule = AGGREGATORS.find(name)
        self.problem = SimpleNamespace(clients=clients, aggregation=AggregationOptions(**options))
        self.memory = self.rule.begin(self.problem, {"w": np.zeros(SIZE)})

    def __call__(self, updates, current=None, sizes=None):
        """The next model.

        Arguments:
            updates: by client; from a current model of zeros an update is its step.
        """
        now = {"w": np.zeros(SIZE) if current is None else current}
        given = {n: {"w": np.asarray(x, float)} for n, x in updates.items()}
        counts = {n: (sizes or {}).get(n, 100) for n in updates}
        arrays, self.memory, self.told = take_step(
            self.rule, self.problem, self.memory, now, given, counts
        )
        return arrays["w"]


def drawn(count, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(count, SIZE))


def of_length(length, seed=0):
    [step] = drawn(1, seed)
    return step * length / np.linalg.norm(step)


# What is common


def test_steps_and_vectors():
    current = {"a": np.ones((2, 3), np.float32), "b": np.arange(4.0)}
    update = {"b": np.arange(4.0) + 2, "a": np.full((2, 3), 4, np.float32)}
    step = step_of(current, update)
    assert step.dtype == np.float64 and step.tolist() == [3.0] * 6 + [2.0] * 4
    assert norm_of(step) == pytest.approx(np.sqrt(6 * 9 + 4 * 4))
    back = arrays_of(current, flat(current) + step)
    assert {n: (x.shape, x.dtype) for n, x in back.items()} == {
        n: (x.shape, x.dtype) for n, x in current.items()
    }
    assert all(np.array_equal(back[name], update[name]) for name in current)
    assert arrays_of({}, flat({})) == {}
    far = step_of({"a": np.full(3, -1.7e308)}, {"a": np.full(3, 1.7e308)})
    assert np.isfinite(norm_of(far))


def test_histories_forget_the_oldest_and_grow():
    history = np.zeros((2, 3))
    for value in (1.0, 2.0, 3.0, 4.0):
        history = noted(history, {1: value})
    assert history.tolist() == [[0, 0, 0], [2, 3, 4]]
    assert noted(history, {3: 9.0}).tolist() == [[0, 0, 0], [2, 3, 4], [0, 0, 0], [0, 0, 9]]
    assert history.shape == (2, 3) and padded(history, 1) is not history
    assert padded(np.ones(2), 4).tolist() == [1, 1, 0, 0]


def test_the_usual_length_is_a_median_of_medians_that_a_minority_does_not_move():
    norms = np.array([[1.0, 2, 3], [0, 0, 5], [0, 4, 4], [1e9, 1e9, 1e9], [0, 0, 0]])
    assert usual_length(norms) == 4  # of 2, 5, 4, 1e9: the lower middle
    norms[3] = 0.001
    assert usual_length(norms) == 2
    assert usual_length(np.zeros((3, 2))) == np.inf
    assert lower_median([3.0, 1.0]) == 1 and lower_median([5.0, 1.0, 3.0]) == 3


def test_a_claim_weighs_at_most_twice_the_others_usual_one():
    history = np.array([[0, 0, 1e6], [100, 100, 100], [0, 90, 110], [0, 0, 0]])
    assert capped_sizes({0: 10**6}, history) == {0: 200.0}
    assert capped_sizes({0: 150, 1: 100}, history) == {0: 150.0, 1: 100.0}
    assert capped_sizes({0: 150}, history, 1.0) == {0: 100.0}
    assert capped_sizes({1: 7}, np.array([[0.0], [7.0]])) == {1: 7.0}  # nobody to compare with


# The coordinate median and the trimmed mean


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_median_is_scipys(count):
    points = drawn(count)
    found = Server("median")(dict(enumerate(points)), sizes={1: 10**6})
    expected = scipy.stats.quantile(points, 0.5, axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("count", "liars", "dropped"),
    [(5, 1, 1), (5, 2, 2), (9, 3, 3), (4, 2, 1), (3, 2, 1), (2, 2, 0)],
)
def test_the_trimmed_mean_is_scipys(count, liars, dropped):
    points = drawn(count)
    found = Server("trimmed-mean", liars=liars)(dict(enumerate(points)))
    expected = scipy.stats.trim_mean(points, (dropped + 0.01) / count, axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


# The geometric median


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [3, 5, 8])
def test_weiszfeld_minimises_the_sum_of_distances(count, seed):
    points = drawn(count, seed)
    weights = np.random.default_rng(seed).uniform(0.5, 1.0, count)

    def total(x):
        return weights @ np.linalg.norm(points - x, axis=1)

    best = min(
        (
            scipy.optimize.minimize(total, start, method="Nelder-Mead",
                                    options={"maxiter": 20000, "maxfev": 20000, "xatol": 1e-9,
                                             "fatol": 1e-13, "adaptive": True})
            for start in (points.mean(axis=0), points[0])
        ),
        key=lambda found: found.fun,
    )  # fmt: skip
    found = weiszfeld(points, weights)
    assert total(found) <= best.fun * (1 + 1e-6)
    np.testing.assert_allclose(found, best.x, atol=2e-3)


def test_on_a_line_it_is_the_middle_point_and_equal_points_are_theirs():
    line = np.outer([0.0, 1.0, 5.0, 6.0, 1e9], np.ones(SIZE))
    np.testing.assert_allclose(weiszfeld(line, np.ones(5)), 5 * np.ones(SIZE), rtol=1e-5)
    same = np.outer(np.ones(4), drawn(1)[0])
    np.testing.assert_array_equal(weiszfeld(same, np.ones(4)), same[0])


def test_of_two_the_geometric_median_is_the_mean_and_claims_are_capped():
    a, b, c = drawn(3)
    server = Server("geometric-median")
    np.testing.assert_allclose(server({0: a, 1: b}), (a + b) / 2)
    found = server({0: a, 1: b, 2: c}, sizes={2: 10**6})
    np.testing.assert_allclose(found, weiszfeld(np.stack([a, b, c]), np.ones(3)), atol=1e-9)
    found = server({0: a, 2: c}, sizes={2: 10**6})
    np.testing.assert_allclose(found, (a + 2 * c) / 3)


@pytest.mark.parametrize(
    "name", ["median", "trimmed-mean", "geometric-median", "krum", "multi-krum"]
)
def test_too_few_updates_to_compare_are_shortened_as_by_norm_clip(name):
    server, clip = Server(name), Server("norm-clip")
    for updates in ({0: of_length(1.0, 0)}, {1: of_length(1.2, 1), 2: of_length(40.0, 2)}):
        np.testing.assert_array_equal(server(updates), clip(updates))
    assert server.told == {"shortened": [2]}


MIDDLES = {
    "median": lambda points: np.median(points, axis=0),
    "trimmed-mean": lambda points: scipy.stats.trim_mean(points, 0.21, axis=0),
    "geometric-median": lambda points: weiszfeld(points, np.ones(len(points))),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_enough_updates_are_taken_as_they_are_however_long(name):
    points = np.stack([of_length(10.0**n, n) for n in range(5)])
    server = Server(name)
    np.testing.assert_allclose(server(dict(enumerate(points))), MIDDLES[name](points), rtol=1e-12)
    assert server.told == {}


# Krum


def brute_force(steps, liars):
    """Scores by trying every set of n − f − 2 others."""
    n, found = len(steps), []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        found.append(
            min(
                sum(float(np.linalg.norm(steps[i] - steps[j])) ** 2 for j in chosen)
                for chosen in itertools.combinations(others, n - liars - 2)
            )
        )
    return np.array(found)


@pytest.mark.parametrize(("count", "liars"), [(5, 1), (6, 1), (7, 2), (3, 0)])
def test_krum_scores_are_those_of_brute_force(count, liars):
    steps = drawn(count, count)
    np.testing.assert_allclose(krum_scores(steps, liars), brute_force(steps, liars), rtol=1e-12)


def test_krum_of_a_full_slot_is_the_textbooks():
    steps = drawn(7)
    scores = brute_force(steps, 2)
    best = np.argsort(scores)
    found = Server("krum", 7, liars=2)(dict(enumerate(steps)))
    np.testing.assert_array_equal(found, steps[best[0]])
    server = Server("multi-krum", 7, liars=2)
    np.testing.assert_allclose(server(dict(enumerate(steps))), steps[best[:5]].mean(axis=0))
    assert server.told == {"left_out": sorted(best[5:].tolist())}


@pytest.mark.parametrize("name", ["krum", "multi-krum"])
def test_krum_compares_with_earlier_steps_but_applies_fresh_ones_only(name):
    steps = drawn(5, scale=0.1) + 1.0
    server = Server(name)
    for n in range(4):
        np.testing.assert_array_equal(server({n: steps[n]}), steps[n])  # too few to compare with
    np.testing.assert_array_equal(server({4: steps[4] + 50}), np.zeros(SIZE))
    assert server.told == {"left_out": [4]}
    middle = steps[:4].mean(axis=0)
    np.testing.assert_array_equal(server({4: middle}), middle)  # back at once with a good one
    fresh = {1: steps[1], 3: steps[3], 4: steps[4] - 50}
    latest = np.stack([steps[0], steps[1], steps[2], steps[3], fresh[4]])
    scores = brute_force(latest, 1)
    best = steps[min((1, 3), key=lambda n: scores[n])]
    expected = best if name == "krum" else (steps[1] + steps[3]) / 2
    np.testing.assert_allclose(server(fresh), expected, rtol=1e-15)
    assert 4 in server.told["left_out"]


# Clipping


def test_long_steps_are_shortened_to_twice_the_usual_length():
    server = Server("norm-clip")
    steps = {n: of_length(length, n) for n, length in enumerate([1.0, 1.5, 2.0, 1.0, 30.0])}
    expected = (sum(steps[n] for n in range(4)) + steps[4] / 30.0 * 3.0) / 5  # usual: 1.5
    np.testing.assert_allclose(server(steps), expected, rtol=1e-13)
    assert server.told == {"shortened": [4]}
    current = drawn(1, 9)[0]
    found = server({4: current + of_length(30.0, 4)}, current)
    np.testing.assert_allclose(found - current, of_length(3.0, 4), rtol=1e-12)
    long = of_length(2.9, 5)
    np.testing.assert_array_equal(server({4: long}), long)
    assert server.told == {}


def test_claimed_sizes_weigh_at_most_twice_the_others():
    a, b = of_length(1.0, 1), of_length(1.0, 2)
    server = Server("norm-clip")
    server({0: a, 1: a, 2: a})
    np.testing.assert_allclose(server({0: a, 1: b}, sizes={1: 10**6}), (a + 2 * b) / 3)


def test_a_slow_growth_of_one_client_does_not_widen_the_bound():
    server = Server("norm-clip", history=3)
    honest = {n: of_length(1.0, n) for n in range(4)}
    for k in range(40):
        found = server({**honest, 4: of_length(1.3**k, 4)})
        assert norm_of(found) <= 2.0
    np.testing.assert_allclose(norm_of(server({4: of_length(1e3, 4)})), 2.0)


def test_centred_clipping_shortens_towards_the_centre():
    ahead = np.eye(SIZE)[0]
    server = Server("centred-clip")
    for _ in range(3):
        np.testing.assert_array_equal(server(dict.fromkeys(range(5), ahead)), ahead)
    centre = 0.875 * ahead  # of three unit steps with β = 0.5
    np.testing.assert_allclose(server.memory["centre"], centre)
    lie = -30 * ahead
    np.testing.assert_allclose(server({2: lie}), centre - 2.0 * ahead)  # 2 from the centre
    assert server.told == {"shortened": [2]}
    np.testing.assert_allclose(server.memory["centre"], 0.5 * centre + 0.5 * (centre - 2 * ahead))


def test_adaptive_weights_fall_with_the_square_of_the_deviation():
    honest = {n: of_length(1.0, n) for n in range(4)}
    server = Server("adaptive")
    np.testing.assert_allclose(server(honest), sum(honest.values()) / 4)
    lie = of_length(8.0, 9)
    shares = 1 / 16  # (2 / 8)²
    expected = (honest[0] + shares * lie) / (1 + shares)
    np.testing.assert_allclose(server({0: honest[0], 4: lie}), expected, rtol=1e-13)
    assert server.told == {"weighed_down": [4]}
    np.testing.assert_allclose(server({4: lie}), shares * lie, rtol=1e-13)
    lengths = [norm_of(Server("adaptive")({**honest, 4: of_length(k, 9)})) for k in (30, 3e3, 3e5)]
    assert lengths[0] != pytest.approx(lengths[1], rel=1e-3)
    assert lengths[2] == pytest.approx(norm_of(sum(honest.values()) / 4), rel=1e-4)


# What a rule needs


@pytest.mark.parametrize(
    ("name", "liars", "enough"), [("krum", 1, 5), ("multi-krum", 2, 7), ("trimmed-mean", 2, 5)]
)
def test_a_rule_says_how_many_clients_it_needs(name, liars, enough):
    options = AggregationOptions(liars=liars)
    rule = AGGREGATORS.find(name)
    rule.check(options, enough)
    with pytest.raises(InputError) as caught:
        rule.check(options, enough - 1)
    told = str(caught.value)
    assert f"liars is {liars}, for which {name} needs at least {enough} clients" in told
    assert f"there are {enough - 1}: give " in told and "\n" not in told


def test_a_study_with_too_few_clients_is_refused(capsys):
    words = "run --no-progress --set aggregation.rule=krum --set clients.count=4"
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert "krum needs at least 5 clients, but there are 4" in told
    assert len(told.strip().splitlines()) == 1
