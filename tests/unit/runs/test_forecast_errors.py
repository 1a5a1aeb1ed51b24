"""Errors of forecasts, beside loops over single windows in NumPy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedkoopman.data.triage import HeldOut
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.runs import forecast_errors
from fedkoopman.runs.forecast_errors import HORIZONS, diverged, errors_of, holding, rollout_of


def held_out(*lengths: int, dim: int = 2) -> list[HeldOut]:
    random = np.random.default_rng(1)
    found = [np.cumsum(random.normal(size=(n, dim)), axis=0) + 50.0 for n in lengths]
    return [HeldOut(str(i), states, states) for i, states in enumerate(found)]


def linear(depth: int = 1) -> tuple[EDMD, dict[str, NDArray[np.float64]]]:
    """x' = A x + b, as weights of a kind."""
    kind = EDMD.of(state_dim=2, degree=1, depth=depth)
    operator = np.array([[1.0, 0.0, 0.0], [0.3, 0.9, -0.2], [-0.1, 0.2, 0.8]])
    return kind, {"operator": operator, "mean": np.array([50.0, 49.0]), "std": np.array([2.0, 3.0])}


def twin(segments: list[HeldOut], window: int, depth: int, hold: bool = False) -> list[float]:
    """The same errors, one window and one step at a time."""
    _, weights = linear()
    mean, std = weights["mean"], weights["std"]
    spread = np.concatenate([one.states for one in segments]).std(axis=0)
    found = []
    for horizon in HORIZONS:
        squares = []
        for one in segments:
            for k in range(window - 1, len(one.states) - horizon * depth):
                x = one.states[k]
                for _ in range(0 if hold else horizon):
                    lifted = weights["operator"] @ np.array([1.0, *((x - mean) / std)])
                    x = lifted[1:] * std + mean
                squares += [((x - one.states[k + horizon * depth]) / spread) ** 2]
        found.append(float(np.sqrt(np.mean(squares))) if squares else np.nan)
    return found


@pytest.mark.parametrize(("window", "depth"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_errors_are_those_of_single_windows(window: int, depth: int) -> None:
    segments = held_out(70, 5, 1, 33)
    kind, weights = linear(depth)
    found = errors_of(rollout_of(kind, weights), segments, window=window, depth=depth)
    np.testing.assert_allclose(found, twin(segments, window, depth), rtol=1e-10)
    held = errors_of(holding(2), segments, window=window, depth=depth)
    np.testing.assert_allclose(held, twin(segments, window, depth, hold=True), rtol=1e-12)
    assert np.isnan(found[-1]), "no segment reaches 100 steps"


def test_many_windows_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = held_out(40, 3, 50)
    monkeypatch.setattr(forecast_errors, "STARTS", 31)  # every third of 93
    starts = []

    def watched(windows: NDArray[np.float64], horizons: object) -> object:
        starts.extend(windows[:, 0].tolist())
        return holding(2)(windows, horizons)  # type: ignore[arg-type]

    errors_of(watched, segments, window=1, depth=1)  # type: ignore[arg-type]
    every = [x for one in segments for x in one.states[:-1, 0].tolist()]
    assert starts == every[::3]


def test_what_cannot_be_compared_is_nan_and_what_diverges_is_infinite() -> None:
    segments = held_out(30)
    kind, weights = linear()
    assert np.isnan(errors_of(None, segments, window=1, depth=1)).all()
    assert np.isnan(errors_of(holding(2), [], window=1, depth=1)).all()
    assert np.isnan(errors_of(holding(2), held_out(1), window=1, depth=1)).all()
    broken = rollout_of(kind, weights | {"mean": np.array([np.nan, 0.0])})
    wild = rollout_of(kind, weights | {"operator": 1e200 * weights["operator"]})
    for rollout in (broken, diverged):
        found = errors_of(rollout, segments, window=1, depth=1)
        assert np.isinf(found[:3]).all() and np.isnan(found[3:]).all()
    found = errors_of(wild, segments, window=1, depth=1)
    assert np.isinf(found[1:3]).all()


def test_a_state_that_never_changes_counts_by_its_size() -> None:
    states = np.column_stack([np.arange(30.0), np.full(30, 4.0), np.zeros(30)])
    one = [HeldOut("a", states, states)]

    def off(windows: NDArray[np.float64], horizons: object) -> object:
        yield windows[:, :3] + [1.0, 2.0, 0.5]

    found = errors_of(off, one, window=1, depth=1)  # type: ignore[arg-type]
    assert found[0] == pytest.approx(np.sqrt((0.0 + 0.5**2 + 0.5**2) / 3))
