"""The shape of a result: single, batch and list; NumPy arrays of float64 that are the caller's."""

import dataclasses
import json
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from reference.problems import lorenz63

import fedkoopman as fk

STEPS, BATCH = 12, 3
METHODS = ["ukf", "particle"]
ARRAYS = ("mean", "cov", "initial_mean", "initial_cov", "innovations", "innovation_cov")


@pytest.fixture(scope="module")
def case():
    return lorenz63(steps=STEPS)


@pytest.fixture(scope="module")
def z(case):
    return case.z + np.arange(float(BATCH))[:, None, None]


def run(case, z, **options):
    return fk.estimate(case.system, case.sensor, z, **{"particles": 30, **options})


def assert_plain(array, shape):
    """A float64 NumPy array of that shape that the caller may write to."""
    assert type(array) is np.ndarray
    assert array.shape == shape and array.dtype == np.float64
    assert array.flags.writeable
    array += 1.0


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_one_trajectory(case, z, method, smooth):
    e = run(case, z[0], method=method, smooth=smooth)
    assert e.ok is True
    assert type(e.log_likelihood) is float and np.isfinite(e.log_likelihood)
    assert e.method == method and e.smoothed is smooth
    np.testing.assert_allclose(e.std**2, np.einsum("tii->ti", e.cov))
    assert e.std.shape == (STEPS, 3)
    shapes = [(STEPS, 3), (STEPS, 3, 3), (3,), (3, 3), (STEPS, 2), (STEPS, 2, 2)]
    for name, shape in zip(ARRAYS, shapes, strict=True):
        assert_plain(getattr(e, name), shape)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, BATCH])
def test_a_batch(case, z, method, smooth, size):
    e = run(case, z[:size], method=method, smooth=smooth)
    assert type(e.ok) is np.ndarray and e.ok.dtype == bool and e.ok.shape == (size,)
    assert e.ok.all()
    shapes = [(STEPS, 3), (STEPS, 3, 3), (3,), (3, 3), (STEPS, 2), (STEPS, 2, 2)]
    assert e.std.shape == (size, STEPS, 3)
    assert_plain(e.log_likelihood, (size,))
    for name, shape in zip(ARRAYS, shapes, strict=True):
        assert_plain(getattr(e, name), (size, *shape))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lengths", [(STEPS, 4, STEPS), (STEPS, STEPS), (4,)], ids=str)
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list(case, z, method, lengths, kind):
    given = kind(z[b][:length] for b, length in enumerate(lengths))
    e = run(case, given, method=method)
    assert e.ok.shape == (len(lengths),) and e.ok.all()
    assert_plain(e.log_likelihood, (len(lengths),))
    assert_plain(e.initial_mean, (len(lengths), 3))
    assert_plain(e.initial_cov, (len(lengths), 3, 3))
    for name, shape in (
        ("std", (3,)),
        ("mean", (3,)),
        ("cov", (3, 3)),
        ("innovations", (2,)),
        ("innovation_cov", (2, 2)),
    ):
        values = getattr(e, name)
        assert isinstance(values, list) and len(values) == len(lengths)
        for value, length in zip(values, lengths, strict=True):
            assert_plain(value, (length, *shape))


def test_a_tuple_of_systems_and_sensors(case, z):
    systems = [fk.systems.Lorenz63(b=b) for b in (26.0, 28.0, 30.0)]
    sensors = [fk.LinearSensor.random_frame(3, seed=seed) for seed in range(BATCH)]
    expected = fk.estimate(systems, sensors, z)
    ours = fk.estimate(tuple(systems), tuple(sensors), z)
    np.testing.assert_array_equal(ours.mean, expected.mean)


def test_members_of_a_list_share_no_memory(case, z):
    e = run(case, [z[0], z[1][:4], z[2]])
    before = e.mean[1].copy()
    e.mean[0][:] = 0
    np.testing.assert_array_equal(e.mean[1], before)


def test_std_is_the_root_of_the_diagonal(case):
    cov = np.array([[[4.0, 1.0], [1.0, 9.0]], [[1.0, 0.0], [0.0, 16.0]]])
    e = dataclasses.replace(run(case, case.z), cov=cov)
    np.testing.assert_array_equal(e.std, [[2.0, 3.0], [1.0, 4.0]])
    np.testing.assert_array_equal(dataclasses.replace(e, cov=[cov, cov[:1]]).std[1], [[2.0, 3.0]])


@pytest.mark.parametrize("method", METHODS)
def test_time_zero(case, z, method):
    """Filtered, it is the prior that was given; smoothed, the observations have moved it."""
    mean = np.arange(BATCH * 3.0).reshape(BATCH, 3)
    cov = np.stack([np.eye(3) * (b + 1) for b in range(BATCH)])
    given = {"method": method, "initial_mean": mean, "initial_cov": cov}
    filtered = run(case, z, smooth=False, **given)
    np.testing.assert_array_equal(filtered.initial_mean, mean)
    np.testing.assert_array_equal(filtered.initial_cov, cov)
    smoothed = run(case, z, **given)
    assert (np.abs(smoothed.initial_mean - mean).max(axis=1) > 1e-2).all()
    shrunk = np.trace(smoothed.initial_cov, axis1=1, axis2=2) < np.trace(cov, axis1=1, axis2=2)
    assert shrunk.all()


def test_the_last_smoothed_state_is_the_filtered_one(case, z):
    filtered, smoothed = run(case, z, smooth=False), run(case, z)
    np.testing.assert_allclose(smoothed.mean[:, -1], filtered.mean[:, -1], atol=1e-12)
    np.testing.assert_allclose(smoothed.cov[:, -1], filtered.cov[:, -1], atol=1e-12)
    np.testing.assert_allclose(smoothed.log_likelihood, filtered.log_likelihood, rtol=1e-12)
    assert np.abs(smoothed.mean[:, :-1] - filtered.mean[:, :-1]).max() > 1e-2
    shrunk = np.trace(smoothed.cov, axis1=2, axis2=3) < np.trace(filtered.cov, axis1=2, axis2=3)
    assert shrunk[:, :-1].all()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_given_is_not_changed(case, z, method):
    given, mean, cov = z.copy(), np.ones(3), np.eye(3)
    given[0, 2] = np.nan
    kept = given.copy()
    for array in (given, mean, cov):
        array.flags.writeable = False
    e = run(case, given, method=method, initial_mean=mean, initial_cov=cov, smooth=False)
    e.initial_mean[:] = 7
    e.initial_cov[:] = 7
    np.testing.assert_array_equal(given, kept)
    np.testing.assert_array_equal(mean, 1)
    np.testing.assert_array_equal(cov, np.eye(3))


def test_missing_rows_and_innovations(case, z):
    given = z.copy()
    given[1, 4], given[2, 6, 0] = np.nan, np.nan
    e = run(case, given)
    np.testing.assert_array_equal(np.isnan(e.innovations), np.isnan(given))
    assert np.isfinite(e.mean).all() and np.isfinite(e.innovation_cov).all()


@pytest.mark.parametrize(
    "form",
    [
        lambda z: z.tolist(),
        lambda z: z.astype(np.float32),
        lambda z: jax.numpy.asarray(z),
        lambda z: np.asfortranarray(z),
        lambda z: z[::-1][::-1],
        lambda z: [row.tolist() for row in z],
    ],
    ids=["nested list", "float32", "jax", "fortran", "strided", "list of lists"],
)
def test_forms_of_the_same_observations(case, form):
    z = np.round(case.z)  # exact in float32 too
    expected = run(case, z)
    ours = run(case, form(z))
    np.testing.assert_array_equal(ours.mean, expected.mean)
    assert ours.ok is True and type(ours.mean) is np.ndarray


def test_whole_numbers_are_observations(case):
    z = np.round(case.z)
    np.testing.assert_array_equal(run(case, z.astype(int)).mean, run(case, z).mean)


@pytest.mark.parametrize("method", METHODS)
def test_progress(case, z, method):
    """Called with rising counts up to all; a particle filter reports every trajectory."""
    seen = []
    run(case, z, method=method, progress=lambda done, total: seen.append((done, total)))
    assert seen == ([(3, 3)] if method == "ukf" else [(1, 3), (2, 3), (3, 3)])
    seen.clear()
    ragged = [z[0], z[1][:4], z[2]]
    run(case, ragged, method=method, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3) and {total for _, total in seen} == {3}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_an_error_in_progress_is_the_callers(case, z):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(case, z, progress=stop)


def test_results_are_frozen(case):
    e = run(case, case.z)
    with pytest.raises(dataclasses.FrozenInstanceError):
        e.mean = None


def test_one_observation(case):
    e = run(case, case.z[:1])
    assert e.mean.shape == (1, 3) and e.ok


def test_the_callers_jax_settings_are_untouched(case):
    """In a process with JAX's default float32: results in float64, for every method and edge."""
    program = """
        import json, warnings
        warnings.simplefilter("error")
        import jax, numpy as np
        import fedkoopman as fk
        assert not jax.config.jax_enable_x64
        system, sensor = fk.systems.Lorenz63(), fk.LinearSensor.random_frame(3, seed=0)
        x = fk.simulate(system, steps=12, seed=0)
        z = fk.observe(sensor, x[1:], noise=1.0, seed=0)
        assert x.dtype == z.dtype == np.float64
        results = {}
        for method in ("ukf", "particle"):
            e = fk.estimate(system, sensor, z, method=method, particles=30)
            for value in (e.mean, e.cov, e.initial_mean, e.initial_cov, e.innovations):
                assert value.dtype == np.float64
            results[method] = e.mean.tolist()
            assert not jax.config.jax_enable_x64
            assert jax.numpy.ones(1).dtype == np.float32
        try:
            fk.estimate(system, sensor, z, dt=np.ones(2))
        except fk.InputError:
            pass
        try:
            fk.estimate(fk.System.from_map(lambda x: x, 3), sensor, z, dt=np.ones(12))
        except fk.InputError:
            pass  # raised while tracing
        assert not jax.config.jax_enable_x64
        print(json.dumps(results))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for method, mean in json.loads(done.stdout).items():
        np.testing.assert_allclose(mean, run(case, case.z, method=method).mean, rtol=1e-9)
