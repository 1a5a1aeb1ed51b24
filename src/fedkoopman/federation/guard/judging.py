"""A judge's part: what the training loss on its held-out data becomes by other sites' updates."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import HELD_OUT, ArrayField, Arrays, Message, Schema
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.staged import Staged
from fedkoopman.koopman.training import window_starts, windows_at

__all__ = ["CURRENT", "STEPS", "judge_message", "judge_schemas", "judged"]

CURRENT, STEPS = "current.", "steps."
"""Before the names in a request: what the sites were given, and by how much each update changes it,
one after the other."""
WINDOWS = 1024
"""A judge looks at so many windows of its held-out segments, at most."""


def judge_schemas(request: Schema, reply: Schema) -> dict[str, Schema]:
    """The messages of a second exchange, about replies that change what the request holds."""
    arrays = {f"{CURRENT}{name}": one for name, one in request.arrays.items()}
    for name, one in reply.arrays.items():
        arrays[f"{STEPS}{name}"] = ArrayField(one.shape, one.dtype, rows=True)
    losses = {
        "current": ArrayField((1,), "float64", finite=False),
        "losses": ArrayField((), "float64", finite=False, rows=True),
        "windows": ArrayField((1,), "float64"),
    }
    return {
        "judge": Schema("other sites' updates", arrays, reply="judged", data="held-out"),
        "judged": Schema("losses of other sites' updates on held-out data", losses),
    }


def judge_message(given: Arrays, updates: Sequence[Arrays]) -> Message:
    """The request about some updates.

    Arguments:
        given: what the sites were given, with what updates leave alone.
        updates: what each made of it.
    """
    arrays = {f"{CURRENT}{name}": leaf for name, leaf in given.items()}
    for name in updates[0]:
        arrays[f"{STEPS}{name}"] = np.stack([update[name] - given[name] for update in updates])
    return Message("judge", arrays)


def judged(problem: Problem, request: Message, segments: Sequence[NDArray[Any]]) -> Message:
    """A judge's reply; with no windows to look at it knows nothing, which `windows` says.

    Arguments:
        segments: held-out states (T_i, d).
    """
    given, steps = _parts(request.arrays, CURRENT), _parts(request.arrays, STEPS)
    count = len(next(iter(steps.values())))
    x, ahead, share = _held_out(problem.architecture, segments, problem.dtype)
    if not share.any():
        empty = {"current": np.zeros(1), "losses": np.zeros(count)}
        return Message("judged", {**empty, "windows": np.zeros(1)})
    # What the sites were given, then what each update makes of it.
    candidates = {
        name: np.concatenate([given[name][None], given[name] + leaf])
        for name, leaf in steps.items()
    }
    fixed = {name: leaf for name, leaf in given.items() if name not in steps}
    with jax.enable_x64(problem.dtype == np.float64):
        losses = _losses(
            _trainee(problem.architecture, candidates),
            {name: np.asarray(leaf, problem.dtype) for name, leaf in fixed.items()},
            x,
            ahead,
            share,
            architecture=problem.architecture,
            loss_weights=problem.training.loss_weights,
            huber=problem.training.huber,
        )
        found = np.asarray(losses).astype(np.float64)
    windows = np.array([float((share > 0).sum())])
    return Message("judged", {"current": found[:1], "losses": found[1:], "windows": windows})


def _held_out(
    kind: Kind, segments: Sequence[NDArray[Any]], dtype: np.dtype
) -> tuple[NDArray[Any], tuple[NDArray[Any], ...], NDArray[Any]]:
    """Windows in columns, those that follow them by each lead, and each one's share in the mean.

    There is room for a power of two, so that few shapes are compiled.
    """
    reach = kind.window + max(kind.leads)
    some = [states for states in segments if len(states) >= reach][:HELD_OUT]
    lengths = [len(states) for states in some]
    starts = window_starts(lengths, kind.window, max(kind.leads)) if some else np.zeros(0, int)
    starts = starts[:: -(-len(starts) // WINDOWS) or 1]
    room = 1 << max(len(starts) - 1, 0).bit_length()
    padded = np.zeros(room, np.int64)
    padded[: len(starts)] = starts
    share = (np.arange(room) < len(starts)) / max(len(starts), 1)
    states = np.concatenate(some).T if some else np.zeros((kind.row_dim, reach))
    x, *ahead = (part.astype(dtype) for part in windows_at(states, padded, kind, np))
    return x, tuple(ahead), share.astype(dtype)


def _trainee(kind: Kind, arrays: Arrays) -> Weights:
    """Arrays by name in the form that the kind trains, each with one entry per candidate."""
    return dict(arrays) if isinstance(kind, Staged) else kind.assemble(arrays)


@one_core("architecture", "loss_weights", "huber")
def _losses(
    candidates: Weights,
    fixed: dict[str, Array],
    x: Float[Array, "input n"],
    ahead: tuple[Float[Array, "input n"], ...],
    share: Float[Array, " n"],
    *,
    architecture: Kind,
    loss_weights: tuple[float, float, float],
    huber: float,
) -> Float[Array, " candidates"]:
    """The training loss of each candidate."""
    more = {"huber": huber} if huber else {}

    def loss(weights: Weights) -> Float[Array, ""]:
        return architecture.loss(weights, fixed, x, ahead, share, loss_weights, **more)

    return jax.lax.map(loss, candidates)


def _parts(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): leaf for n, leaf in arrays.items() if n.startswith(prefix)}
