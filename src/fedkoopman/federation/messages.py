"""What server and sites tell each other in an algorithm: named arrays and numbers, with schemas.

An algorithm lists its messages as schemas, and whoever carries, checks, logs or previews a message
knows the schema only. A message is data: no code, no text of free form.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import short

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by name; the server's state, a model and a message's content have this form."""
HELD_OUT = 4
"""Held-out segments that an answer is computed from, at most."""


@dataclass(frozen=True)
class Message:
    """One message: a kind that the algorithm lists, arrays and numbers by name."""

    kind: str
    arrays: Arrays = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayField:
    """An array of a message.

    Attributes:
        shape: its exact shape.
        dtype: "float32" or "float64".
        finite: whether all its entries must be finite.
        rows: whether it is a stack of one or more arrays of that shape.
    """

    shape: tuple[int, ...]
    dtype: str
    finite: bool = True
    rows: bool = False

    def fault(self, name: str, value: NDArray[Any]) -> str:
        """What is wrong with an array, after "sends …"; empty if nothing is."""
        own = value.shape[1:] if self.rows and value.size else value.shape
        if own != self.shape or value.ndim != len(self.shape) + self.rows:
            each = " each" if self.rows else ""
            return f"{name} of shape {value.shape}, not {self.shape}{each}"
        if value.dtype != self.dtype:
            return f"{name} as {value.dtype}, not {self.dtype}"
        if self.finite and not np.isfinite(value).all():
            return f"{name} with entries that are not finite"
        return ""


@dataclass(frozen=True)
class NumberField:
    """A number of a message, from `low` to `high`; `whole` if it counts something."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def fault(self, name: str, value: float) -> str:
        """What is wrong with a number, after "sends …"; empty if nothing is."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return f"{name} = {value:g}, which is not from {self.low:g} to {self.high:g}"
        if self.whole and value != int(value):
            return f"{name} = {value:g}, which is not a whole number"
        return ""


@dataclass(frozen=True)
class Schema:
    """One kind of message.

    Attributes:
        words: what it holds, for people: "weights after local training".
        arrays, numbers: its content; a message holds all of it and nothing else.
        reply: of a request, the kind of message that answers it; empty for a reply.
        data: of a request, which of a site's segments the answer is computed from. "waiting": those
            that arrived since the last answer that became part of the server's state; this answer
            spends them. "arrived": all that ever arrived; none are spent. "held-out": those that
            are kept for evaluation. "none": no data.
        spend: of a request for "arrived" data, whether the answer spends those that wait after all.
        changes: of a reply, whether its arrays are new values of the request's arrays of the same
            names, so that the size of the change can be judged.
        additive: of a reply, whether the server needs only the sum over sites.
        lasting: of a request, whether an answer that comes after its slot is kept at the site, and
            given when the same is asked again in a later slot; otherwise it is forgotten.
    """

    words: str
    arrays: Mapping[str, ArrayField] = field(default_factory=dict)
    numbers: Mapping[str, NumberField] = field(default_factory=dict)
    reply: str = ""
    data: str = "waiting"
    spend: bool = False
    changes: bool = False
    additive: bool = False
    lasting: bool = False

    @property
    def spends(self) -> bool:
        """Whether an answer to this request spends the segments that wait."""
        return self.data == "waiting" or self.spend

    def fault(self, message: Message) -> str:
        """What is wrong with a message, after "sends …"; empty if it fits."""
        for given, known in ((message.arrays, self.arrays), (message.numbers, self.numbers)):
            for name in sorted(known.keys() - given.keys()):
                return f"{message.kind!r} without {name!r}"
            for name in sorted(given.keys() - known.keys()):
                return f"{message.kind!r} with {short(name)}, which it does not have"
        for name, one in self.arrays.items():
            if fault := one.fault(name, message.arrays[name]):
                return fault
        for name, number in self.numbers.items():
            if fault := number.fault(name, message.numbers[name]):
                return fault
        return ""


def arrays_like(arrays: Arrays) -> dict[str, ArrayField]:
    """The fields of arrays that must have these shapes and types."""
    return {name: ArrayField(one.shape, str(one.dtype)) for name, one in arrays.items()}
