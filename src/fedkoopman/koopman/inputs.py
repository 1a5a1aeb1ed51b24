"""The forms in which users give inputs, every check of them, and how inputs join states.

The input u_k is held from sample k to sample k + 1 (zero-order hold). Inside, a trajectory of a
driven system has rows [x_k, u_k], states first.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.frames import is_table
from fedkoopman.koopman.trajectories import Trajectories, array_of, as_trajectories

__all__ = ["ahead_of", "given_inputs", "joined", "past_inputs", "steps_of"]

Array = NDArray[np.float64]


def given_inputs(U: Any, given: Trajectories) -> tuple[list[Array], tuple[str, ...] | None]:
    """The inputs of trajectories, (T_i, m) each, and their names where a table has some.

    Arguments:
        U: in the form of the trajectories, with as many rows or one less: what is put in after the
            last state does nothing to those given, and is taken to be as before. A table may have
            all rows of a table of states, whatever its segments.
    """
    names = None
    lengths = [len(part) for part in given.parts]
    if is_table(U):
        table = as_trajectories(U, whole=True, title="U")
        names, U = table.names, np.concatenate(table.parts)
        if len(given.parts) > 1:
            if len(U) != sum(lengths):
                raise InputError(
                    f"U has {len(U)} rows and X has {sum(lengths)}: give one row of inputs for "
                    "every row of X"
                )
            U = np.split(U, np.cumsum(lengths)[:-1])
    elif given.form == "row":
        U = np.atleast_2d(array_of(U, "U"))
    several = as_trajectories(U, title="U")
    parts, names = several.parts, several.names if names is None else names
    if len(parts) != len(lengths):
        raise InputError(
            f"U has {len(parts)} trajectories and X has {len(lengths)}: give inputs for each"
        )
    width = parts[0].shape[1]
    found = []
    for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if len(part) not in (length, length - 1) or not len(part):
            raise InputError(
                f"U has {len(part)} rows for {given.label(i)}, which has {length}: give the input "
                "at every row, or at every row but the last"
            )
        if part.shape[1] != width:
            raise InputError(f"U has {width} and {part.shape[1]} columns: give the same inputs")
        found.append(part if len(part) == length else np.vstack([part, part[-1:]]))
    return found, names


def joined(given: Trajectories, inputs: list[Array]) -> Trajectories:
    """Trajectories with rows [x_k, u_k]."""
    return replace(given, parts=[np.hstack(p) for p in zip(given.parts, inputs, strict=True)])


def steps_of(U: Any, count: int, inputs: int, name: str = "U") -> Array:
    """The inputs of `count` simulations, (count, H, m).

    Arguments:
        U: (H, m) for all of them, or (B, H, m).
        inputs: m.
    """
    found = array_of(U, name)
    if found.ndim == 2:
        found = np.broadcast_to(found, (count, *found.shape))
    if found.ndim != 3 or found.shape[::2] != (count, inputs) or not found.shape[1]:
        shape = np.shape(U)
        raise InputError(
            f"{name} has shape {shape}: give (steps, {inputs}), or ({count}, steps, {inputs}) for "
            f"{count} starts"
        )
    return found


def past_inputs(past: Any, count: int, window: int, inputs: int) -> Array:
    """The inputs between the states of `count` windows, (count, (μ − 1) m)."""
    if window == 1 or not inputs:
        if past is not None:
            raise InputError("past is given, but a start has a single state: leave it out")
        return np.zeros((count, 0))
    if past is None:
        raise InputError(
            f"a start has {window} states, and the {window - 1} inputs between them are missing: "
            f"give past, of shape ({window - 1}, {inputs})"
        )
    found = steps_of(past, count, inputs, "past")
    if found.shape[1] != window - 1:
        raise InputError(
            f"past has {found.shape[1]} rows: give the {window - 1} inputs between the "
            f"{window} states of a start"
        )
    return found.reshape(count, -1)


def ahead_of(rows: Array, last: NDArray[Any], steps: int, inputs: int) -> Array | None:
    """The inputs from some rows on, (n, steps, m); beyond the end, the last; None without any.

    Arguments:
        rows: [x_k, u_k], all trajectories joined.
        last: the rows in which windows end.
    """
    if not inputs:
        return None
    place = np.minimum(np.asarray(last)[:, None] + np.arange(steps), len(rows) - 1)
    return rows[place, -inputs:]
