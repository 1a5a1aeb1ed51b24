"""What an aggregator is: from the clients' updates to the server's next arrays."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Arrays, Message, Schema, arrays_like
from fedkoopman.user_code import calling, finished, place_of


class Aggregator(Protocol):
    """From updates to one."""

    def __call__(self, current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
        """The next arrays, with the names, shapes and types of the current ones.

        Arguments:
            current: what the clients were given.
            updates: what each made of it; at least one.
            sizes: |D_n|, how many samples each update was computed from.
        """
        ...


def aggregate(
    rule: Aggregator, current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]
) -> dict[str, Any]:
    """What a rule makes of updates, held to its form."""
    with calling(rule, "the aggregator failed"):
        found = finished(rule(current, updates, sizes))
    try:
        arrays = {name: np.asarray(found[name]) for name in found}
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"the aggregator gave a {type(found).__name__} ({place_of(rule)}): give arrays by name"
        ) from error
    if fault := Schema("", arrays_like(current)).fault(Message("update", arrays)):
        raise InputError(
            f"the aggregator gave {fault} ({place_of(rule)}): give arrays like the current ones"
        )
    return arrays
