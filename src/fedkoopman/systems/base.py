"""What a system is: a vector field, its one-step map, its truth, its initial-state law."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.systems.checks import check_count, check_indices, check_positive, number
from fedkoopman.systems.solvers import Input, Number, State, rk4, solve

MOST_SUBSTEPS = 10_000
"""Of one sampling interval: with more, a wrong unit of time would keep the filter busy for days."""

Box = tuple[Sequence[Number], Sequence[Number]]
"""Lows and highs of a box of states."""

# Not typing.Self, which the run-time checker of the tests cannot see through.
Same = TypeVar("Same", bound="System")


class System(eqx.Module):
    """A dynamical system ẋ = f(x, u), or x' = F(x, u), sampled every `dt`.

    States are single vectors (dim,): callers batch with `jax.vmap`. Parameters and `dt` are leaves
    of the pytree, so that they may be traced, batched and differentiated; all else is static.

    A subclass declares `names`, `units`, `dt`, `substeps`, `angles` and `parameter_names`, and
    gives `vector_field` and `initial_state`.
    """

    if TYPE_CHECKING:
        # mypy takes AbstractVar for a field of the base class, which would come first in __init__.
        @property
        def dt(self) -> Number: ...
        @property
        def names(self) -> tuple[str, ...]: ...
        @property
        def units(self) -> tuple[str, ...]: ...
        @property
        def angles(self) -> tuple[int, ...]: ...
        @property
        def substeps(self) -> int: ...
    else:
        dt: eqx.AbstractVar[Number]
        """The sampling interval."""
        names: eqx.AbstractVar[tuple[str, ...]]
        """One name per state component."""
        units: eqx.AbstractVar[tuple[str, ...]]
        """One unit per state component; "1" where it has none."""
        angles: eqx.AbstractVar[tuple[int, ...]]
        """Indices of the components that wrap at 2π."""
        substeps: eqx.AbstractVar[int]
        """Into how many steps `step` divides the interval; by `largest_step` unless given."""

    parameter_names: ClassVar[tuple[str, ...]] = ()
    positive_parameters: ClassVar[tuple[str, ...]] = ()
    largest_step: ClassVar[float] = math.inf
    """The longest step of the one-step map for which `step_tolerance` was measured."""
    step_tolerance: ClassVar[float] = math.nan
    """Largest difference, in any component, between `step` and the truth over one default `dt`,
    along trajectories from the initial-state law (the tests measure it)."""

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {}
        for name in ("dt", *self.parameter_names):
            checked[name] = number(getattr(self, name), name)
            if name in ("dt", *self.positive_parameters):
                check_positive(checked[name], name)
        substeps: int | None = self.substeps
        if substeps is None:
            if isinstance(checked["dt"], jax.core.Tracer):
                raise InputError("dt is traced, so substeps cannot follow from it: give substeps")
            steps = checked["dt"] / self.largest_step
            if steps > MOST_SUBSTEPS:
                raise InputError(
                    f"dt is {checked['dt']:g}, which takes {steps:.3g} steps of "
                    f"{self.largest_step:g}: give at most {MOST_SUBSTEPS * self.largest_step:g}, "
                    "and check the unit of time"
                )
            substeps = max(1, math.ceil(steps - 1e-9))
        checked["substeps"] = check_count(substeps, "substeps")
        checked["angles"] = check_indices(self.angles, self.dim, "angles", "state")
        for name, value in checked.items():
            setattr(self, name, value)

    @property
    def dim(self) -> int:
        """The number of state components."""
        return len(self.names)

    @property
    def input_dim(self) -> int:
        """The number of known inputs u; 0 when the system takes none."""
        return 0

    @property
    def initial_box(self) -> Box | None:
        """Lows and highs of the box on which initial states are uniform; None for another law."""
        return None

    @property
    def stiff(self) -> bool:
        """Whether the truth is solved by the implicit Kvaerno5."""
        return False

    @property
    def parameters(self) -> dict[str, Number]:
        """The physical parameters by name."""
        return {name: getattr(self, name) for name in self.parameter_names}

    def with_parameters(self: Same, **values: Number) -> Same:
        """The same system with some parameters replaced; values may be traced.

        Arguments:
            values: parameter name = new value. An unknown name is an `InputError`.
        """
        for name in values:
            if name not in self.parameters:
                raise unknown_name("parameter", name, self.parameters)
        checked = {name: number(value, name) for name, value in values.items()}
        for name in set(checked) & set(self.positive_parameters):
            check_positive(checked[name], name)
        return self._replace(checked)

    def with_values(self: Same, dt: Number | None = None, **values: Number) -> Same:
        """The same system with another sampling interval, and some parameters replaced."""
        changed = self.with_parameters(**values)
        if dt is None:
            return changed
        interval = number(dt, "dt")
        check_positive(interval, "dt")
        new: Same = eqx.tree_at(lambda s: s.dt, changed, interval)
        return new

    def _replace(self: Same, values: Mapping[str, Number]) -> Same:
        if not values:
            return self
        new: Same = eqx.tree_at(
            lambda s: tuple(getattr(s, name) for name in values), self, tuple(values.values())
        )
        return new

    @abstractmethod
    def vector_field(self, x: State, u: Input = None) -> State:
        """The time derivative ẋ at state `x` under the input `u`."""

    @abstractmethod
    def initial_state(self, key: PRNGKeyArray) -> State:
        """A draw from the initial-state law."""

    def step(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """The one-step map that filters use: RK4 in `substeps` equal steps.

        Differentiable in forward and reverse mode, and batchable.

        Arguments:
            x: the state.
            u: the input, held over the interval.
            dt: the interval; None takes the system's own. `substeps` does not follow it: for
                gaps much longer than the system's own dt construct the system with more.
        """
        return rk4(
            lambda y: self.vector_field(y, u), x, self.dt if dt is None else dt, self.substeps
        )

    def flow(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """The truth over one interval: Dopri5, or Kvaerno5 where `stiff`, at `TRUTH_TOLERANCE`.

        Arguments: as `step`. A failed solve gives NaN.
        """
        interval = self.dt if dt is None else dt
        return solve(lambda y: self.vector_field(y, u), x, interval, stiff=self.stiff)

    @staticmethod
    def from_function(
        f: Callable[..., Any],
        dim: int,
        dt: float,
        names: Sequence[str] | None = None,
        initial: Any = None,
        stiff: bool = False,
        *,
        units: Sequence[str] | None = None,
        parameters: Mapping[str, float] | None = None,
        angles: Sequence[int] = (),
        input_dim: int = 0,
        substeps: int = 1,
    ) -> "System":
        """A system of the user's own: ẋ = f(x), written with `jax.numpy`.

        Arguments:
            f: f(x); f(x, u) with `input_dim` > 0; parameters follow as keywords.
            dim: the number of state components.
            dt: the sampling interval.
            names: one per component; None names them x1, x2, …
            units: one per component; None leaves them without.
            initial: the initial-state law: None (uniform on [−1, 1]), one state (dim,), a box
                (2, dim) of lows and highs, or a function from a JAX key to a state.
            stiff: solve both truth and one-step map with the implicit Kvaerno5.
            parameters: named values handed to f as keywords.
            angles: indices of components that wrap at 2π.
            input_dim: the number of known inputs.
            substeps: RK4 steps per interval in the one-step map.
        """
        from fedkoopman.systems.user import FunctionSystem, declare

        return declare(
            FunctionSystem, f, dim, dt, names=names, units=units, initial=initial, stiff=stiff,
            parameters=parameters, angles=angles, input_dim=input_dim, substeps=substeps,
        )  # fmt: skip

    @staticmethod
    def from_map(
        f: Callable[..., Any],
        dim: int,
        dt: float = 1.0,
        *,
        names: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
        initial: Any = None,
        parameters: Mapping[str, float] | None = None,
        angles: Sequence[int] = (),
        input_dim: int = 0,
    ) -> "System":
        """A discrete-time system of the user's own: x' = F(x), written with `jax.numpy`.

        Arguments: as `from_function`; `dt` only labels the time axis.
        """
        from fedkoopman.systems.user import MapSystem, declare

        return declare(
            MapSystem, f, dim, dt, names=names, units=units, initial=initial, stiff=False,
            parameters=parameters, angles=angles, input_dim=input_dim, substeps=1,
        )  # fmt: skip


def uniform(key: PRNGKeyArray, low: Sequence[Number], high: Sequence[Number]) -> State:
    """A draw from the uniform law on a box."""
    a, b = jnp.asarray(low, float), jnp.asarray(high, float)
    return a + (b - a) * jax.random.uniform(key, a.shape)
