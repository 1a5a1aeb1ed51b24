"""The quadratic program of one linearisation of predictive control.

Its variables are a step v of the plan and e, how far states leave their bounds:

    min  Σ_k (x_k + (S v)_k − r_k)ᵀ Q (…) + (u_k + v_k − u*)ᵀ R (…) + softening Σ e
    with u_min ≤ u_k + v_k ≤ u_max,  |changes of u + v| ≤ du_max,  x_min − e ≤ x + S v ≤ x_max + e

S are the slopes of the states by the plan, so no state is a variable (condensed form).

Bounds of states mostly hold, and then e is 0. So the program without e is tried first; it is far
smaller. Its solution is that of the whole program if no bound of a state presses with more than
`softening` (the penalty is exact). Otherwise, and after a sample in which some e was not 0, the
whole program is solved.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.control.qp import Quadratic
from fedkoopman.errors import ComputationError

__all__ = ["Limits", "Matrices", "Program"]

Array = NDArray[np.float64]


class Limits(NamedTuple):
    """Bounds of inputs (m,), of states (d,) and of changes of inputs (m,)."""

    u_min: Array
    u_max: Array
    x_min: Array
    x_max: Array
    du_max: Array

    def allowed(self, plan: Array, used: Array) -> Array:
        """A plan made to keep the bounds of inputs and of their changes, exactly.

        Arguments:
            plan: (H, m).
            used: the input before it, (m,).
        """
        found, before = np.clip(plan, self.u_min, self.u_max), used
        if not np.isfinite(self.du_max).any():
            return found
        for k, u in enumerate(found):
            # The bounds come last: they hold even where the input that acts is outside of them.
            u = np.clip(u, before - self.du_max, before + self.du_max)
            found[k] = before = np.clip(u, self.u_min, self.u_max)
        return found


class Matrices(NamedTuple):
    """What of a program stays the same where the slopes do."""

    slopes: Array
    """S, (H d, H m)."""
    hessian: Array
    rows: Array
    firm: tuple[Array, Array]
    """Hessian and rows without e."""


@dataclass(frozen=True, eq=False)
class Program:
    """The programs of one controller, on one kept solver.

    Attributes:
        weights: Q of every state of a plan, (H, d, d).
        R: of the inputs, (m, m).
        input: u*, about which inputs are weighed, (m,).
        limits: of inputs and states.
        softening: what one unit beyond a state's bound costs.
    """

    weights: Array
    R: Array
    input: Array
    limits: Limits
    softening: float
    _solvers: tuple[Quadratic, Quadratic] = field(
        default_factory=lambda: (Quadratic(), Quadratic()), init=False, repr=False
    )
    _yielding: list[bool] = field(default_factory=lambda: [False], init=False, repr=False)
    """Whether a state was beyond its bounds last time: which program is the better guess."""

    @property
    def horizon(self) -> int:
        """H."""
        return len(self.weights)

    def matrices(self, slopes: Array) -> Matrices:
        """Of the program for these slopes."""
        d, soft = self.weights.shape[1], int(self._bounded.sum())
        weighed = (self.weights @ slopes.reshape(self.horizon, d, -1)).reshape(slopes.shape)
        size = slopes.shape[1]
        hessian = np.zeros((size + soft, size + soft))
        hessian[:size, :size] = 2 * (slopes.T @ weighed + np.kron(np.eye(self.horizon), self.R))
        hessian[size:, size:] = np.eye(soft) * 1e-6 * self.softening
        # Of x_k + e ≥ x_min, of x_k − e ≤ x_max, and of changes of the input; the finite ones.
        bounded, excess = slopes[self._bounded], np.eye(soft)
        least, most = (np.isfinite(edge) for edge in self._edges)
        above, below = np.hstack([bounded, excess]), np.hstack([bounded, -excess])
        changes = np.hstack([self._changes, np.zeros((len(self._changes), soft))])
        rows = np.vstack([above[least], below[most], changes])
        hessian = (hessian + hessian.T) / 2
        firm = hessian[:size, :size].copy(), rows[:, :size].copy()
        return Matrices(slopes, hessian, rows, firm)

    def step(
        self, matrices: Matrices, states: Array, plan: Array, goal: Array, used: Array
    ) -> Array:
        """The best step of a plan (H, m), from the states (H, d) that it leads to.

        Arguments:
            goal: r, (H, d).
            used: the input before the plan, (m,).
        """
        vectors = self.vectors(matrices, states, plan, goal, used)
        found = None if self._yielding[0] else self._firm(matrices, vectors)
        if found is None:
            found = self._soft(matrices, vectors)
        # Bounds hold exactly, whatever the solver's accuracy.
        return self.limits.allowed(plan + found.reshape(plan.shape), used) - plan

    def _firm(self, matrices: Matrices, vectors: tuple[Array, ...]) -> Array | None:
        """The best step with all bounds held, if that is the best of all."""
        slope, low, high, g_low, g_high = vectors
        size = matrices.slopes.shape[1]
        hessian, rows = matrices.firm
        found = self._solvers[0].solve(
            hessian, slope[:size], low[:size], high[:size], rows, g_low, g_high
        )
        if isinstance(found, str):
            return None
        # A state's two bounds never press both.
        of_states = len(rows) - len(self._changes)
        return found.v if (found.pressed[:of_states] < self.softening).all() else None

    def _soft(self, matrices: Matrices, vectors: tuple[Array, ...]) -> Array:
        """The best step, bounds of states held as far as they can be."""
        slope, low, high, g_low, g_high = vectors
        found = self._solvers[1].solve(
            matrices.hessian, slope, low, high, matrices.rows, g_low, g_high
        )
        if isinstance(found, str):
            raise ComputationError(
                f"the quadratic program was not solved ({found}): the bounds contradict each "
                "other, or the model's predictions are too large; widen the bounds, or give a "
                "shorter horizon"
            )
        size = matrices.slopes.shape[1]
        self._yielding[0] = bool((found.v[size:] > 1e-6).any())
        return found.v[:size]

    def vectors(
        self, matrices: Matrices, states: Array, plan: Array, goal: Array, used: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """What is handed to the solver besides matrices: slope of the cost, bounds of variables,
        bounds of rows."""
        u_min, u_max, _, _, du_max = self.limits
        weighed = np.einsum("kij,kj->ki", self.weights, states - goal).ravel()
        push = ((plan - self.input) @ self.R).ravel()
        soft = int(self._bounded.sum())
        slope = 2 * (matrices.slopes.T @ weighed + push)
        slope = np.concatenate([slope, np.full(soft, self.softening)])
        low = np.concatenate([(u_min - plan).ravel(), np.zeros(soft)])
        high = np.concatenate([(u_max - plan).ravel(), np.full(soft, np.inf)])
        least, most = (edge - states.ravel()[self._bounded] for edge in self._edges)
        least, most = least[np.isfinite(least)], most[np.isfinite(most)]
        first = np.zeros_like(plan)
        first[0] = used
        chosen = np.tile(np.isfinite(du_max), self.horizon)
        changed = self._changes @ plan.ravel() - first.ravel()[chosen]
        du = np.tile(du_max, self.horizon)[chosen]
        above, below = np.full(len(least), np.inf), np.full(len(most), -np.inf)
        g_low = np.concatenate([least, below, -du - changed])
        g_high = np.concatenate([above, most, du - changed])
        return slope, low, high, g_low, g_high

    @cached_property
    def _bounded(self) -> NDArray[np.bool_]:
        """Which states have bounds, for all steps, (H d,)."""
        some = np.isfinite(self.limits.x_min) | np.isfinite(self.limits.x_max)
        return np.tile(some, self.horizon)

    @cached_property
    def _edges(self) -> tuple[Array, Array]:
        """Bounds of those states of a plan that have some."""
        low, high = (
            np.tile(edge, self.horizon)[self._bounded]
            for edge in (self.limits.x_min, self.limits.x_max)
        )
        return low, high

    @cached_property
    def _changes(self) -> Array:
        """From a plan to its changes, the first one against the input that acts; those bounded."""
        m = len(self.input)
        matrix = np.eye(self.horizon * m) - np.eye(self.horizon * m, k=-m)
        return matrix[np.tile(np.isfinite(self.limits.du_max), self.horizon)]
