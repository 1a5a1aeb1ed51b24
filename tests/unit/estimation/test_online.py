"""One observation at a time gives what the whole trajectory gives."""

import json
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters
from reference.problems import lorenz63

import fedkoopman as fk
from fedkoopman.estimation import (
    Linearised,
    Noise,
    OnlineFilter,
    State,
    Unscented,
    model_of,
    step,
)

METHODS = ["ukf", pytest.param("ukf-resampled", marks=pytest.mark.slow), "ekf"]
TRANSFORMS = {
    "ukf": Unscented(),
    "ukf-resampled": Unscented(resample=True),
    "ekf": Linearised(),
}
STEPS = 25


def close(ours, theirs, tolerance=1e-12):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1, np.abs(theirs).max()))


def stream(online, state, z, **per_step):
    """The filtered trajectory and what each step said."""
    states, infos = [], []
    for k, z_k in enumerate(z):
        state, info = online.step(state, z_k, **{name: v[k] for name, v in per_step.items()})
        states.append(state)
        infos.append(info)
    return states, infos


@pytest.fixture(scope="module")
def case():
    return lorenz63(steps=STEPS)


@pytest.fixture(scope="module")
def z(case):
    """A lost row and lost components."""
    z = case.z.copy()
    z[5], z[9, 0], z[17, 1] = np.nan, np.nan, np.nan
    return z


@pytest.fixture(scope="module")
def driven():
    """A pendulum pushed by a known torque and observed at irregular times."""
    system = fk.System.from_function(
        lambda x, u: jnp.stack([x[1], -9.8 * jnp.sin(x[0]) + u[0]]), 2, 0.05, input_dim=1
    )
    rng = np.random.default_rng(0)
    z = rng.normal(size=(STEPS, 1))
    z[3] = np.nan
    return system, fk.LinearSensor([[1.0, 0.2]]), z, rng.normal(size=(STEPS, 1)), rng


def assert_same(states, infos, e):
    assert all(info.ok for info in infos)
    close(np.array([s.mean for s in states]), e.mean)
    close(np.array([s.cov for s in states]), e.cov)
    close(np.array([i.innovation_cov for i in infos]), e.innovation_cov)
    seen = ~np.isnan(e.innovations)
    close(np.array([i.innovation for i in infos])[seen], e.innovations[seen])
    close(sum(i.log_likelihood for i in infos), e.log_likelihood)


@pytest.mark.parametrize("method", METHODS)
def test_step_by_step_is_the_whole_filter(case, z, method):
    given = {"process_noise": [0.5, 1.0, 2.0], "observation_noise": [[1.0, 0.3], [0.3, 0.5]]}
    mean, cov = np.array([1.0, -2.0, 20.0]), np.diag([1.0, 2.0, 3.0])
    online = OnlineFilter(case.system, case.sensor, method=method, **given)
    states, infos = stream(online, online.start(mean, cov), z)
    e = fk.estimate(
        case.system,
        case.sensor,
        z,
        initial_mean=mean,
        initial_cov=cov,
        method=method,
        smooth=False,
        **given,
    )
    assert_same(states, infos, e)


def test_it_is_the_textbooks(case, z):
    online = OnlineFilter(case.system, case.sensor, method="ukf-resampled")
    states, infos = stream(online, online.start(), z)
    means, covs, log_likelihood = filters.ukf(
        case.f, case.h, z, case.q, case.r, np.zeros(3), np.eye(3), resample=True
    )
    close(np.array([s.mean for s in states]), means[1:], 1e-9)
    close(np.array([s.cov for s in states]), covs[1:], 1e-9)
    close(sum(i.log_likelihood for i in infos), log_likelihood, 1e-9)


@pytest.mark.parametrize("points", [(1.0, 2.0, 0.0), (0.5, 1.0, 1.0)])
def test_the_sigma_points_are_the_callers(case, points):
    given = dict(zip(("alpha", "beta", "kappa"), points, strict=True))
    online = OnlineFilter(case.system, case.sensor, **given)
    states, _ = stream(online, online.start(), case.z[:5])
    e = fk.estimate(case.system, case.sensor, case.z[:5], smooth=False, **given)
    close(np.array([s.mean for s in states]), e.mean)
    plain = fk.estimate(case.system, case.sensor, case.z[:5], smooth=False)
    assert np.abs(plain.mean - e.mean).max() > 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_inputs_and_intervals(driven, method):
    system, sensor, z, inputs, _ = driven
    dt = np.random.default_rng(1).uniform(0.02, 0.1, STEPS)
    given = {"process_noise": 0.01, "observation_noise": 0.1, "method": method}
    online = OnlineFilter(system, sensor, **given)
    states, infos = stream(online, online.start(), z, inputs=inputs, dt=dt)
    e = fk.estimate(system, sensor, z, inputs=inputs, dt=dt, smooth=False, **given)
    assert_same(states, infos, e)
    still, _ = stream(online, online.start(), z, inputs=np.zeros_like(inputs), dt=dt)
    assert np.abs(still[-1].mean - states[-1].mean).max() > 1e-3


def test_the_systems_own_interval_is_the_default(driven):
    system, sensor, z, inputs, _ = driven
    online = OnlineFilter(system, sensor)
    state = online.start()
    default, _ = online.step(state, z[0], inputs=inputs[0])
    same, _ = online.step(state, z[0], inputs=inputs[0], dt=0.05)
    longer, _ = online.step(state, z[0], inputs=inputs[0], dt=0.1)
    close(default.mean, same.mean)
    assert np.abs(longer.mean - same.mean).max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_the_pure_step_is_the_filter_and_compiles(case, z, method):
    """`step` under `jax.jit` and a Python loop, the batch of two on the last axis."""
    noise = Noise.of(jnp.asarray(case.q)[..., None]), Noise.of(jnp.asarray(case.r)[..., None])

    @jax.jit
    def advance(state, z_k):
        model = model_of(case.system, case.sensor)
        return step(TRANSFORMS[method], model, state, z_k, *noise)[:2]

    state = State(jnp.zeros((3, 2)), jnp.tile(jnp.eye(3)[..., None], 2))
    both = np.stack([z, z + 1.0], axis=-1)
    means, total = [], 0.0
    for z_k in both:
        state, info = advance(state, z_k)
        means.append(np.asarray(state.mean))
        total = total + np.asarray(info.log_likelihood)
    e = fk.estimate(case.system, case.sensor, np.moveaxis(both, -1, 0), method=method, smooth=False)
    close(np.moveaxis(np.array(means), -1, 0), e.mean)
    close(np.moveaxis(np.asarray(state.cov), -1, 0), e.cov[:, -1])
    close(total, e.log_likelihood)


def test_a_state_may_be_kept_and_gone_back_to(case):
    """Nothing is remembered between calls: a step depends on its arguments alone."""
    online = OnlineFilter(case.system, case.sensor)
    kept, _ = online.step(online.start(), case.z[0])
    before = kept.mean.copy(), kept.cov.copy()
    once, _ = online.step(kept, case.z[1])
    online.step(kept, case.z[2])
    again, _ = online.step(kept, case.z[1])
    np.testing.assert_array_equal(once.mean, again.mean)
    np.testing.assert_array_equal(kept.mean, before[0])
    np.testing.assert_array_equal(kept.cov, before[1])
    assert isinstance(once.mean, np.ndarray) and once.mean.dtype == np.float64
    assert once.mean.shape == (3,) and once.cov.shape == (3, 3)


def test_divergence_is_said():
    system = fk.System.from_map(lambda x: x**3, 1)
    online = OnlineFilter(system, fk.LinearSensor.identity(1), method="ekf")
    state, ok = online.start([1e30], 1e-6), []
    for _ in range(6):
        state, info = online.step(state, [np.nan])
        ok.append(info.ok)
    assert ok[0] and not ok[-1]


REFUSED_FILTERS = {
    "particle": ({"method": "particle"}, "particle"),
    "unknown method": ({"method": "kalman"}, "kalman"),
    "process noise per step": ({"process_noise": np.tile(np.eye(3), (4, 1, 1))}, "process_noise"),
    "one process noise per step": ({"process_noise": np.eye(3)[None]}, "process_noise"),
    "observation noise per step": (
        {"observation_noise": np.tile(np.eye(2), (4, 1, 1))},
        "observation_noise",
    ),
    "wrong noise": ({"observation_noise": np.eye(3)}, "observation_noise"),
    "alpha": ({"alpha": 0.0}, "alpha"),
    "kappa": ({"kappa": -3.0}, "kappa"),
}


@pytest.mark.parametrize("name", REFUSED_FILTERS)
def test_refused_filters(case, name):
    options, word = REFUSED_FILTERS[name]
    with pytest.raises(fk.InputError, match=word) as caught:
        OnlineFilter(case.system, case.sensor, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("system", "sensor"),
    [("lorenz63", None), (None, "sensor"), ("list", None)],
)
def test_not_a_system_or_sensor(case, system, sensor):
    system = [case.system] if system == "list" else system
    with pytest.raises(fk.InputError, match=r"system|sensor"):
        OnlineFilter(system or case.system, sensor or case.sensor)


@pytest.mark.parametrize(
    "bad",
    [
        [1.0, 2.0, 3.0],
        [1.0],
        1.0,
        [np.inf, 0.0],
        ["a", "b"],
        np.ones((4, 2)),
    ],
    ids=["long", "short", "scalar", "infinite", "text", "rows"],
)
def test_refused_observations(case, bad):
    online = OnlineFilter(case.system, case.sensor)
    with pytest.raises(fk.InputError, match="z ") as caught:
        online.step(online.start(), bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", [1.0, 2.0]),
        ("inputs", [np.nan]),
        ("inputs", None),
        ("dt", [0.1, 0.2]),
        ("dt", -0.1),
        ("dt", np.nan),
        ("dt", "soon"),
    ],
    ids=str,
)
def test_refused_conditions(driven, name, value):
    system, sensor, z, inputs, _ = driven
    online = OnlineFilter(system, sensor)
    with pytest.raises(fk.InputError, match=name) as caught:
        online.step(online.start(), z[0], **{"inputs": inputs[0], name: value})
    assert "\n" not in str(caught.value)


def test_superfluous_inputs(case):
    online = OnlineFilter(case.system, case.sensor)
    with pytest.raises(fk.InputError, match="inputs"):
        online.step(online.start(), case.z[0], inputs=[1.0])


@pytest.mark.parametrize("bad", [{"mean": np.zeros(4)}, {"cov": np.eye(2)}, {"cov": -1.0}])
def test_refused_starts(case, bad):
    with pytest.raises(fk.InputError, match=f"initial_{next(iter(bad))}"):
        OnlineFilter(case.system, case.sensor).start(**bad)


def test_a_missing_component_has_no_innovation(case):
    online = OnlineFilter(case.system, case.sensor)
    _, info = online.step(online.start(), [np.nan, 1.0])
    np.testing.assert_array_equal(np.isnan(info.innovation), [True, False])


@pytest.mark.slow  # as `test_estimates` has it
def test_the_callers_jax_settings_are_untouched():
    """In a process of its own with float32 as JAX's default: float64 inside, float32 outside."""
    program = """
        import json, jax, numpy as np
        import fedkoopman as fk
        assert not jax.config.jax_enable_x64
        system, sensor = fk.systems.Lorenz63(), fk.LinearSensor.random_frame(3, seed=0)
        online = fk.estimation.OnlineFilter(system, sensor)
        state = online.start()
        for z in np.random.default_rng(0).normal(size=(3, 2)):
            state, info = online.step(state, z)
        assert state.mean.dtype == state.cov.dtype == info.innovation.dtype == np.float64
        assert not jax.config.jax_enable_x64
        assert jax.numpy.ones(1).dtype == np.float32
        print(json.dumps(state.mean.tolist()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    z = np.random.default_rng(0).normal(size=(3, 2))
    sensor = fk.LinearSensor.random_frame(3, seed=0)
    e = fk.estimate(fk.systems.Lorenz63(), sensor, z, smooth=False)
    close(np.array(json.loads(done.stdout)), e.mean[-1])
