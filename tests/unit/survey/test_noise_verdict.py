"""Verdicts on simulated sites: right noise is left alone, wrong noise is named with its remedy."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedkoopman as fk
from fedkoopman.data.segments import Segment
from fedkoopman.errors import InputError
from fedkoopman.survey.noise_verdict import channel_tests, initial_test, observed_noise
from fedkoopman.survey.site_check import noise_verdict

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

A = np.array([[0.95, 0.3], [-0.3, 0.9]])
TRUE_Q, TRUE_R = 0.05, 0.2
MAP = fk.System.from_map(lambda x: jnp.asarray(A) @ x, 2)
ANGLE = fk.LinearSensor([[1.0, 0.0]])
BOTH = fk.LinearSensor.identity(2)


def segments_of(z, channels):
    return [
        Segment("lab", str(i), Path("z.csv"), part, None, 0.0, False, 0, channels, None)
        for i, part in enumerate(z)
    ]


def verdict(system, sensor, z, r, q, method="ekf", **options):
    """The verdict on declared variances `r` and `q`."""
    channels = ("angle", "speed")[: sensor.dim]
    r, q = (np.diag(np.broadcast_to(v, (n,)).astype(float)) for v, n in
            ((r, sensor.dim), (q, system.dim)))  # fmt: skip
    options = {"initial_mean": np.zeros(system.dim), "initial_cov": np.eye(system.dim), **options}
    states = fk.estimate(
        system, sensor, list(z), observation_noise=r, process_noise=q, method=method,
        smooth=False, warn=False, **options,
    )  # fmt: skip
    return noise_verdict(system, sensor, segments_of(z, channels), states, r, q, options)


def linear_site(seed=0, steps=200, batch=5, sensor=ANGLE):
    """Segments of the linear map from x_0 ~ N(0, I)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, 2))
    z = np.empty((batch, steps, sensor.dim))
    for k in range(steps):
        x = x @ A.T + np.sqrt(TRUE_Q) * rng.normal(size=x.shape)
        z[:, k] = x @ sensor.matrix.T + np.sqrt(TRUE_R) * rng.normal(size=(batch, sensor.dim))
    return z


def test_right_noise_is_called_consistent_at_the_stated_level():
    """False alarms of 100 right sites are no more than 1 % explains."""
    found = [verdict(MAP, ANGLE, linear_site(seed), TRUE_R, TRUE_Q) for seed in range(100)]
    alarms = [str(v) for v in found if not v.consistent]
    assert len(alarms) <= stats.binom.ppf(0.99, 100, 0.01), alarms
    assert str(found[0]) == found[0].text == "consistent"
    [test] = found[0].channels
    assert (test.name, test.count) == ("angle", 5 * 180)
    assert test.lower < test.ratio < test.upper and test.white


@pytest.mark.parametrize(("factor", "word"), [(4.0, "large"), (0.25, "small")])
@pytest.mark.parametrize("seed", [0, 1])
def test_observation_noise_off_by_four_is_named_with_what_to_try(factor, word, seed):
    found = verdict(MAP, ANGLE, linear_site(seed), factor * TRUE_R, TRUE_Q)
    assert found.kind == "noise" and not found.consistent
    said = re.fullmatch(rf"observation noise looks (\d)× too {word}: try ([\d.]+)", found.text)
    assert said and int(said[1]) in (3, 4, 5)
    assert float(said[2]) == pytest.approx(TRUE_R, rel=0.25)
    assert found.observation == pytest.approx([TRUE_R], rel=0.25) and found.process is None
    assert found.estimated == pytest.approx([TRUE_R], rel=0.25)


def test_one_channel_of_two_is_named():
    z = linear_site(2, sensor=BOTH)
    found = verdict(MAP, BOTH, z, [TRUE_R, TRUE_R / 4], TRUE_Q)
    assert re.fullmatch(
        r"observation noise of speed looks [345]× too small: try [\d.]+", str(found)
    )
    both = verdict(MAP, BOTH, z, TRUE_R / 4, TRUE_Q)
    assert re.fullmatch(r"observation noise looks [345]× too small: try [\d.]+", str(both))
    right = verdict(MAP, BOTH, z, TRUE_R, TRUE_Q)
    assert right.consistent


def test_gaps_and_a_dead_channel_do_not_disturb():
    z = linear_site(3, sensor=BOTH)
    z[0, 40:90], z[..., 1] = np.nan, np.nan
    right = verdict(MAP, BOTH, z, [TRUE_R, 1.0], TRUE_Q)
    assert right.consistent and right.channels[1].count == 0
    wrong = verdict(MAP, BOTH, z, [TRUE_R / 4, 1.0], TRUE_Q)
    assert re.fullmatch(r"observation noise looks [345]× too small: try [\d.]+", str(wrong))
    assert wrong.observation[1] == 1.0


@pytest.mark.parametrize(("factor", "word"), [(30.0, "large"), (1 / 30, "small")])
def test_process_noise_is_told_from_observation_noise(factor, word):
    found = verdict(MAP, BOTH, linear_site(4, sensor=BOTH), TRUE_R, factor * TRUE_Q)
    assert found.kind == "noise"
    said = re.match(rf"process noise looks (\d+)× too {word}: try ([\d.]+)", found.text)
    assert said and 15 < int(said[1]) < 60
    assert float(said[2]) == pytest.approx(TRUE_Q, rel=0.4)
    assert ("mend the equations" in found.text) == (word == "small")
    assert found.process == pytest.approx(1 / factor, rel=0.4)


def test_generous_process_noise_is_not_held_against_a_site():
    """Nothing is said of it as long as the filter is consistent, whatever else there is to mend;
    but what it does to the innovations is not put down to the sensor."""
    z = linear_site(6, sensor=BOTH)
    generous = verdict(MAP, BOTH, z, TRUE_R / 4, 1.5 * TRUE_Q)
    assert re.fullmatch(r"observation noise looks [345]× too small: try [\d.]+", str(generous))
    blamed = verdict(MAP, BOTH, z, TRUE_R, 8 * TRUE_Q)
    assert "process noise looks" in blamed.text and "observation" not in blamed.text


def test_a_sensor_that_is_said_to_be_perfect_and_is_not():
    z = linear_site(7, sensor=BOTH)
    found = verdict(MAP, BOTH, z, [TRUE_R, 0.0], TRUE_Q)
    assert str(found) == "observation noise of speed is 0 but the data have some: give a variance"


def test_noise_of_which_the_data_show_none():
    z = np.full((5, 200, 1), 0.7)
    still = fk.System.from_map(lambda x: x, 2)
    start = {"initial_mean": np.array([z[0, 0, 0], 0.0])}
    found = verdict(still, ANGLE, z + 1e-9, 0.1, [1e-12, 1e-12], **start)
    assert "observation noise looks 100× too large: try 0.001" in found.text


# A pendulum, by the unscented filter


@pytest.fixture(scope="module")
def pendulum_site():
    system = fk.systems.Pendulum()
    start = np.random.default_rng(0).normal(size=(5, 2))
    x = fk.simulate(system, 200, initial=start, process_noise=1e-5)
    return system, fk.observe(ANGLE, x[:, 1:], noise=TRUE_R, seed=1)


def on_pendulum(site, r=TRUE_R, q=1e-5, system=None, **options):
    return verdict(system or site[0], ANGLE, site[1], r, q, method="ukf-resampled", **options)


@pytest.mark.slow
def test_a_pendulum_with_right_and_wrong_noise(pendulum_site):
    assert on_pendulum(pendulum_site).consistent
    small, large = (str(on_pendulum(pendulum_site, r=f * TRUE_R)) for f in (0.25, 4.0))
    assert re.fullmatch(r"observation noise looks 4× too small: try 0\.(19|2|21)", small)
    assert re.fullmatch(r"observation noise looks 4× too large: try 0\.(19|2|21)", large)


def test_wrong_equations_are_not_put_down_to_the_sensor(pendulum_site):
    long = on_pendulum(pendulum_site, system=fk.systems.Pendulum(length=2.0))
    assert not long.consistent and "observation noise" not in long.text
    assert "equations" in long.text


def test_a_model_that_no_noise_can_save():
    """An oscillation in a channel that, by its sensor, does not depend on the state."""
    rng = np.random.default_rng(0)
    z = (np.sin(0.8 * np.arange(200)) + 0.05 * rng.normal(size=(5, 200)))[..., None]
    found = verdict(MAP, fk.LinearSensor([[0.0, 0.0]]), z, 0.0025, TRUE_Q)
    assert found.kind == "model"
    assert found.text.startswith("the model does not explain the data: with the best noise too")
    assert "angle is correlated in time" in found.text and "check the equations" in found.text


def test_a_wrong_initial_state_is_not_put_down_to_the_noise(pendulum_site):
    options = {"initial_mean": np.array([5.0, 5.0]), "initial_cov": 0.1 * np.eye(2)}
    found = on_pendulum(pendulum_site, **options)
    assert found.kind == "initial"
    assert re.match(r"the first samples lie [\d.]+× as far off .* larger initial\.cov", found.text)


# The tests behind it


def estimates(v, s=None):
    """Estimates of nothing but innovations, one segment each."""
    count = len(v)
    s = np.ones((*v.shape, 1)) if s is None else s
    blank = np.zeros((count, v.shape[1], 1))
    return fk.Estimates(
        list(blank), list(blank[..., None]), np.zeros((count, 1)), np.zeros((count, 1, 1)),
        np.zeros(count), list(v), list(s), np.ones(count, bool), "ekf", False,
    )  # fmt: skip


def test_autocorrelation_and_ratio_are_those_of_the_innovations():
    rng = np.random.default_rng(0)
    e = rng.normal(size=(4, 2001))
    v = (e[:, 1:] + 0.5 * e[:, :-1])[..., None]  # moving average: ρ_1 = 0.4
    [test] = channel_tests(estimates(v), ("a",))
    assert test.lag == 1 and test.correlation == pytest.approx(0.4, abs=0.04)
    assert test.ratio == pytest.approx(1.25, abs=0.08)
    assert not test.white and not test.consistent
    [scaled] = channel_tests(estimates(v, 1.25 * np.ones((4, 2000, 1, 1))), ("a",))
    assert scaled.sized and scaled.correlation == pytest.approx(test.correlation)


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])
def test_innovations_show_the_noise_of_a_simulated_site(factor):
    """Of 20 × 180 samples a variance is known to 2.4 % × S/R: four standard errors are a fifth.
    Declared a little off, within what counts as consistent, it is found all the same."""
    z = linear_site(8, batch=20, sensor=BOTH)
    z[:, 50:60, 0], z[3, :, 1] = np.nan, np.nan
    declared = factor * TRUE_R * np.eye(2)
    states = fk.estimate(
        MAP, BOTH, list(z), observation_noise=declared, process_noise=TRUE_Q, method="ekf",
        smooth=False,
    )  # fmt: skip
    found = observed_noise(states, declared)
    np.testing.assert_allclose(found, TRUE_R, rtol=0.2)
    assert np.abs(np.log(found / TRUE_R)).max() < max(abs(np.log(factor)), 0.1)


def test_no_noise_is_seen_where_nothing_is_observed():
    z = linear_site(3, sensor=BOTH)
    z[..., 1] = np.nan
    states = fk.estimate(
        MAP, BOTH, list(z), observation_noise=TRUE_R, process_noise=TRUE_Q, method="ekf",
        smooth=False,
    )  # fmt: skip
    assert np.isnan(observed_noise(states, TRUE_R * np.eye(2))).tolist() == [False, True]


def test_diverged_segments_are_left_out():
    rng = np.random.default_rng(1)
    v = rng.normal(size=(2, 100, 1))
    v[1] = 1e6
    found = estimates(v)
    found.ok[1] = False
    [test] = channel_tests(found, ("a",))
    assert test.count == 80 and test.consistent and initial_test(found).consistent


def test_too_little_to_judge():
    z = np.full((1, 40, 1), np.nan)
    found = verdict(MAP, ANGLE, z, 1.0, 1.0)
    assert found.kind == "unknown" and "too few observations" in found.text


def test_the_papers_filter_cannot_be_judged():
    with pytest.raises(InputError, match="method 'ukf' cannot be judged"):
        verdict(MAP, ANGLE, linear_site(), 1.0, 1.0, method="ukf")
