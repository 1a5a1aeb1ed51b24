"""Learning in stages: what comes when, and that every sample counts exactly once."""

from dataclasses import replace

import numpy as np
import pytest
from reference import dictionaries as twin
from reference.federations import assert_same_run, clients, experiment, model_bytes, run

from fedkoopman.federation.algorithm import Asked
from fedkoopman.federation.algorithms.staged import ALGORITHM, collecting
from fedkoopman.federation.arrivals import Deliveries
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.simulation import first_state
from fedkoopman.federation.sites import schedule
from fedkoopman.federation.slot import Judged, ask, concluded, fault_of
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.training import Training

KINDS = {
    "edmd": EDMD.of(state_dim=3, degree=2),
    "delays": EDMD.of(state_dim=3, dictionary="fourier", features=6, window=2, depth=2),
    "spectral": Spectral(3, 5, features=4, degree=2, horizon=3, ridge=1e-10),
    "random": Spectral(3, 5, features=4, degree=2, horizon=3, learned=False, ridge=1e-10),
    "inclusive": Inclusive(3, 5, width=4),
}
SUMMED = [name for name in KINDS if name != "inclusive"]
TRAINING = Training(epochs=1, batch=16)


def states(length, seed):
    """A path of a turning, decaying system with noise."""
    random = np.random.default_rng(seed)
    a = np.array([[0.9, -0.3, 0.0], [0.3, 0.9, 0.1], [0.0, 0.0, 0.8]])
    rows = [random.normal(size=3)]
    for _ in range(length - 1):
        rows.append(a @ rows[-1] + 0.1 * random.normal(size=3))
    return np.array(rows)


LENGTHS = ((12, 30, 9, 15), (20, 2, 1, 14, 25), (16,))
"""Of the segments at three sites; some are too short for some kinds."""
TRAIN = tuple(
    tuple(states(n, 10 * site + i) for i, n in enumerate(own)) for site, own in enumerate(LENGTHS)
)
HELD_OUT = ((states(41, 91),), (states(41, 92),), ())


def federation(name, *, repeat=True, probability=0.6, **changes):
    given = {
        "algorithm": ALGORITHM,
        "architecture": KINDS[name],
        "training": TRAINING,
        "clients": clients(3, probability=probability),
        "slots": 10,
        "deliveries": Deliveries(TRAIN, HELD_OUT, repeat=repeat),
    }
    return experiment(**{**given, **changes})


def delivered(e):
    """All segments that came, as often as they came."""
    return [
        e.deliveries.train[e.clients[n].identity][place]
        for slot in schedule(e)
        for n, place in slot.items()
    ]


def sums_in(arrays):
    return {k.removeprefix("sums."): v for k, v in arrays.items() if k.startswith("sums.")}


def assert_pooled(kind, arrays, segments):
    """The sums are those of these segments, each as often as it is given, by data matrices."""
    fixed = {name: arrays[f"scale.{name}"] for name in ("mean", "std")}
    scaled = [(one - fixed["mean"]) / fixed["std"] for one in segments]
    steps = getattr(kind, "horizon", 0)
    u, after, future = twin.windows(scaled, kind.window, kind.depth, max(steps, 1))
    weights = {k.removeprefix("features."): v for k, v in arrays.items() if "features." in k[:9]}

    def functions(x):
        parts = [twin.monomials(x, kind.functions.degree)]
        if kind.functions.features == "fourier":
            parts.append(twin.fourier(x, weights["frequencies"]))
        if kind.functions.features == "network":
            parts.append(twin.layers(x, [weights["features.0"], weights["features.1"]]))
        return np.hstack(parts)

    now, later, share = functions(u), functions(after), np.ones(len(u))
    balance = arrays.get("scale.balance", np.zeros((1, 1)))
    if balance.any():
        share = np.minimum(np.linalg.norm(now[:, : len(balance)] @ balance.T, axis=1), 5.0)
    found = sums_in(arrays)
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert found["pairs"][0] == pytest.approx(share.sum(), rel=1e-12)
    np.testing.assert_allclose(found["gram"], (now * share[:, None]).T @ now, **close)
    np.testing.assert_allclose(found["shift"], (now * share[:, None]).T @ later, **close)
    for step in range(steps):
        expected = (now * share[:, None]).T @ future[:, step]
        np.testing.assert_allclose(found["ahead"][step], expected, **close)
    np.testing.assert_array_equal(found["range"].sum(axis=1), sum(map(len, segments)))


# Stages


def test_stages_follow_each_other():
    def stages(name, slots):
        e = federation(name, probability=1.0, slots=slots, segments=0.01)
        return [one.record.get("stage", "") for one in run(e)[1:]]

    trained = ["features"]
    expected = ["scale", "look", *2 * trained, "look", *4 * trained, "sums"]
    assert stages("spectral", 10) == expected
    long = stages("spectral", 40)
    assert long[:3] == ["", "scale", "look"] and collecting(40) == 2
    assert [i + 1 for i, stage in enumerate(long) if stage == "look"] == [3, 20]
    assert [i + 1 for i, stage in enumerate(long) if stage == "sums"] == [37, 38, 39, 40]
    assert stages("edmd", 6) == stages("random", 6) == ["scale", *["sums"] * 5]
    assert stages("inclusive", 6) == ["scale", *["features"] * 5]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_few_slots_are_enough_for_a_model(name, slots):
    outcomes = run(federation(name, slots=slots, probability=1.0))
    assert len(outcomes) == slots + 1
    for outcome in outcomes:
        assert all(np.isfinite(one).all() for one in outcome.state.arrays.values())
    stages = [one.record.get("stage") for one in outcomes[1:]]
    assert stages[0] == "scale"
    if slots > 1:
        assert stages[-1] == ("features" if name == "inclusive" else "sums")


# Every sample once


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("repeat", [True, False])
def test_the_sums_are_those_of_all_that_was_delivered(name, repeat):
    e = federation(name, repeat=repeat)
    outcomes = run(e)
    assert_pooled(KINDS[name], outcomes[-1].state.arrays, delivered(e))
    assert not any(outcomes[-1].state.buffers)


@pytest.mark.parametrize("policy", ["random", "round-robin", "threshold"])
@pytest.mark.parametrize("name", ["edmd", "spectral"])
def test_whatever_the_policy(name, policy):
    e = federation(name, policy=POLICIES.find(policy), segments=0.6, slots=12)
    outcomes = run(e)
    assert_pooled(KINDS[name], outcomes[-1].state.arrays, delivered(e))
    if name == "spectral":
        assert [o.record.get("stage") for o in outcomes].count("features") > 3


def test_the_scale_is_that_of_what_had_arrived_by_then():
    e = federation("edmd", slots=60)  # three slots go by before it is agreed on
    arrays = run(e)[4].state.arrays
    early = [e.deliveries.train[n][place] for slot in schedule(e)[:4] for n, place in slot.items()]
    expected = twin.scale(early)
    np.testing.assert_allclose((arrays["scale.mean"], arrays["scale.std"]), expected, rtol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_a_federation_goes_on_from_every_slot_bit_for_bit(name):
    e = federation(name)
    outcomes = run(e)
    for outcome in outcomes[1:-1]:
        assert_same_run(run(e, outcome.state), outcomes[outcome.state.slot + 1 :])
    assert_same_run(run(e, threads=1), outcomes)


@pytest.mark.parametrize("name", KINDS)
def test_every_scheme_works_and_the_servers_own_sums_are_the_federations(name):
    alone, central, federated = (
        run(federation(name, scheme=scheme))[-1].state.arrays
        for scheme in ("single-client", "centralized", "kf-fedkl")
    )
    e = federation(name, clients=clients(3, probability=0.6)[:1])
    if name == "inclusive":
        assert alone["scaled"][0] == central["scaled"][0] == 1
        return
    assert_pooled(KINDS[name], alone, delivered(e))
    assert_pooled(KINDS[name], central, delivered(federation(name)))
    if name != "spectral":  # whose features are trained otherwise
        for key, one in central.items():
            np.testing.assert_allclose(one, federated[key], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["edmd", "spectral", "inclusive"])
@pytest.mark.parametrize("scheme", ["perfect-data", "centralized"])
def test_simulated_clients_learn_by_stages_too(name, scheme):
    e = federation(name, deliveries=None, scheme=scheme, slots=5)
    outcomes = run(e)
    assert outcomes[-1].state.arrays["scaled"][0] == 1
    assert np.isfinite(outcomes[-1].record["E"])


# Sites that come and go: by hand, as no local run has them


class Live:
    """A federation in which sites are away, and others join; each site holds what came to it."""

    def __init__(self, problem):
        self.problem, self.arrays, self.slot = problem, problem.algorithm.begin(problem), 0
        self.waiting: dict[int, list] = {}
        self.spent: dict[int, list] = {}
        self.stages: list[str] = []

    def step(self, came, present, lost=()):
        """One slot: segments that come, who is there, and whose replies are lost on the way."""
        problem, self.slot = self.problem, self.slot + 1
        for n, segment in came.items():
            self.waiting.setdefault(n, []).append(segment)
        sizes = [sum(map(len, self.waiting.get(n, []))) for n in range(problem.clients)]
        here = [n in present for n in range(problem.clients)]
        requests = ask(problem, self.arrays, self.slot, np.array(sizes), here)
        assert requests.keys() <= set(present)
        schemas, judged, spending = problem.algorithm.messages(problem), [], []
        for n, request in requests.items():
            new, old = self.waiting.get(n, []), self.spent.get(n, [])
            schema = schemas[request.kind]
            held = new if schema.data == "waiting" else old + new
            assert schema.data != "waiting" or new, "asked for data that are not there"
            reply = problem.algorithm.answer(
                problem, request, held, Asked(self.slot, 100 * self.slot + n, 1e-3)
            )
            assert not fault_of(schemas, request, reply)
            if n not in lost:
                judged.append(Judged(n, sum(map(len, held)), reply))
                spending += [n] * schema.spends
        self.arrays, told = concluded(problem, self.arrays, self.slot, judged)
        self.stages.append(told.get("stage", ""))
        for n in spending:
            self.spent.setdefault(n, []).extend(self.waiting.pop(n, []))


@pytest.mark.parametrize("name", SUMMED)
def test_who_is_away_or_comes_later_or_loses_a_reply_is_counted_once(name):
    problem = replace(federation(name, slots=12).problem, clients=3)
    live, came = Live(problem), []
    for slot in range(1, 13):
        if slot == 11:  # one more is enrolled
            live.problem = replace(problem, clients=5)
        new = {n: states(15 + n, 100 * slot + n) for n in range(4) if (slot + n) % 3}
        if slot < 11:
            new.pop(3, None)
        came += new.values()
        present = {0, 1, 2, 3}
        if slot in (1, 2, 5):
            present -= {0}
        if slot in (3, 4, 6, 7, 8, 9, 10, 11):
            present -= {1}
        live.step(new, present, lost={2} if slot in (4, 11) else ())
    assert live.stages[-1] == "sums"
    assert_pooled(KINDS[name], live.arrays, came)
    np.testing.assert_array_equal(live.arrays["counted"], [1, 1, 1, 1, 0])
    assert not any(live.waiting.values())


def test_the_scale_waits_for_data():
    live = Live(federation("spectral", slots=8).problem)
    for _ in range(3):
        live.step({}, {0, 1, 2})
    assert not live.arrays["scaled"][0] and live.stages == ["", "", ""]
    live.step({1: states(20, 0)}, {0, 1, 2})
    live.step({}, set())
    live.step({0: states(20, 1)}, {0, 1, 2})
    live.step({}, {2})
    live.step({}, {0, 1, 2})
    assert live.stages == ["", "", "", "scale", "", "look", "", "sums"]
    assert_pooled(KINDS["spectral"], live.arrays, [states(20, 0), states(20, 1)])


def test_data_that_come_in_the_last_slot_alone_make_a_model_that_holds():
    live = Live(federation("spectral", slots=2).problem)
    live.step({}, {0, 1, 2})
    live.step({0: states(20, 1)}, {0})
    model = live.problem.algorithm.model(live.problem, live.arrays)
    np.testing.assert_array_equal(model["operator"], np.eye(5))


@pytest.mark.parametrize("name", ["spectral", "inclusive"])
def test_segments_too_short_for_training_change_nothing_and_end_nothing(name):
    kind = KINDS[name]
    short = kind.window + max(kind.leads) - 1
    live = Live(federation(name, slots=10, segments=0.01).problem)
    before = live.arrays
    for slot in range(1, 11):
        live.step({n: states(short, 10 * slot + n) for n in range(3)}, {0, 1, 2})
    for key in before:
        if key.startswith("features."):
            np.testing.assert_array_equal(live.arrays[key], before[key])
    assert all(np.isfinite(one).all() for one in live.arrays.values())


@pytest.mark.parametrize("name", ["spectral", "inclusive"])
def test_short_segments_among_long_ones_never_end_a_round(name):
    # A round draws a few segments; they may all be too short, though there is a long one.
    kind = KINDS[name]
    short = kind.window + max(kind.leads) - 1
    live = Live(federation(name, slots=20, segments=0.01).problem)
    live.step({n: states(30, n) for n in range(3)}, {0, 1, 2})
    for slot in range(2, 21):
        live.step({n: states(short, 10 * slot + n) for n in range(3)}, {0, 1, 2})
    assert live.stages.count("features") > 10


def test_the_same_federation_twice_is_the_same():
    for name in KINDS:
        e = federation(name, slots=4)
        one, other = (run(e)[-1].state.arrays for _ in range(2))
        assert model_bytes(one) == model_bytes(other)
        assert model_bytes(first_state(e).arrays) == model_bytes(first_state(e).arrays)
