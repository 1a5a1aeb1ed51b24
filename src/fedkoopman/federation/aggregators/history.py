"""What rules know of earlier updates: how long each client's steps were, and how much it claimed.

A step is δ = update − current, as one float64 vector. A slot has one or two active clients more
often than five, so a rule that looks at this slot's updates alone has nothing to compare them with.
Earlier ones are compared with and bound new ones, but they are never applied again: a step that
counted once would count twice.

A history is an array (clients, updates), newest last; 0 stands for "none yet". That is no loss: a
claim is at least 1, and a step of no length says nothing of how long steps usually are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from fedkoopman.federation.messages import Arrays

__all__ = [
    "History",
    "arrays_of",
    "capped_sizes",
    "first_history",
    "flat",
    "lower_median",
    "norm_of",
    "noted",
    "padded",
    "step_of",
    "usual_length",
    "with_slot",
]

Vector = NDArray[np.float64]

LARGEST = 1e150
"""Entries of a step beyond this are cut: the sum of their squares would not be finite."""
CAP = 2.0
"""Times the others' usual size that a claimed sample count may weigh."""


def flat(arrays: Arrays, names: Iterable[str] | None = None) -> Vector:
    """All entries as one float64 vector.

    Arguments:
        names: of the arrays, in this order; None for the arrays' own.
    """
    order = arrays if names is None else names
    leaves = [np.ravel(arrays[name]).astype(np.float64) for name in order]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def arrays_of(current: Arrays, vector: Vector) -> dict[str, NDArray]:
    """A vector's entries as arrays with the names, shapes and types of the current ones."""
    ends = np.cumsum([leaf.size for leaf in current.values()])
    parts = np.split(vector, ends[:-1]) if len(ends) else []
    return {
        name: part.reshape(leaf.shape).astype(leaf.dtype)
        for (name, leaf), part in zip(current.items(), parts, strict=True)
    }


def step_of(current: Arrays, update: Arrays) -> Vector:
    """δ = update − current."""
    with np.errstate(over="ignore"):  # the difference of two finite numbers may be infinite
        return np.clip(flat(update, current) - flat(current), -LARGEST, LARGEST)


def norm_of(step: Vector) -> float:
    """‖δ‖."""
    return float(np.linalg.norm(step))


def lower_median(values: Sequence[float] | Vector) -> float:
    """The middle value, of an even number the lower one of two; infinite if there is none.

    Of one honest and one false number the mean would be as false as the false one.
    """
    ordered = sorted(values)
    return float(ordered[(len(ordered) - 1) // 2]) if ordered else math.inf


def padded(rows: NDArray, clients: int) -> NDArray:
    """Rows for so many clients: those that were enrolled later have zeros."""
    lacking = clients - len(rows)
    return np.pad(rows, [(0, max(0, lacking))] + [(0, 0)] * (rows.ndim - 1))


def noted(
    history: Float[np.ndarray, "clients updates"], values: Mapping[int, float]
) -> Float[np.ndarray, "clients updates"]:
    """The history with one more value of each of these clients, and without their oldest."""
    after = padded(history, 1 + max(values, default=-1)).copy()
    for client, value in values.items():
        after[client] = [*after[client, 1:], value]
    return after


def _medians(history: Float[np.ndarray, "clients updates"]) -> dict[int, float]:
    """The median of each client that has a history."""
    known = ((client, row[row > 0]) for client, row in enumerate(history))
    return {client: float(np.median(row)) for client, row in known if len(row)}


def usual_length(norms: Float[np.ndarray, "clients updates"], without: int | None = None) -> float:
    """The median over clients of the median length of their steps; infinite if none is known.

    A minority of clients cannot move it beyond what others send, however often it sends.

    Arguments:
        norms: or a history of anything else that is above 0.
        without: a client that does not count.
    """
    return lower_median([one for client, one in _medians(norms).items() if client != without])


def capped_sizes(
    sizes: Mapping[int, float],
    history: Float[np.ndarray, "clients updates"],
    times: float = CAP,
) -> dict[int, float]:
    """What each claimed sample count may weigh: no more than `times` the usual one of the others.

    Arguments:
        sizes: |D_n| as claimed, by client.
        history: of such claims, these included.
        times: the most that a claim may weigh, in the usual size of the other clients.
    """
    usual = _medians(history)
    others = {n: lower_median([one for m, one in usual.items() if m != n]) for n in sizes}
    return {n: min(float(size), times * others[n]) for n, size in sizes.items()}


class History(NamedTuple):
    """What most rules remember, as two histories."""

    norms: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @property
    def heard(self) -> NDArray[np.bool_]:
        """Which clients have sent something."""
        return self.sizes[:, -1] > 0


def first_history(clients: int, updates: int) -> History:
    """Nothing is known yet.

    Arguments:
        updates: how many of each client are remembered.
    """
    return History(np.zeros((clients, updates)), np.zeros((clients, updates)))


def with_slot(
    memory: Arrays, clients: int, steps: Mapping[int, Vector], sizes: Mapping[int, int]
) -> History:
    """The histories after a slot.

    Lengths are noted as they were sent: a few clients do not move their median.

    Arguments:
        memory: of a rule, with the histories in it.
        clients: how many there are now.
    """
    lengths = {n: norm_of(step) for n, step in steps.items()}
    counts = {n: float(size) for n, size in sizes.items()}
    return History(
        noted(padded(memory["norms"], clients), lengths),
        noted(padded(memory["sizes"], clients), counts),
    )
