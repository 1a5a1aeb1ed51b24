"""Vector fields in plain NumPy, written apart from the package, and SciPy's solution of them."""

import numpy as np
from scipy.integrate import solve_ivp


def van_der_pol(x, a=2.0):
    return np.array([x[1], a * (1 - x[0] ** 2) * x[1] - x[0]])


def pendulum(x, length=1.0, gravity=9.8):
    return np.array([x[1], -gravity / length * np.sin(x[0])])


def lorenz63(x, a=10.0, b=28.0, c=8 / 3):
    return np.array([a * (x[1] - x[0]), x[0] * (b - x[2]) - x[1], x[0] * x[1] - c * x[2]])


def rossler(x, a=0.2, b=0.2, c=5.7):
    return np.array([-x[1] - x[2], x[0] + a * x[1], b + x[2] * (x[0] - c)])


def lorenz96(x, forcing=8.0):
    n = len(x)
    return np.array([(x[(i + 1) % n] - x[i - 2]) * x[i - 1] - x[i] + forcing for i in range(n)])


def double_pendulum(x, l1=0.172, l2=0.143, m1=0.311, m2=0.111, g=9.8):
    """In the textbook form M(θ) θ̈ = b(θ, ω), solved numerically."""
    t1, w1, t2, w2 = x
    c, s = np.cos(t1 - t2), np.sin(t1 - t2)
    mass = np.array([[(m1 + m2) * l1**2, m2 * l1 * l2 * c], [m2 * l1 * l2 * c, m2 * l2**2]])
    force = np.array(
        [
            -m2 * l1 * l2 * s * w2**2 - (m1 + m2) * g * l1 * np.sin(t1),
            m2 * l1 * l2 * s * w1**2 - m2 * g * l2 * np.sin(t2),
        ]
    )
    a1, a2 = np.linalg.solve(mass, force)
    return np.array([w1, a1, w2, a2])


def _rise(u, k):
    """u/(1 − exp(−u/k))."""
    return k if u == 0 else u / -np.expm1(-u / k)


def _fall(u, k):
    """u/(exp(u/k) − 1)."""
    return k if u == 0 else u / np.expm1(u / k)


def yni_rates(v):
    """α and β of m, h, d, f, q, p (Yanagihara, Noma, Irisawa 1980)."""
    alpha = [
        _rise(v + 37, 10),
        1.209e-3 * np.exp(-(v + 20) / 6.534),
        1.045e-2 * _rise(v + 35, 2.5) + 3.125e-2 * _rise(v, 4.8),
        3.55e-4 * _fall(v + 20, 5.633),
        3.4e-4 * _fall(v + 100, 4.4) + 4.95e-5,
        9e-3 / (1 + np.exp(-(v + 3.8) / 9.71)) + 6e-4,
    ]
    beta = [
        40 * np.exp(-0.056 * (v + 62)),
        1 / (1 + np.exp(-(v + 30) / 10)),
        4.21e-3 * _fall(v - 5, 2.5),
        9.44e-4 * (v + 60) / (1 + np.exp(-(v + 29.5) / 4.16)),
        5e-4 * _rise(v + 40, 6) + 8.45e-5,
        2.25e-4 * _fall(v + 40, 13.3),
    ]
    return np.array(alpha), np.array(beta)


def yni(x):
    v, m, h, d, f, q, p = x
    i_na = 0.5 * m**3 * h * (v - 30)
    i_s = 12.5 * (0.95 * d + 0.05) * (0.95 * f + 0.05) * (np.exp((v - 30) / 15) - 1)
    i_h = 0.4 * q * (v + 25)
    i_k = 0.7 * p * (np.exp(0.0277 * (v + 90)) - 1) / np.exp(0.0277 * (v + 40))
    i_l = 0.8 * (1 - np.exp(-(v + 60) / 20))
    alpha, beta = yni_rates(v)
    gates = np.array([m, h, d, f, q, p])
    return np.array([-(i_na + i_s + i_h + i_k + i_l), *(alpha * (1 - gates) - beta * gates)])


def solve(field, x0, times, method="DOP853", tolerance=1e-12):
    """States at `times`, the first of which is the initial time."""
    solution = solve_ivp(
        lambda t, x: field(x),
        (times[0], times[-1]),
        x0,
        method=method,
        t_eval=times,
        rtol=tolerance,
        atol=tolerance,
    )
    assert solution.success
    return solution.y.T
