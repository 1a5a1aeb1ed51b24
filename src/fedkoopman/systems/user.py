"""Systems of the user's own, from a vector field or from a map."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from fedkoopman.errors import InputError
from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.checks import check_dim, number
from fedkoopman.systems.solvers import Input, Number, State, solve
from fedkoopman.user_code import calling, finished, place_of, plain_function

Same = TypeVar("Same", bound="_UserSystem")

# Of the stiff one-step map, by precision: far below any process noise, and above rounding.
STIFF_STEP_TOLERANCE = {"float64": 1e-6, "float32": 1e-4}


class Closure(eqx.Module):
    """A user's callable as a pytree: the arrays it holds are leaves, all else is static.

    So a network can be a vector field, and a plain function can go through `jax.jit` in a system.
    """

    arrays: Any
    rest: Any = eqx.field(static=True)

    def __init__(self, f: Callable[..., Any], name: str):
        plain_function(f, name, f"{name}(x)")
        self.arrays, self.rest = eqx.partition(f, lambda a: isinstance(a, jax.Array | np.ndarray))
        try:
            hash(self.rest)
        except TypeError:
            raise InputError(
                f"{name} is an unhashable {type(f).__name__}: give a function or an equinox module"
            ) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function."""
        function = eqx.combine(self.arrays, self.rest)
        with calling(function, f"{getattr(function, '__name__', 'your function')} failed"):
            return finished(function(*args, **kwargs))


def check_function(
    f: Callable[..., Any], name: str, shape: tuple[int, ...], *args: Any, **kwargs: Any
) -> None:
    """Trace a function without running it; its result must be real numbers of that shape."""
    given = ", ".join(str(getattr(a, "shape", a)) for a in args)
    inner = getattr(f, "h", f)  # of a sensor
    function = eqx.combine(inner.arrays, inner.rest) if isinstance(inner, Closure) else inner
    failed = f"{name} failed on arguments of shape {given}"
    # In float64: JAX remembers a closed-over NumPy array in the precision it was first traced
    # in, and a float32 trace here would stay with the float64 estimation later.
    remedy = "write it with jax.numpy, for one state, and let it keep no array"
    with jax.enable_x64(True), calling(function, failed, remedy):
        first, result = _traced(f, *args, **kwargs)
        _check_kept(first, _traced(f, *args, **kwargs)[0])
    place = f" ({found})" if (found := place_of(function)) else ""
    if not isinstance(result, jax.ShapeDtypeStruct):
        raise InputError(
            f"{name} returned a {type(result).__name__} where an array of shape {shape} is "
            f"needed{place}: end it with jnp.stack([...])"
        )
    if result.shape != shape or not jnp.issubdtype(result.dtype, jnp.floating):
        raise InputError(
            f"{name} returned shape {result.shape} of {result.dtype} where real numbers of shape "
            f"{shape} are needed{place}: check the function and its dimension"
        )


def _traced(f: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
    """The constants that a function uses, and the shape of its result; traced anew every time."""

    def anew(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    found, result = jax.make_jaxpr(anew, return_shape=True)(*args, **kwargs)
    return found.consts, result


def _check_kept(before: list[Any], after: list[Any]) -> None:
    """Refuse a function that uses a value which it kept when it was traced before."""
    known = {id(value) for value in before}
    if any(isinstance(value, jax.core.Tracer) and id(value) not in known for value in after):
        raise ValueError("it uses an array that it kept from an earlier call")


def check_own_system(system: System, name: str) -> System:
    """A system of a class that the user wrote, traced once, so that it does not fail in a run.

    Arguments:
        name: what it is called, as "reactor.py:system".
    """
    if type(system).__module__.startswith("fedkoopman."):
        return system
    method = type(system).vector_field
    with calling(method, f"{name} failed", "mend its class"):
        x = jax.ShapeDtypeStruct((system.dim,), jnp.result_type(float))
        u = jax.ShapeDtypeStruct((system.input_dim,), jnp.result_type(float))
    given = (x, u) if system.input_dim else (x,)
    for part in ("step", "flow"):
        with calling(method, f"{name}.{part} failed", "mend its class"):
            check_function(getattr(system, part), f"{name}.{part}", x.shape, *given)
    key = jax.eval_shape(lambda: jax.random.key(0))
    check_function(system.initial_state, f"{name}.initial_state", x.shape, key)
    remedy = "declare fields that are not numbers by equinox.field(static=True)"
    with calling(method, f"{name} cannot be compiled, but fails", remedy):
        jax.eval_shape(lambda s, *rest: s.step(*rest), system, *given)
    return system


class _UserSystem(System):
    """What both kinds share; made by `declare`, which checks the user's arguments."""

    f: Closure
    draw: Closure | None
    box: tuple[tuple[Number, ...], tuple[Number, ...]]
    values: tuple[Number, ...]
    dt: Number
    labels: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    substeps: int = eqx.field(static=True)
    input_dim: int = eqx.field(static=True, default=0)
    stiff: bool = eqx.field(static=True, default=False)

    @property
    def parameters(self) -> dict[str, Number]:
        """The parameters handed to the function, by name."""
        return dict(zip(self.labels, self.values, strict=True))

    def _replace(self: Same, values: Mapping[str, Number]) -> Same:
        merged = {**self.parameters, **values}
        new: Same = eqx.tree_at(lambda s: s.values, self, tuple(merged.values()))
        return new

    @property
    def initial_box(self) -> Box | None:
        """The user's box, or None where the law is a function."""
        return self.box if self.draw is None else None

    def initial_state(self, key: PRNGKeyArray) -> State:
        """A draw from the user's law, or uniform on its box."""
        if self.draw is not None:
            state: Array = self.draw(key)
            return state
        return uniform(key, *self.box)

    def _call(self, x: State, u: Input) -> Array:
        given = (x, u) if self.input_dim else (x,)
        result: Array = self.f(*given, **self.parameters)
        return result


class FunctionSystem(_UserSystem):
    """ẋ = f(x), f(x, u), with parameters as keywords; see `System.from_function`."""

    def vector_field(self, x: State, u: Input = None) -> State:
        """The user's function."""
        return self._call(x, u)

    def step(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """RK4; for stiff systems Kvaerno5 to `STIFF_STEP_TOLERANCE` (NaN if it fails)."""
        if not self.stiff:
            return super().step(x, u, dt)
        interval = self.dt if dt is None else dt
        precision = jnp.result_type(x, float).name
        # The default adjoint has no forward mode, which extended Kalman filters use.
        return solve(
            lambda y: self._call(y, u),
            x,
            interval,
            stiff=True,
            tolerance=STIFF_STEP_TOLERANCE[precision],
            adjoint=diffrax.DirectAdjoint(),
        )


class MapSystem(_UserSystem):
    """x' = F(x), F(x, u), with parameters as keywords; see `System.from_map`."""

    def vector_field(self, x: State, u: Input = None) -> State:
        """Refused: a map has none."""
        raise InputError("a system made by from_map has no vector field: use step")

    def step(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """The user's map."""
        if dt is not None:
            raise InputError(
                "dt was given but a system made by from_map has fixed steps: leave it out"
            )
        return self._call(x, u)

    def flow(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """The map itself."""
        return self.step(x, u, dt)


def declare(
    kind: type[_UserSystem],
    f: Callable[..., Any],
    dim: int,
    dt: float,
    *,
    names: Sequence[str] | None,
    units: Sequence[str] | None,
    initial: Any,
    stiff: bool,
    parameters: Mapping[str, float] | None,
    angles: Sequence[int],
    input_dim: int,
    substeps: int,
) -> _UserSystem:
    """Check what a user declared and build the system; arguments as `System.from_function`."""
    dim = check_dim(dim, "dim")
    input_dim = check_dim(input_dim, "input_dim", least=0)
    values = {
        name: number(value, f"parameter {name}") for name, value in (parameters or {}).items()
    }
    function = Closure(f, "f")
    number_type = jnp.result_type(float)
    x = jax.ShapeDtypeStruct((dim,), number_type)
    u = (jax.ShapeDtypeStruct((input_dim,), number_type),) if input_dim else ()
    check_function(function, "f", (dim,), x, *u, **values)
    draw, box = _law(initial, dim)
    default_names = [f"x{i}" for i in range(1, dim + 1)]
    return kind(
        function,
        draw,
        box,
        tuple(values.values()),
        dt,
        tuple(values),
        names=_labels(names, default_names, "names"),
        units=_labels(units, ["1"] * dim, "units"),
        angles=tuple(angles),
        substeps=substeps,
        input_dim=input_dim,
        stiff=bool(stiff),
    )


def _labels(given: Sequence[str] | None, default: list[str], name: str) -> tuple[str, ...]:
    labels = default if given is None else [given] if isinstance(given, str) else list(given)
    if len(labels) != len(default):
        raise InputError(
            f"{name} has {len(labels)} entries but the state has {len(default)} components: "
            "give one each"
        )
    if name == "names" and len(set(labels)) < len(labels):
        raise InputError(f"names repeats an entry in {labels}: give each component its own name")
    return tuple(str(label) for label in labels)


def _law(
    initial: Any, dim: int
) -> tuple[Closure | None, tuple[tuple[Number, ...], tuple[Number, ...]]]:
    """The initial-state law as a function of a key, or as a box."""
    if callable(initial):
        draw = Closure(initial, "initial")
        check_function(draw, "initial", (dim,), jax.eval_shape(lambda: jax.random.key(0)))
        return draw, ((), ())
    try:
        box = np.asarray((-np.ones(dim), np.ones(dim)) if initial is None else initial, np.float64)
    except (TypeError, ValueError):
        box = np.full((), np.nan)
    if box.shape == (dim,):
        box = np.stack([box, box])
    if box.shape != (2, dim):
        raise InputError(
            f"initial has shape {box.shape} but the state has {dim} components: give a state "
            f"({dim},), a box (2, {dim}) or a function of a key"
        )
    if not np.isfinite(box).all():
        raise InputError(
            f"initial contains {box[~np.isfinite(box)][0]}: every entry must be finite"
        )
    if (box[0] > box[1]).any():
        i = int(np.argmax(box[0] > box[1]))
        raise InputError(
            f"initial goes from {box[0, i]:g} to {box[1, i]:g} in component {i}: "
            "the first row of a box is the low one"
        )
    return None, (tuple(box[0].tolist()), tuple(box[1].tolist()))
