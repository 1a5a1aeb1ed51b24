import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import fields
from reference.compiling import quick
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq, fsolve

from fedkoopman.systems import YNI, simulate
from fedkoopman.systems.solvers import rk4, solve
from fedkoopman.systems.yni import _linoid, _m_rates, _slow_rates

pytestmark = pytest.mark.slow  # `make test` has its laws: `tests/laws/test_system_laws.py`
STARTS = np.zeros((3, 7))
STARTS[:, 0] = [-70, -60, -50]


step = quick(jax.vmap(lambda s, x: s.step(x), (None, 0)))


def run(starts, seconds):
    """Every 1 ms, in pieces of 0.3 s: a length that other tests compile as well."""
    pieces = [starts[:, None]]
    for _ in range(round(seconds / 0.3)):
        pieces.append(simulate(YNI(), 300, initial=pieces[-1][:, -1])[:, 1:])
    return np.concatenate(pieces, axis=1)


@pytest.fixture(scope="module")
def beats():
    """0.9 s from three initial voltages, at the ends and the middle of the law."""
    return run(STARTS, 0.9)


@pytest.fixture(scope="module")
def settled(beats):
    """0.9 s after the slow gates have come to rest, which takes a few seconds."""
    return run(beats[1:2, -1], 4.5)[0, -901:]


def upstrokes(v):
    spline = CubicSpline(np.arange(len(v)), v)
    return np.array([t for t in spline.solve(-20, extrapolate=False) if spline(t, 1) > 0])


def test_it_beats_by_itself_from_every_initial_voltage(beats):
    for path in beats:
        times = upstrokes(path[:, 0])
        assert 127 <= times[0] <= 129
        np.testing.assert_allclose(np.diff(times), 340.8, rtol=0.01)


def test_it_settles_to_the_known_period_and_range(settled):
    np.testing.assert_allclose(np.diff(upstrokes(settled[:, 0])), 340.811, rtol=1e-4)
    fine = CubicSpline(np.arange(901), settled[:, 0])(np.linspace(0, 900, 30000))
    np.testing.assert_allclose([fine.min(), fine.max()], [-62.679, 20.603], atol=2e-3)
    low = [0.0488, 0.000, 3e-5, 0.0260, 0.0051, 0.2183]
    high = [0.9933, 0.9576, 0.9999, 0.9364, 0.0145, 0.4795]
    np.testing.assert_allclose(settled[:, 1:].min(0), low, atol=3e-4)
    np.testing.assert_allclose(settled[:, 1:].max(0), high, atol=3e-4)


@pytest.mark.parametrize("method", ["LSODA", "BDF"])
def test_truth_equals_scipys_stiff_solvers(beats, method):
    tolerance = 1e-11 if method == "LSODA" else 1e-9
    reference = fields.solve(fields.yni, STARTS[1], np.arange(301.0), method, tolerance)
    np.testing.assert_allclose(beats[1, :301], reference, atol=2e-4 if method == "BDF" else 1e-6)


def test_its_only_equilibrium_is_unstable():
    def at_rest(v):
        alpha, beta = fields.yni_rates(v)
        return np.array([v, *(alpha / (alpha + beta))])

    grid = np.linspace(-90, 40, 1301) + 0.01234
    net = np.array([fields.yni(at_rest(v))[0] for v in grid])
    crossings = np.flatnonzero(np.diff(np.sign(net)))
    assert len(crossings) == 1
    v = brentq(lambda v: fields.yni(at_rest(v))[0], grid[crossings[0]], grid[crossings[0] + 1])
    system = YNI()
    x = fsolve(lambda y: np.asarray(system.vector_field(jnp.asarray(y))), at_rest(v), xtol=1e-13)
    np.testing.assert_allclose(x[0], -31.60, atol=0.01)
    np.testing.assert_allclose(x[1:], [0.640, 0.0153, 0.242, 0.319, 0.0087, 0.336], atol=1e-3)
    eigenvalues = np.linalg.eigvals(jax.jacfwd(system.vector_field)(jnp.asarray(x)))
    growing = eigenvalues[eigenvalues.real > 0]
    np.testing.assert_allclose(sorted(growing.imag), [-0.0087, 0.0087], atol=1e-4)
    np.testing.assert_allclose(growing.real, 0.0281, atol=1e-4)


SINGULAR = [
    # V, which rate, its value there
    (-37.0, lambda v: _m_rates(v)[0], 10.0),
    (-35.0, lambda v: _slow_rates(v)[1][0], 0.026125 + 3.125e-2 * -35 / (1 - np.exp(35 / 4.8))),
    (0.0, lambda v: _slow_rates(v)[1][0], 0.15 + 1.045e-2 * 35 / (1 - np.exp(-14))),
    (5.0, lambda v: _slow_rates(v)[1][1], 0.010525),
    (-20.0, lambda v: _slow_rates(v)[2][0], 0.001999715),
    (-100.0, lambda v: _slow_rates(v)[3][0], 0.001496 + 4.95e-5),
    (-40.0, lambda v: _slow_rates(v)[3][1], 0.003 + 8.45e-5),
    (-40.0, lambda v: _slow_rates(v)[4][1], 0.0029925),
]


@pytest.mark.parametrize(("v", "rate", "limit"), SINGULAR)
def test_removable_singularities_have_their_limits_and_smooth_derivatives(v, rate, limit):
    # on the point, and on both sides of it within the series and beyond
    around = v + np.array([0.0, -1e-9, 1e-9, -1e-3, 1e-3, -3.0, 3.0])
    with_slopes = quick(
        jax.vmap(lambda w: (rate(w), jax.grad(rate)(w), jax.grad(jax.grad(rate))(w)))
    )
    value, slope, curvature = with_slopes(around)
    np.testing.assert_allclose(value[0], limit, rtol=1e-6)
    np.testing.assert_allclose(slope[0], (value[4] - value[3]) / 2e-3, rtol=1e-6)
    np.testing.assert_allclose(curvature[0], (slope[4] - slope[3]) / 2e-3, rtol=1e-5)
    np.testing.assert_allclose(value[1:3], value[0], rtol=1e-8)
    np.testing.assert_allclose(slope[1:3], slope[0], rtol=1e-8)
    assert np.isfinite(slope).all() and np.isfinite(curvature).all()


def test_the_steps_jacobian_is_finite_at_the_singularities():
    states = np.full((len(SINGULAR), 7), 0.5)
    states[:, 0] = [v for v, _, _ in SINGULAR]
    for mode in (jax.jacfwd, jax.jacrev):
        assert np.isfinite(quick(jax.vmap(mode(YNI().step)))(states)).all()


def test_every_rate_equals_the_twin_over_the_whole_range():
    voltage = np.linspace(-150, 100, 251) + 1e-3
    ours = quick(jax.vmap(lambda v: jnp.array([_m_rates(v), *_slow_rates(v)])))(voltage)
    twin = [np.transpose(fields.yni_rates(v)) for v in voltage]
    np.testing.assert_allclose(ours, twin, rtol=1e-11)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_safe_quotient_is_continuous_and_overflows_nowhere(dtype):
    x = jnp.concatenate([jnp.linspace(-0.2, 0.2, 4001), jnp.array([-1e4, -200.0, 200.0, 1e4])])
    x = x.astype(dtype)
    value = jax.vmap(lambda v: _linoid(v, 1.0))(x)
    wide = np.asarray(x, np.float64)
    with np.errstate(over="ignore"):
        exact = np.where(wide == 0, 1.0, wide / -np.expm1(-np.where(wide == 0, 1.0, wide)))
    tolerance = 5e-6 if dtype == jnp.float32 else 1e-14
    np.testing.assert_allclose(value, exact, rtol=tolerance, atol=1e-30)
    assert np.isfinite(jax.vmap(jax.grad(lambda v: _linoid(v, 1.0)))(x)).all()


def test_step_is_as_accurate_as_stated_on_and_near_the_beat(settled):
    on = np.abs(step(YNI(), settled[:-1]) - settled[1:]).max(0)
    assert on[0] < 0.0075 and on[1:].max() < 0.002
    off = settled[::2] + np.random.default_rng(0).normal(size=(451, 7)) * ([1.0] + [0.05] * 6)
    # an explicit solver as the judge: slower to settle m, but another method than the truth's own
    field = YNI().vector_field
    exact = quick(jax.vmap(lambda x: solve(field, x, 1.0, stiff=False)))(off)
    error = np.abs(step(YNI(), off) - exact).max(0)
    assert error[0] < 0.05 and error[1:].max() < 0.004


def test_step_converges_with_second_order(settled):
    upstroke = settled[[int(upstrokes(settled[:, 0])[0])]]
    field = YNI().vector_field
    exact = quick(lambda x: solve(field, x, 1.0, stiff=False))(upstroke[0])
    errors = [np.abs(step(YNI(substeps=n), upstroke)[0] - exact)[0] for n in (64, 128, 256)]
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2, atol=0.1)


@pytest.mark.parametrize("voltage", [-150.0, -100.0, 60.0, 100.0])
def test_step_stays_sane_at_outlying_sigma_points(settled, voltage):
    states = settled[::10].copy()
    states[:, 0] = voltage
    for factor in (0.5, 1.0, 2.0):
        after = np.asarray(step(YNI(), states * ([1.0] + [factor] * 6)))
        assert np.isfinite(after).all()
        assert (np.abs(after[:, 0]) < 1.05 * abs(voltage)).all()
        assert (np.abs(after[:, 1:]) < 2).all()


@pytest.fixture(scope="module")
def iterate():
    """600 ms of any one-step map of 1 ms."""

    def run(one, x):
        return np.asarray(
            quick(lambda y: jax.lax.scan(lambda z, _: (one(z), z), y, None, length=600)[1])(x)
        )

    return run


def test_step_iterated_beats_almost_like_the_truth(settled, iterate):
    times = upstrokes(iterate(YNI().step, settled[0])[:, 0])
    np.testing.assert_allclose(np.diff(times), 340.811, rtol=4e-3)


def test_rk4_needs_twenty_five_steps_where_the_splitting_takes_two(settled, iterate):
    field = YNI().vector_field
    fine = iterate(lambda y: rk4(field, y, 1.0, 25), settled[0])
    np.testing.assert_allclose(fine, settled[:600], atol=1e-2)
    coarse = iterate(lambda y: rk4(field, y, 1.0, 20), settled[0])
    assert not np.abs(coarse - settled[:600]).max() < 1.0  # also true of NaN
