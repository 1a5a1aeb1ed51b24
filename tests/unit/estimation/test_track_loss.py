"""Segments on which the filter lost track are recognised, and others hardly ever."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.estimation import Estimates, estimate, lost_track
from fedkoopman.systems import Lorenz63, Pendulum, VanDerPol

SPREAD = {"method": "ukf-resampled", "alpha": 1.0, "kappa": 0.0}


def innovations(white: np.ndarray, method: str = "ukf-resampled") -> Estimates:
    """Estimates whose normalised innovations (B, T, m) are these."""
    batch, steps, m = white.shape
    nothing = np.zeros((batch, steps, 1))
    return Estimates(
        mean=nothing, cov=nothing[..., None], initial_mean=nothing[:, 0],
        initial_cov=nothing[:, :1], log_likelihood=np.zeros(batch), innovations=2.0 * white,
        innovation_cov=np.broadcast_to(4.0 * np.eye(m), (batch, steps, m, m)),
        ok=np.ones(batch, bool), method=method, smoothed=True,
    )  # fmt: skip


def tracked(system, sensor, z, start, cov, **options):
    return estimate(system, sensor, z, initial_mean=start, initial_cov=cov, warn=False,
                    **SPREAD | options)  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3])
def test_white_innovations_are_never_called_lost(channels: int) -> None:
    white = np.random.default_rng(0).normal(size=(3000, 120, channels))
    assert not any(lost_track(innovations(white)))


def test_noise_that_is_stated_too_small_is_no_lost_track() -> None:
    white = np.random.default_rng(1).normal(size=(500, 300, 1))
    assert not any(lost_track(innovations(3.0 * white)))


def test_a_smooth_signal_as_large_as_the_noise_is_a_lost_track_and_the_window_is_named() -> None:
    white = np.random.default_rng(2).normal(size=(100, 300, 1))
    drift = np.zeros(300)
    drift[200:250] = 2.5 * np.sin(np.arange(50) / 8)
    reasons = lost_track(innovations(white + drift[:, None]))
    assert np.mean([bool(reason) for reason in reasons]) > 0.98
    assert all("in samples 201 to 250" in reason for reason in reasons if reason)
    assert reasons[0].startswith("the filter lost track: ")


def test_the_search_for_the_initial_state_is_no_lost_track() -> None:
    white = np.random.default_rng(3).normal(size=(1, 300, 1))
    white[0, :4] = 6.0
    assert not any(lost_track(innovations(white)))
    assert all(lost_track(innovations(white[:, :60])))  # a single window has no other to mend it
    white[0, :20] = 6.0
    assert "in samples 1 to 50" in lost_track(innovations(white))[0]


def test_missing_samples_and_missing_segments_are_no_lost_track() -> None:
    white = np.random.default_rng(4).normal(size=(4, 300, 2))
    white[:, ::3, 0] = np.nan
    white[1] = np.nan
    white[2, 50:] = np.nan
    assert not any(lost_track(innovations(white)))
    white[3] += 5.0
    assert lost_track(innovations(white))[3]


def test_honest_segments_of_a_noisy_system_keep_their_track() -> None:
    system, sensor = VanDerPol(), fk.LinearSensor([[0.6, 0.8]])
    start = np.random.default_rng(0).normal(0.0, 0.2, (200, 2))
    x = fk.simulate(system, 300, initial=start, batch=200, process_noise=1e-3, seed=1)
    z = fk.observe(sensor, x[:, 1:], noise=1.0, seed=2)
    found = tracked(system, sensor, z, np.zeros(2), 0.04, process_noise=1e-3)
    assert not any(lost_track(found))


@pytest.mark.parametrize(
    ("system", "truth", "believed"),
    [(Pendulum(), [2.0, 0.0], [-2.0, 3.0]), (VanDerPol(), [2.0, 0.0], [-2.0, 0.0])],
)
def test_a_filter_that_is_sure_of_a_wrong_state_is_found_out(system, truth, believed) -> None:
    sensor = fk.LinearSensor([[0.8, 0.6]])
    x = fk.simulate(system, 300, initial=np.array([truth] * 40), batch=40, seed=0)
    z = fk.observe(sensor, x[:, 1:], noise=1.0, seed=3)
    wrong = tracked(system, sensor, z, np.array(believed), 1e-6, process_noise=1e-9)
    right = tracked(system, sensor, z, np.array(truth), 1e-6, process_noise=1e-9)
    assert np.sqrt(np.mean((wrong.mean - x[:, 1:]) ** 2)) > 1.0
    assert np.mean([bool(reason) for reason in lost_track(wrong)]) > 0.9
    assert not any(lost_track(right))


def test_the_papers_filter_cannot_be_judged_and_a_diverged_one_is_told_by_ok() -> None:
    white = np.random.default_rng(5).normal(size=(2, 100, 1))
    with pytest.raises(InputError, match=r"'ukf' cannot be judged.*use 'ukf-resampled'"):
        lost_track(innovations(white, "ukf"))
    white[0, 50:] = np.inf
    assert lost_track(innovations(white))[0] == ""
    single = fk.estimate(Lorenz63(), fk.LinearSensor(np.eye(3)), np.ones((20, 3)),
                         method="ukf-resampled", process_noise=100.0)  # fmt: skip
    assert len(lost_track(single)) == 1
