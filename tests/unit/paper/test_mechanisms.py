"""Direct use of observations: what is measured, and the verdicts on both sides of their lines."""

from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.federation.sites import held_out
from fedkoopman.paper.arms import Measured
from fedkoopman.paper.items import FAILS, HOLDS, Claim
from fedkoopman.paper.mechanisms import CLIENTS, MECHANISMS, claims, numbers, panel, through_sensors
from fedkoopman.runs.experiment import experiment_of

SEEDS = 6
FEASIBLE, CONFINED, ORIGIN, FEDERATED, SERVES = range(5)
"""Places of the claims."""


def arm(first: float, others: float, new: float, held: float = 1.0, seed: int = 0) -> Measured:
    """An arm with these one-step errors, with a hundredth of spread over seeds."""
    luck = np.random.default_rng(seed).lognormal(sigma=0.01, size=SEEDS)
    error = np.repeat([first, others, new], (1, CLIENTS - 1, MECHANISMS - CLIENTS))
    models = [{"error": (error * one).tolist(), "held": [held] * MECHANISMS} for one in luck]
    return Measured("", None, {"models": models, "seeds": list(range(SEEDS))})


def judged(place: int, **changes: tuple[float, float, float]) -> Claim:
    """One claim where everything is as claimed, but for some errors (first, others, new)."""
    usual = {"kf": (0.1, 0.1, 0.1), "shared": (9.0, 9.0, 9.0), "alone": (0.5, 9.0, 9.0)}
    arms = [arm(*errors, seed=i) for i, errors in enumerate((usual | changes).values())]
    return claims(*arms)[place]


@pytest.mark.parametrize(
    ("place", "holds", "fails"),
    [
        (FEASIBLE, {"alone": (0.9, 9, 9)}, {"alone": (1.1, 9, 9)}),
        # on other mechanisms worse than holding, and by more than the factor 2 than on its own
        (CONFINED, {"alone": (0.5, 0.1, 1.1)}, {"alone": (0.4, 9, 0.9)}),
        (CONFINED, {"alone": (2.0, 9, 4.4)}, {"alone": (2.0, 9, 3.6)}),
        (ORIGIN, {"alone": (0.9, 1.1, 0.1)}, {"alone": (0.9, 0.9, 9)}),
        (ORIGIN, {"alone": (0.9, 9, 9)}, {"alone": (1.1, 9, 9)}),
        (FEDERATED, {"shared": (1.1, 1.1, 9)}, {"shared": (0.9, 0.9, 9)}),
        (FEDERATED, {"alone": (8.0, 9, 9)}, {"alone": (9.5, 9, 9)}),
        (SERVES, {"kf": (0.45, 0.45, 0.5)}, {"kf": (0.55, 0.45, 0.5)}),
        (SERVES, {"kf": (0.1, 0.1, 0.19)}, {"kf": (0.1, 0.1, 0.21)}),
    ],
)
def test_a_verdict_flips_at_its_line(place: int, holds: Any, fails: Any) -> None:
    assert judged(place, **holds).verdict == HOLDS
    assert judged(place, **fails).verdict == FAILS


def test_which_claims_are_ours() -> None:
    assert [judged(i).ours for i in range(5)] == [False, False, False, True, True]


def test_errors_are_told_by_seed_and_mechanism_and_drawn_by_whose_it_is() -> None:
    arms = {"a": arm(1.0, 2.0, 3.0), "b": arm(4.0, 5.0, 6.0)}
    told = numbers(arms)
    assert len(told.rows) == 2 * SEEDS * MECHANISMS
    assert {len(row) for row in told.rows} == {len(told.columns)}
    held, first, _ = panel(arms).series
    assert held.muted and held.y == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(first.y, [1, 2, 3], rtol=0.02)
    one_seed = Measured("", None, {"models": arms["a"].table["models"][:1], "seeds": [0]})
    assert panel({"a": one_seed}).series[1].spread == [0.0, 0.0, 0.0]


SMALL = {"slots": 1, "segments.steps": 20, "clients.count": 2, "evaluation.trajectories": 3}


@pytest.fixture(scope="module")
def study() -> fk.Study:
    return fk.Study.paper_default().with_values(SMALL)


class Matrix:
    """A model that predicts x A, in the form of a `DeepKoopman`."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def predict(self, x: np.ndarray, n_steps: int, relift: int) -> np.ndarray:
        assert (n_steps, relift) == (1, 0)
        return x @ self.matrix


def test_a_model_of_states_is_seen_through_each_sensor(study: fk.Study) -> None:
    a = np.array([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.0], [0.0, 0.2, 1.0]])
    found = through_sensors(study, 4, Matrix(a))  # type: ignore[arg-type]
    more = experiment_of(study.with_values({"clients.count": MECHANISMS}), 4)
    x = held_out(more)[0].trajectories
    # the first sensors are those of the study's own clients, and the test set is its own
    few = experiment_of(study, 4)
    assert x.tobytes() == held_out(few)[0].trajectories.tobytes()
    for own, client in zip(few.clients, more.clients, strict=False):
        assert own.sensor.matrix.tobytes() == client.sensor.matrix.tobytes()
    for i, client in enumerate(more.clients):
        b = client.sensor.matrix
        error = np.mean(((x[:, :-1] @ a - x[:, 1:]) @ b.T) ** 2)
        held = np.mean(((x[:, :-1] - x[:, 1:]) @ b.T) ** 2)
        np.testing.assert_allclose((found["error"][i], found["held"][i]), (error, held))


def test_a_model_of_observations_predicts_what_each_sensor_shows(study: fk.Study) -> None:
    a = np.array([[0.9, 0.1], [-0.2, 1.0]])
    raw = study.with_values({"scheme": "observations"})
    found = through_sensors(raw, 4, Matrix(a))  # type: ignore[arg-type]
    more = experiment_of(study.with_values({"clients.count": MECHANISMS}), 4)
    x = held_out(more)[0].trajectories
    for i, client in enumerate(more.clients):
        z = x @ client.sensor.matrix.T
        np.testing.assert_allclose(
            found["error"][i], np.mean((z[:, :-1] @ a - z[:, 1:]) ** 2), rtol=1e-9
        )
    assert found["held"] == through_sensors(study, 4, Matrix(np.eye(3)))["held"]  # type: ignore[arg-type]


def test_a_model_that_diverged_is_told_as_none(study: fk.Study) -> None:
    found = through_sensors(study, 4, Matrix(np.full((3, 3), np.inf)))  # type: ignore[arg-type]
    assert found["error"] == [None] * MECHANISMS
    gone = {"models": [found] * SEEDS, "seeds": list(range(SEEDS))}
    diverged = claims(arm(0.1, 0.1, 0.1), arm(9, 9, 9), Measured("", None, gone))
    assert diverged[FEASIBLE].verdict == FAILS


def test_nothing_is_measured_of_schemes_of_which_nothing_is_claimed(study: fk.Study) -> None:
    other = study.with_values({"scheme": "perfect-data"})
    assert through_sensors(other, 0, Matrix(np.eye(3))) == {}  # type: ignore[arg-type]
