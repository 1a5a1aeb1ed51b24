"""What a server step is: an optimizer of optax that is given the aggregate's change.

Reddi et al. ("Adaptive federated optimization", ICLR 2021) take what the clients changed for a
gradient of the server: with ω what the clients were given and ω̄ their aggregate,

    g = ω − ω̄,    ω ← ω + u(g),

where u is an optimizer's update, minus and learning rate included: u(g) = −g is FedAvg. So every
optimizer of optax is a server step.

Steps are taken in float64, and their memory is kept in it: one slot has one step, so that this
costs nothing, and a model in float32 gets the rounding of one addition only.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.options import ServerOptions
from fedkoopman.user_code import calling, finished, place_of

__all__ = ["ServerStep", "first_steps", "stepped"]


class ServerStep(Protocol):
    """From a study's section `server` to an optimizer."""

    def __call__(self, options: ServerOptions) -> optax.GradientTransformation:
        """The optimizer; the shapes of its memory stay as they are.

        `options.rate(usual)` is the learning rate that the study gives, or the usual one.
        """
        ...


def first_steps(step: ServerStep, options: ServerOptions, current: Arrays) -> dict[str, Any]:
    """What a step remembers before the first update: its leaves by number, in optax's order.

    Arguments:
        current: what updates change, before the first slot.
    """
    with jax.enable_x64(True):
        made = _made(step, options)
        with calling(step, "the server step failed"):
            return _named(made.init(_wide(current)))


def stepped(
    step: ServerStep, options: ServerOptions, memory: Arrays, current: Arrays, aggregate: Arrays
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The server's next arrays, and what the step remembers from now on.

    Arguments:
        memory: from `first_steps`, or from the step before.
        current: ω, what the clients were given.
        aggregate: ω̄, what the rule made of their updates.
    """
    with jax.enable_x64(True):
        made, wide = _made(step, options), _wide(current)
        gradient = jax.tree.map(jnp.subtract, wide, _wide(aggregate))
        with calling(step, "the server step failed"):
            first, structure = jax.tree.flatten(made.init(wide))
            leaves = [jnp.asarray(memory[str(i)]) for i in range(len(first))]
            update, after = made.update(gradient, jax.tree.unflatten(structure, leaves), wide)
            remembered = _named(after)
        _check_form(step, update, wide)
        _check_memory(step, remembered, memory)
    moved = {
        name: np.float64(leaf) + np.asarray(update[name], np.float64)
        for name, leaf in current.items()
    }
    return {name: leaf.astype(current[name].dtype) for name, leaf in moved.items()}, remembered


def _made(step: ServerStep, options: ServerOptions) -> optax.GradientTransformation:
    with calling(step, "the server step failed"):
        made = finished(step(options))
    if not all(callable(getattr(made, name, None)) for name in ("init", "update")):
        raise InputError(
            f"the server step gave a {type(made).__name__} ({place_of(step)}): give an optimizer "
            "of optax, such as optax.sgd(1.0)"
        )
    return made


def _wide(arrays: Arrays) -> dict[str, jax.Array]:
    return {name: jnp.asarray(leaf, jnp.float64) for name, leaf in arrays.items()}


def _named(memory: Any) -> dict[str, NDArray[Any]]:
    return {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(memory))}


def _check_form(step: ServerStep, update: Any, like: dict[str, jax.Array]) -> None:
    """Refuse an update that has not the form of the arrays it should change."""
    same = isinstance(update, dict) and update.keys() == like.keys()
    if not same or any(np.shape(update[name]) != leaf.shape for name, leaf in like.items()):
        raise InputError(
            f"the server step gave an update of another form than the model ({place_of(step)}): "
            "give one array for each of the model's, of the same shape"
        )


def _check_memory(step: ServerStep, found: Arrays, before: Arrays) -> None:
    """Refuse a memory that changes its form: a checkpoint could not be compared with the next."""
    for name in sorted(found.keys() | before.keys()):
        one, other = found.get(name), before.get(name)
        if one is None or other is None or (one.shape, one.dtype) != (other.shape, other.dtype):
            raise InputError(
                f"the memory of the server step changes its form ({place_of(step)}): keep the "
                "number, shapes and types of its arrays from step to step"
            )
