"""One kernel or XLA's ordinary path: the same numbers, and nothing is compiled twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters

import fedkoopman as fk
from fedkoopman.compilation import fused, qualifies
from fedkoopman.estimation.gaussian_estimator import _track as tracked

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`


STEPS, BATCH = 8, 2
MIXING = np.random.default_rng(0).normal(size=(3, 3)) * 0.4


def bent(x):
    """sin, exp and where in one sensor."""
    return jnp.stack(
        [jnp.sin(x[0] / 10), jnp.exp(-((x[1] / 10) ** 2)), jnp.where(x[2] > 20, x[2], 0.5 * x[2])]
    )


FUSED = {
    "lorenz63": lambda: (fk.systems.Lorenz63(), fk.LinearSensor.random_frame(3, seed=0), "ekf"),
    "yni": lambda: (fk.systems.YNI(), fk.LinearSensor(np.eye(7)[:1]), "ukf"),
    "double pendulum": lambda: (
        fk.systems.DoublePendulum(),
        fk.LinearSensor.perturbed_identity(4, seed=0),
        "ukf-resampled",
    ),
    "matrix product": lambda: (
        fk.System.from_map(lambda x: MIXING @ x + 0.1 * jnp.tanh(x), 3),
        fk.LinearSensor.identity(3),
        "ukf-resampled",
    ),
    "sin, exp, where": lambda: (fk.systems.Lorenz63(), fk.FunctionSensor(bent, 3), "ukf"),
}
SMOOTHED = ("lorenz63", "double pendulum")  # compiling takes most of the time of these tests


def problem(system, sensor):
    """Observations with a gap, and the initial mean, near a state that the system can be in."""
    x = fk.simulate(system, steps=STEPS, seed=0, batch=BATCH, process_noise=1e-6)
    z = fk.observe(sensor, x[:, 1:], noise=1e-2, seed=0)
    z[0, 3] = np.nan
    return z, x[:, 0]


def solve(system, sensor, z, mean, **options):
    given = {"process_noise": 1e-3, "observation_noise": 1e-2, "initial_cov": 1e-2}
    return fk.estimate(system, sensor, z, initial_mean=mean, **{**given, **options})


def compiled():
    """How many versions of the filter and smoother exist: (as one kernel, the ordinary way)."""
    return tracked._fast._cache_size(), tracked._plain._cache_size()


@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_gives_the_ordinary_numbers(name, monkeypatch):
    system, sensor, method = FUSED[name]()
    z, mean = problem(system, sensor)
    fast_before, plain_before = compiled()
    options = {"method": method, "smooth": name in SMOOTHED}
    kernel = solve(system, sensor, z, mean, **options)
    assert compiled() == (fast_before + 1, plain_before), "it must have run as one kernel"
    monkeypatch.setattr(fused, "is_one_kernel", lambda *args, **static: False)
    plain = solve(system, sensor, z, mean, **options)
    assert compiled() == (fast_before + 1, plain_before + 1)
    assert kernel.ok.all() and np.ptp(kernel.mean) > 0
    for field in ("mean", "cov", "initial_mean", "initial_cov", "log_likelihood", "innovations"):
        ours, theirs = getattr(kernel, field), getattr(plain, field)
        scale = max(1, np.nanmax(np.abs(theirs)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * scale)


TRACES = []


def lapack(x):
    TRACES.append("lapack")
    return jnp.linalg.solve(np.eye(3) + MIXING @ MIXING.T, x) + 0.1 * jnp.sin(x)


def scatter(x):
    TRACES.append("scatter")
    return x.at[0].set(0.5 * x[1] + 0.1).at[2].add(-0.3 * x[0])


def ordered(x):
    TRACES.append("sort")
    return jnp.sort(x)[1:]


def numpy_scatter(x):
    return np.array([0.5 * x[1] + 0.1, x[1], x[2] - 0.3 * x[0]])


REFUSED = {
    "lapack": (
        lambda: (fk.System.from_map(lapack, 3), fk.LinearSensor.identity(3)),
        lambda x: np.linalg.solve(np.eye(3) + MIXING @ MIXING.T, x) + 0.1 * np.sin(x),
        lambda x: x,
    ),
    "scatter": (
        lambda: (fk.System.from_map(scatter, 3), fk.LinearSensor.identity(3)),
        numpy_scatter,
        lambda x: x,
    ),
    "sort": (
        lambda: (
            fk.System.from_map(lambda x: MIXING @ x + jnp.array([1.0, 2.0, 4.0]), 3),
            fk.FunctionSensor(ordered, 2),
        ),
        lambda x: MIXING @ x + np.array([1.0, 2.0, 4.0]),
        lambda x: np.sort(x)[1:],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_can_hold_takes_the_ordinary_path(name):
    make, f, h = REFUSED[name]
    system, sensor = make()
    rng = np.random.default_rng(1)
    z = rng.normal(size=(BATCH, STEPS, sensor.dim)) + 2.0
    _, plain_before = compiled()
    ours = solve(system, sensor, z, np.zeros(3), method="ukf-resampled")
    assert compiled()[1] == plain_before + 1
    noise = 1e-3 * np.eye(3), 1e-2 * np.eye(sensor.dim)
    for b in range(BATCH):
        means, covs, log_likelihood = filters.ukf(
            f, h, z[b], *noise, np.zeros(3), 1e-2 * np.eye(3), resample=True
        )
        smoothed, smoothed_covs = filters.urts(f, means, covs, noise[0])
        np.testing.assert_allclose(ours.mean[b], smoothed[1:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.cov[b], smoothed_covs[1:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.log_likelihood[b], log_likelihood, rtol=1e-9)
    traces = len(TRACES)
    assert TRACES[-1] == name
    again = solve(system, sensor, z + 1.0, np.zeros(3), method="ukf-resampled")
    assert len(TRACES) == traces, "once refused, the kernel must not be tried again"
    assert compiled()[1] == plain_before + 1
    assert np.abs(again.mean - ours.mean).max() > 0.1


EVENTS = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: EVENTS.append(event) if "backend_compile" in event else None
)


def assert_compiles(calls, *, nothing):
    before = len(EVENTS)
    for call in calls:
        call()
    count = len(EVENTS) - before
    assert (count == 0) if nothing else (count > 0), f"{count} compilations"


def lorenz_calls():
    """The same kind of problem with other numbers everywhere."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 6, 2))
    gaps, on_device = z.copy(), jnp.asarray(z)
    gaps[1, 2] = np.nan
    sensors = [fk.LinearSensor.random_frame(3, seed=s) for s in range(2)]
    yield lambda: fk.estimate(fk.systems.Lorenz63(), sensors[0], z)
    yield lambda: fk.estimate(fk.systems.Lorenz63(), sensors[0], z + 1)
    yield lambda: fk.estimate(fk.systems.Lorenz63(), sensors[0], gaps)
    yield lambda: fk.estimate(fk.systems.Lorenz63(), sensors[0], z.astype(np.float32))
    yield lambda: fk.estimate(fk.systems.Lorenz63(), sensors[0], on_device)
    yield lambda: fk.estimate(fk.systems.Lorenz63(a=9, b=27.5, dt=0.01), sensors[1], z)
    yield lambda: fk.estimate(
        fk.systems.Lorenz63().with_parameters(c=2.5),
        sensors[1],
        z,
        process_noise=np.diag([1.0, 2.0, 3.0]),
        observation_noise=[0.5, 0.7],
        initial_mean=np.ones((3, 3)),
        initial_cov=np.stack([np.eye(3)] * 3),
    )


def test_other_numbers_compile_nothing_new():
    first, *others = lorenz_calls()
    assert_compiles([first], nothing=False)
    before = compiled()
    assert_compiles(others, nothing=True)
    assert compiled() == before


def test_pieces_of_a_large_batch_share_one_compilation():
    z = np.random.default_rng(0).normal(size=(300, 3, 2))
    sensor = fk.LinearSensor.random_frame(3, seed=0)
    before = compiled()[0]
    fk.estimate(fk.systems.Lorenz63(), sensor, z, smooth=False)
    assert compiled()[0] == before + 1
    assert_compiles(
        [lambda: fk.estimate(fk.systems.Lorenz63(b=20.0), sensor, z[:299], smooth=False)],
        nothing=True,
    )


def test_particles_with_other_numbers_compile_nothing_new():
    sensor = fk.LinearSensor.random_frame(3, seed=0)

    def run(b, seed, shift):
        z = np.full((5, 2), shift)
        fk.estimate(fk.systems.Lorenz63(b=b), sensor, z, method="particle", particles=20, seed=seed)

    assert_compiles([lambda: run(28.0, 0, 0.0)], nothing=False)
    assert_compiles([lambda: run(27.0, 1, 2.0), lambda: run(26.0, 2, np.nan)], nothing=True)


def test_online_steps_compile_once():
    online = fk.estimation.OnlineFilter(
        fk.systems.Lorenz63(), fk.LinearSensor.random_frame(3, seed=0), method="ekf"
    )
    state, _ = online.step(online.start(), [0.0, 1.0])

    def more():
        kept = state
        for z in ([1.0, 2.0], [np.nan, 0.5], [np.nan, np.nan]):
            kept, _ = online.step(kept, z)

    assert_compiles([more], nothing=True)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: jnp.sin(x) @ jnp.ones((3, 3)), True),
        (lambda x: jax.nn.sigmoid(x) + jax.scipy.special.erf(x), True),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 0.5, x), True),
        (jnp.sort, False),
        (lambda x: jnp.linalg.inv(x[:, None] * x), False),
        (lambda x: x.at[0].set(1.0), False),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.sort(y), x), False),
        (lambda x: jax.lax.cond(x[0] > 0, jnp.sort, jnp.sin, x), False),
        (lambda x: jax.lax.scan(lambda c, _: (jnp.sort(c), None), x, None, 2)[0], False),
        (lambda x: jax.jit(jnp.sort)(x), False),
        (lambda x: jax.lax.while_loop(lambda y: jnp.sort(y)[0] > 1, lambda y: y / 2, x), False),
    ],
    ids=[
        "product",
        "special functions",
        "loop",
        "sort",
        "inverse",
        "scatter",
        "sort in a loop",
        "sort in a branch",
        "sort in a scan",
        "sort in a jit",
        "sort in a condition",
    ],
)
def test_unknown_primitives_are_found_at_any_depth(function, expected):
    assert qualifies(jax.make_jaxpr(function)(jnp.ones(3)).jaxpr) is expected


def test_the_decorator_keeps_structure_and_static_arguments():
    function = fused(
        lambda pair, *, power: {"a": (pair[0] ** power,), "b": pair[1]}, static_argnames=("power",)
    )
    for power in (2, 3):
        out = function((jnp.arange(3.0), jnp.ones(2)), power=power)
        np.testing.assert_allclose(out["a"][0], np.arange(3.0) ** power)
        np.testing.assert_array_equal(out["b"], 1)
    assert function.is_one_kernel((jnp.arange(3.0), jnp.ones(2)), power=2)


def test_a_refusal_is_of_one_signature_only():
    function = fused(lambda x, *, tidy: jnp.sort(x) if tidy else 2 * x, static_argnames=("tidy",))
    x = jnp.array([3.0, 1.0, 2.0])
    np.testing.assert_array_equal(function(x, tidy=True), [1, 2, 3])
    np.testing.assert_array_equal(function(x, tidy=False), [6, 2, 4])
    assert not function.is_one_kernel(x, tidy=True)
    assert function.is_one_kernel(x, tidy=False)


def test_a_compiler_that_refuses_after_all(monkeypatch):
    function = fused(lambda x: x + 1)
    calls = []

    def refuse(*args):
        calls.append(args)
        raise jax.errors.JaxRuntimeError("INTERNAL: symbols not found")

    monkeypatch.setattr(function, "_fast", refuse)
    for _ in range(2):
        np.testing.assert_array_equal(function(jnp.zeros(2)), 1)
    assert len(calls) == 1


def test_an_error_of_the_function_itself_is_the_callers_to_see():
    def broken(x):
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        fused(broken)(jnp.zeros(2))


def test_other_platforms_take_the_ordinary_path(monkeypatch):
    function = fused(lambda x: x + 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not function.is_one_kernel(jnp.zeros(2))
    np.testing.assert_array_equal(function(jnp.zeros(2)), 1)
    assert function._fast._cache_size() == 0
