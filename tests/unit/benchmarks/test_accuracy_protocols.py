"""The protocols of `benchmarks/accuracy.py` against figures that others measured on them.

Expected numbers come from tables made by other code (holding, least squares and EDMD on the same
draws), to the digits that those tables print: a wrong draw, start, horizon or unit fails.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def load():
    """Modules of benchmarks/, which is no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield lambda name: importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize(
    "dt, held, quadratic, cubic",
    [
        (0.01, (0.445, 10.4), (7.2e-4, 0.540), (4.8e-7, 1.7e-2)),
        (0.02, (1.23, 25.3), (7.7e-3, 5.13), (2.7e-5, 0.929)),
    ],
)
def test_clean_lorenz_gives_the_known_errors(load, dt, held, quadratic, cubic):
    cases, models, clean = map(load, ("accuracy_cases", "accuracy_baselines", "accuracy_clean"))
    peer = load("accuracy_peers").Peer
    case = cases.lorenz_case(dt)
    for forecast, expected in (
        (models.holding, held),
        (models.Edmd(case.train, 2).once, quadratic),
        (models.Edmd(case.train, 3).once, cubic),
    ):
        np.testing.assert_allclose(clean.scores(peer(forecast, 0), case)[:2], expected, rtol=0.03)


@pytest.mark.slow
def test_validation_draws_are_others(load):
    cases = load("accuracy_cases")
    for draw in (
        cases.duffing_case,
        cases.pendulum_case,
        lambda v=False: cases.lorenz_case(0.02, v),
    ):
        assert not np.isclose(draw().test[:, 0], draw(True).test[:, 0]).any()
        np.testing.assert_array_equal(draw().train, draw().train)


def test_duffing_gives_the_known_errors(load):
    cases, models, noisy = map(load, ("accuracy_cases", "accuracy_baselines", "accuracy_noisy"))
    case = cases.duffing_case()
    edmd = models.Edmd(case.train, 5)
    for forecast, expected in (
        (models.holding, (0.077, 0.705, 1.58)),
        (edmd.once, (0.0007, 0.0067, 0.33)),
        (edmd.relifted, (0.0007, 0.0039, 0.015)),
    ):
        found = noisy.errors_at(forecast, case, (1, 10, 50))
        np.testing.assert_allclose(found, expected, rtol=0.05)


def test_the_noisy_pendulum_gives_the_known_errors(load):
    cases, models, noisy = map(load, ("accuracy_cases", "accuracy_baselines", "accuracy_noisy"))
    case = cases.pendulum_case()
    x, y = (part.reshape(-1, 2) for part in (case.train[:, :-1], case.train[:, 1:]))
    operator = np.linalg.lstsq(x, y, rcond=None)[0]  # PyDMD's DMD on all pairs

    def linear(states, steps):
        powers = [np.linalg.matrix_power(operator, k) for k in range(1, steps + 1)]
        return np.stack([states @ power for power in powers], axis=1)

    for forecast, expected in (
        (models.holding, (0.119, 1.07, 2.15, 2.23)),
        (linear, (0.052, 0.245, 0.383, 0.662)),
    ):
        found = noisy.errors_at(forecast, case, (1, 10, 50, 100))
        np.testing.assert_allclose(found, expected, rtol=0.01)


def test_edmd_finds_a_polynomial_map_exactly(load):
    models = load("accuracy_baselines")

    def step(x):  # closed in the span of 1, a, b, a², ab, b²
        return np.stack([0.9 * x[..., 0], 0.5 * x[..., 1] + 0.3 * x[..., 0] ** 2], axis=-1)

    x = [np.random.default_rng(0).uniform(-1, 1, (50, 2))]
    for _ in range(5):
        x.append(step(x[-1]))
    x = np.stack(x, axis=1)
    edmd = models.Edmd(x, 2, margin=None)
    np.testing.assert_allclose(edmd.relifted(x[:, 0], 5), x[:, 1:], atol=1e-9)
    np.testing.assert_allclose(edmd.once(x[:, 0], 1)[:, 0], x[:, 1], atol=1e-9)
    [second] = edmd.at(x[:, 0], [2], slice(0, 2))
    np.testing.assert_allclose(second, edmd.once(x[:, 0], 2)[:, 1], atol=1e-9)


def test_an_error_that_is_no_number_ends_the_valid_time(load):
    valid_steps = load("accuracy_baselines").valid_steps
    errors = np.array([[0, 0, 2, 0], [0, np.nan, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0]], float)
    assert valid_steps(errors[..., None], 1.0).tolist() == [2, 1, 4, 0]


def test_the_far_error_is_a_mean_of_norms(load):
    federation = load("accuracy_federation")
    baselines = load("accuracy_baselines")
    test = np.random.default_rng(0).normal(size=(4, 101, 3))
    expected = [
        np.linalg.norm(run[k + 20] - run[k]) for run in test for k in range(0, 101 - 20, 10)
    ]
    found = federation.far_error(baselines.holding, test)
    np.testing.assert_allclose(found, np.mean(expected) / baselines.spread(test))


def test_delays_stand_newest_first_and_from_the_past_alone(load):
    cases = load("accuracy_cases")
    states = np.arange(30.0)[:, None]
    found = cases.with_delays(states, 2)
    assert found[0].tolist() == [10, 5, 0] and found[-1].tolist() == [29, 24, 19]
    time = np.arange(38827) * 0.002
    angles = np.stack([0.3 * time**2, 2 - time], axis=-1)
    changed = angles.copy()
    changed[30001:] += 1.0
    before, after = (cases.measured_states(a) for a in (angles, changed))
    now = 30000 - cases.FIRST
    np.testing.assert_allclose(before[now, 4:], [0.6 * time[30000], -1], rtol=1e-6)
    np.testing.assert_array_equal(before[: now + 1], after[: now + 1])


def test_a_forecast_that_grows_in_one_segment_is_seen(load):
    measured = load("accuracy_measured")
    held = np.full((300, 2), 0.1)
    errors = held.copy()
    errors[15] = 10.0
    found, worst = measured.never_explodes(errors, held, [0.2] * measured.SEGMENTS)
    assert found == 1 and worst > 10
    assert measured.never_explodes(held, held, [0.2] * measured.SEGMENTS)[0] == 0
    errors[15] = np.nan
    assert measured.never_explodes(errors, held, [0.2] * measured.SEGMENTS)[0] == 1


@pytest.mark.parametrize(
    "value, text",
    [
        (4.8e-7, "4.8e-7"),
        (0.0042, "0.0042"),
        (0.705, "0.70"),
        (3.14, "3.1"),
        (26.4, "26"),
        (None, "–"),
    ],
)
def test_numbers_have_two_digits(load, value, text):
    assert load("accuracy_page").short(value) == text


def test_parts_that_are_not_run_keep_their_results(load, tmp_path, monkeypatch):
    accuracy, page = load("accuracy"), load("accuracy_page")
    monkeypatch.setattr(accuracy, "RESULTS", tmp_path)
    monkeypatch.setattr(accuracy, "part_of", lambda place: lambda _: page.Section([], [place]))
    for only in ("duffing", "pendulum"):
        monkeypatch.setattr(sys, "argv", ["accuracy.py", "--only", only])
        accuracy.main()
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--only", "dysts", "--validation"])
    accuracy.main()
    assert set(json.loads((tmp_path / "accuracy.json").read_text())) == {"duffing", "pendulum"}
    text = (tmp_path / "accuracy.md").read_text()
    assert "noisy.duffing" in text and "noisy.pendulum" in text and "Not run yet: peers" in text
