"""Model predictive control: at every sample the best plan over a horizon; its first input is used.

    min  Σ_k (x_k − r_k)ᵀ Q (x_k − r_k) + (u_k − u*)ᵀ R (u_k − u*)
    with u_min ≤ u_k ≤ u_max,  |u_k − u_{k−1}| ≤ du_max,  x_min − e ≤ x_k ≤ x_max + e

How far states leave their bounds, e, costs `softening` for each unit: an exact penalty, so that
bounds hold where they can, and there is a plan where they cannot. Bounds of inputs always hold.
`control.program` is the quadratic program.

A model that is linear in the plan needs one quadratic program per sample. Otherwise (bilinear, or
lifted anew at every step) the program is that of the model linearised along the plan, a few times,
each step shortened until the true cost falls; the last plan, moved on by a sample, is the first
guess. Plans of such models may end in a local optimum: every `explore` samples, constant plans are
tried as beginnings too.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.control.horizon import Horizon
from fedkoopman.control.program import Limits, Matrices, Program
from fedkoopman.control.recent import Recent, at_rest, with_input, with_state
from fedkoopman.control.regulator import bounds, weight
from fedkoopman.control.targets import check_driven, target
from fedkoopman.errors import InputError, short
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.systems.checks import check_count, check_positive, finite_array, number

__all__ = ["MPC", "Plan"]

Array = NDArray[np.float64]

MOST = 10_000
"""Inputs and states of a plan; programs are dense."""
TRIES = 6
"""Halvings of a step before it is given up."""
EXPLORING = 10
"""Linearisations from a new beginning."""


class Plan(NamedTuple):
    """A plan, and what the model says that it leads to."""

    inputs: Array
    """(H, m)."""
    states: Array
    """(H, d)."""
    cost: float
    excess: float
    """How far states leave their bounds at most."""


class Memory(NamedTuple):
    """What is kept from sample to sample."""

    plan: Array
    used: Array
    """The input that acts now."""
    samples: int
    recent: Recent


@dataclass(frozen=True, eq=False)
class MPC:
    """A predictive `Controller`.

    Attributes:
        model: of the system, with inputs.
        reference: the state to be held (d,), or states to be followed, (T, d), the first one after
            the first sample; the last one is held.
        horizon: H, samples that a plan reaches.
        Q, R: weights of states and inputs: a number, a diagonal or a matrix.
        terminal: weight of the last state of a plan; None: Q.
        u_min, u_max, x_min, x_max, du_max: bounds, one for all or one each.
        softening: what one unit beyond a state's bound costs.
        input: about which inputs are weighed, (m,); None: what holds the reference.
        relift: whether predictions are lifted anew at every step; None: where the model's own
            forecasts are, after however many steps.
        iterations: linearisations per sample, of models that need some.
        explore: samples after which other beginnings are tried; 0: never.
    """

    model: Fitted
    reference: Any
    horizon: int = 20
    Q: Any = 1.0
    R: Any = 0.1
    terminal: Any = None
    u_min: Any = -np.inf
    u_max: Any = np.inf
    x_min: Any = -np.inf
    x_max: Any = np.inf
    du_max: Any = np.inf
    softening: float = 1e4
    input: Any = None
    relift: bool | None = None
    iterations: int = 2
    explore: int = 0
    _program: Program = field(init=False, repr=False)

    def __post_init__(self) -> None:
        model = check_driven(self.model)
        d, m = model.learned_.architecture.state_dim, model.n_inputs_
        steps = check_count(self.horizon, "horizon")
        goal = np.atleast_2d(finite_array(self.reference, "reference"))
        if goal.ndim != 2 or goal.shape[1] != d or not len(goal):
            raise InputError(
                f"reference has shape {np.shape(self.reference)}: give ({d},) or (T, {d})"
            )
        softening = float(number(self.softening, "softening"))
        check_positive(softening, "softening")
        Q = weight(self.Q, d, "Q")
        u_min, u_max = bounds(self.u_min, self.u_max, m, "u_min", "u_max")
        x_min, x_max = bounds(self.x_min, self.x_max, d, "x_min", "x_max")
        _, du_max = bounds(-np.inf, self.du_max, m, "", "du_max")
        if (du_max < 0).any():
            raise InputError(f"du_max is {du_max.min():g}: give changes of at least 0")
        if steps * (m + d) > MOST:
            raise InputError(
                f"horizon is {steps}, a program of {steps * (m + d):,} numbers: give at most "
                f"{MOST // (m + d)}"
            )
        if not isinstance(self.relift, bool | np.bool_ | None):
            raise InputError(f"relift is {short(self.relift)}: give True, False or None")
        held = target(model, goal[-1], self.input).input
        values = {
            "horizon": steps,
            "reference": goal,
            "Q": Q,
            "R": weight(self.R, m, "R", above=True),
            "terminal": Q if self.terminal is None else weight(self.terminal, d, "terminal"),
            "u_min": u_min,
            "u_max": u_max,
            "x_min": x_min,
            "x_max": x_max,
            "du_max": du_max,
            "softening": softening,
            "input": np.clip(held, u_min, u_max),
            "relift": bool(model.relift_) if self.relift is None else bool(self.relift),
            "iterations": check_count(self.iterations, "iterations"),
            "explore": check_count(self.explore, "explore", least=0),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        weights = np.stack([self.Q] * (self.horizon - 1) + [self.terminal])
        limits = Limits(u_min, u_max, x_min, x_max, du_max)
        program = Program(weights, self.R, self.input, limits, softening)
        object.__setattr__(self, "_program", program)

    # A controller

    def begin(self) -> Memory:
        """Before the first sample; the input about which inputs are weighed acts."""
        plan = np.tile(self.input, (self.horizon, 1))
        return Memory(plan, self.input, 0, at_rest(self.model, self.input))

    def act(self, state: Memory, x: Any, past: Any = None) -> tuple[Array, Memory]:
        """The first input of the best plan, and the plan moved on by a sample."""
        window, recent = with_state(self.model, state.recent, x, past)
        found = self._plan(window, state)
        u, moved = found.inputs[0], np.vstack([found.inputs[1:], found.inputs[-1:]])
        return u, Memory(moved, u, state.samples + 1, with_input(recent, u))

    def plan(self, x: Any, state: Memory | None = None, *, past: Any = None) -> Plan:
        """The best plan from a state.

        Arguments:
            x: (d,), or with delays a window (μ, d).
            state: what is remembered; None: nothing.
            past: with delays, the inputs between the states of the window.
        """
        memory = self.begin() if state is None else state
        return self._plan(with_state(self.model, memory.recent, x, past)[0], memory)

    def _plan(self, window: Array, memory: Memory) -> Plan:
        start = self._predict.start(window)
        goal = self._goal(memory.samples)
        if self._predict.linear:
            return self._linear(start, goal, memory.used)
        beginnings = [(memory.plan, self.iterations)]
        if self.explore and memory.samples % self.explore == 0:
            finite = [edge for edge in (self.u_min, self.u_max) if np.isfinite(edge).all()]
            beginnings += [
                (np.tile(edge, (self.horizon, 1)), EXPLORING) for edge in (*finite, self.input)
            ]
        plans = [
            self._improved(
                start, goal, memory.used, self._program.limits.allowed(plan, memory.used), times
            )
            for plan, times in beginnings
        ]
        return min(plans, key=lambda one: one.cost)

    def _goal(self, samples: int) -> Array:
        """The references of the horizon, (H, d)."""
        last = len(self.reference) - 1
        return self.reference[np.minimum(samples + np.arange(self.horizon), last)]

    # Plans

    @cached_property
    def _predict(self) -> Horizon:
        return Horizon(self.model, bool(self.relift), self.horizon)

    def _linear(self, start: Array, goal: Array, used: Array) -> Plan:
        """One program: with a plan of zeros as its beginning, its matrices are always the same."""
        nothing = np.zeros((self.horizon, len(self.input)))
        states = self._predict.states(start, nothing)
        inputs = self._program.step(self._fixed, states, nothing, goal, used)
        moved = (self._fixed.slopes @ inputs.ravel()).reshape(states.shape)
        return self._told(inputs, states + moved, goal)

    @cached_property
    def _fixed(self) -> Matrices:
        """Of a model that is linear in the plan."""
        nothing = np.zeros((self.horizon, len(self.input)))
        return self._program.matrices(
            self._predict.path(np.zeros(self._predict.size), nothing).slopes
        )

    def _improved(
        self, start: Array, goal: Array, used: Array, plan: Array, iterations: int
    ) -> Plan:
        """A plan made better by so many linearisations."""
        best = self._told(plan, self._predict.states(start, plan), goal)
        for _ in range(iterations):
            states, slopes = self._predict.path(start, best.inputs)
            if not (np.isfinite(states).all() and np.isfinite(slopes).all()):
                break
            matrices = self._program.matrices(slopes)
            step = self._program.step(matrices, states, best.inputs, goal, used)
            for halving in range(TRIES):
                tried = self._program.limits.allowed(best.inputs + step / 2**halving, used)
                found = self._told(tried, self._predict.states(start, tried), goal)
                if found.cost < best.cost:
                    break
            else:
                break
            gained, best = best.cost - found.cost, found
            if gained < 1e-9 * (1 + best.cost):
                break
        return best

    def _told(self, inputs: Array, states: Array, goal: Array) -> Plan:
        """A plan with its cost."""
        apart, push = states - goal, inputs - self.input
        with np.errstate(over="ignore", invalid="ignore"):
            cost = np.einsum("ki,kij,kj", apart, self._program.weights, apart)
            cost += np.einsum("ki,ij,kj", push, self.R, push)
            beyond = np.maximum(np.maximum(self.x_min - states, states - self.x_max), 0.0)
            cost += self.softening * beyond.sum()
        finite = np.isfinite(cost)
        return Plan(inputs, states, float(cost) if finite else np.inf, float(beyond.max()))
