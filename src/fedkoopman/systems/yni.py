"""The Yanagihara–Noma–Irisawa model of a sinoatrial node cell, seven states, stiff."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.solvers import Input, Number

Scalar = Float[Array, ""]
Rates = tuple[Scalar, Scalar]


class YNI(System):
    """C V̇ = −(I_Na + I_s + I_h + I_K + I_l), ẋ = α_x(V)(1 − x) − β_x(V) x for x = m, h, d, f, q, p.

    Yanagihara, Noma, Irisawa, Jpn. J. Physiol. 30 (1980) 841–857, with the constants on which three
    published codes agree (the notes of `fedkoopman reproduce fig-yni` name what differs elsewhere).
    V is in mV, time in ms, currents in µA/cm². The model beats by itself every 340.8 ms. Initial
    states are the paper's: V uniform on [−70, −50], all gates 0.

    **The one-step map** is not RK4: the gate m relaxes within 0.016–0.05 ms, so RK4 is unstable
    above steps of 0.04 ms, and at a filter's outlying sigma points (V = −100) even at 0.033 ms.
    Instead V and the gates are split (Strang). With V frozen each gate equation is linear and is
    solved exactly by an exponential; with the gates frozen V̇ = F(V) is one scalar equation that
    falls in V, and takes a linearly implicit midpoint, V + h F/(1 − h F'/2). Both are stable for
    every h and of second order. One step of h is

        m over h/2 · V over h/2 · h, d, f, q, p over h · V over h/2 · m over h/2,

    symmetric, hence of second order. m has its place at the ends because it follows V at once: with
    m among the other gates it lags V by h/2 and is wrong by 0.008 in place of 0.0015.

    `step_tolerance` holds along the beat for all components (V in mV, where 0.0063 was measured);
    from states that are off by 1 mV and by 0.05 in the gates, V is within 0.05 mV. Iterated, the
    map beats every 341.65 ms.

    Arguments:
        g_na, g_s, g_h, g_k, g_l: scales of the five currents (0.5, 12.5, 0.4, 0.7, 0.8).
        capacitance: C in µF/cm².
        dt: the sampling interval in ms.
    """

    g_na: Number = 0.5
    g_s: Number = 12.5
    g_h: Number = 0.4
    g_k: Number = 0.7
    g_l: Number = 0.8
    capacitance: Number = 1.0
    dt: Number = 1.0
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("V", "m", "h", "d", "f", "q", "p")
    units: ClassVar[tuple[str, ...]] = ("mV", "1", "1", "1", "1", "1", "1")
    parameter_names: ClassVar[tuple[str, ...]] = ("g_na", "g_s", "g_h", "g_k", "g_l", "capacitance")
    positive_parameters: ClassVar[tuple[str, ...]] = ("capacitance",)
    largest_step: ClassVar[float] = 0.5
    step_tolerance: ClassVar[float] = 1e-2

    @property
    def stiff(self) -> bool:
        """True: the truth is solved by the implicit Kvaerno5."""
        return True

    def vector_field(self, x: Float[Array, " 7"], u: Input = None) -> Float[Array, " 7"]:
        """The time derivative at `x`."""
        v, gates = x[0], [x[i] for i in range(1, 7)]
        rates = [_m_rates(v), *_slow_rates(v)]
        opening = [a * (1 - g) - b * g for (a, b), g in zip(rates, gates, strict=True)]
        return jnp.stack([self._voltage_rate(v, *gates)[0], *opening])

    def step(
        self, x: Float[Array, " 7"], u: Input = None, dt: Number | None = None
    ) -> Float[Array, " 7"]:
        """The one-step map: symmetric splitting with exact gates (see the class)."""
        x = jnp.asarray(x)
        dtype = jnp.result_type(x, float)
        h = jnp.asarray(self.dt if dt is None else dt, dtype) / self.substeps

        def voltage(v: Scalar, m: Scalar, slow: list[Scalar]) -> Scalar:
            rate, slope = self._voltage_rate(v, m, *slow)
            return v + h / 2 * rate / (1 - h / 4 * slope)

        def split(_: Array, y: Float[Array, " 7"]) -> Float[Array, " 7"]:
            v, slow = y[0], [y[i] for i in range(2, 7)]
            m = _relax(y[1], _m_rates(v), h / 2)
            v = voltage(v, m, slow)
            slow = [_relax(g, r, h) for g, r in zip(slow, _slow_rates(v), strict=True)]
            v = voltage(v, m, slow)
            m = _relax(m, _m_rates(v), h / 2)
            return jnp.stack([v, m, *slow]).astype(dtype)

        end: Array = lax.fori_loop(0, self.substeps, split, x.astype(dtype))
        return end

    @property
    def initial_box(self) -> Box:
        """V uniform on [−70, −50], all gates 0."""
        gates = (0.0,) * 6
        return (-70.0, *gates), (-50.0, *gates)

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 7"]:
        """A draw from the initial box."""
        return uniform(key, *self.initial_box)

    def _voltage_rate(
        self, v: Scalar, m: Scalar, h: Scalar, d: Scalar, f: Scalar, q: Scalar, p: Scalar
    ) -> tuple[Scalar, Scalar]:
        """V̇, and its derivative in V at fixed gates."""
        sodium = self.g_na * m * m * m * h
        inward = self.g_s * (0.95 * d + 0.05) * (0.95 * f + 0.05)
        funny = self.g_h * q
        outward = self.g_k * p
        grown = inward * jnp.exp((v - 30) / 15)
        rectified = outward * jnp.exp(-0.0277 * (v + 40))
        leak = self.g_l * jnp.exp(-(v + 60) / 20)
        current = (
            sodium * (v - 30)
            + (grown - inward)
            + funny * (v + 25)
            + (math.exp(1.385) * outward - rectified)
            + (self.g_l - leak)
        )
        conductance = sodium + grown / 15 + funny + 0.0277 * rectified + leak / 20
        return -current / self.capacitance, -conductance / self.capacitance


def _m_rates(v: Scalar) -> Rates:
    return _linoid(v + 37, 10.0), 40 * jnp.exp(-0.056 * (v + 62))


def _slow_rates(v: Scalar) -> list[Rates]:
    """(α, β) of h, d, f, q, p in 1/ms."""
    return [
        (1.209e-3 * jnp.exp(-(v + 20) / 6.534), sigmoid((v + 30) / 10)),
        (
            1.045e-2 * _linoid(v + 35, 2.5) + 3.125e-2 * _linoid(v, 4.8),
            4.21e-3 * _linoid(5 - v, 2.5),
        ),
        (3.55e-4 * _linoid(-20 - v, 5.633), 9.44e-4 * (v + 60) * sigmoid((v + 29.5) / 4.16)),
        (3.4e-4 * _linoid(-100 - v, 4.4) + 4.95e-5, 5e-4 * _linoid(v + 40, 6.0) + 8.45e-5),
        (9e-3 * sigmoid((v + 3.8) / 9.71) + 6e-4, 2.25e-4 * _linoid(-40 - v, 13.3)),
    ]


def _relax(gate: Scalar, rates: Rates, h: Scalar) -> Scalar:
    """The exact solution of ẋ = α (1 − x) − β x after h at constant α, β."""
    alpha, beta = rates
    speed = alpha + beta
    rest = alpha / speed
    return rest + (gate - rest) * jnp.exp(-h * speed)


def _linoid(v: Scalar, width: float) -> Scalar:
    """v / (1 − exp(−v/width)), with its limit `width` and finite derivatives at v = 0.

    With y = |v/width| this is width (max(v/width, 0) + y e^{−y}/(1 − e^{−y})), which overflows
    nowhere. Near 0 a series replaces it (Bernoulli numbers; remainder below 1e-17 for y < 0.1); the
    inner `where` keeps the other branch away from 0/0, whose derivative would be NaN even where it
    is not chosen.
    """
    x = v / width
    near = jnp.abs(x) < 0.1
    y = jnp.where(near, 1.0, jnp.abs(x))
    decay = jnp.exp(-y)
    x2 = x * x
    series = 1 + x / 2 + x2 / 12 * (1 - x2 / 60 * (1 - x2 / 42 * (1 - x2 / 40)))
    return width * jnp.where(near, series, jnp.maximum(x, 0.0) + y * decay / (1 - decay))


SYSTEM = YNI
