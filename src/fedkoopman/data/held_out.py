"""Which segments of a site are kept for evaluation: by share or by name, always the same ones."""

import math
from collections.abc import Sequence
from itertools import pairwise

from fedkoopman.errors import InputError, unknown_name


def held_out(
    wanted: float | tuple[str, ...], names: Sequence[str], pieces_of: Sequence[str]
) -> tuple[bool, ...]:
    """For each segment in order, whether it is held out.

    A share takes every k-th segment: as many as the share of all that came so far, rounded down,
    but at least the last one if there are two. A name takes a segment, or all pieces of a cut one.

    Arguments:
        wanted: the share, or names.
        names: of the segments, in order.
        pieces_of: the names of the uncut segments.
    """
    count = len(names)
    if not isinstance(wanted, tuple):
        taken = [math.floor(i * wanted + 1e-9) for i in range(count + 1)]
        if wanted > 0 and count > 1 and taken[-1] == 0:
            taken[-1] = 1
        return tuple(after > before for before, after in pairwise(taken))
    known = {*names, *pieces_of}
    for name in wanted:
        if name not in known:
            raise unknown_name("segment in data.held_out", name, dict.fromkeys(pieces_of))
    found = tuple(n in wanted or base in wanted for n, base in zip(names, pieces_of, strict=True))
    if all(found):
        raise InputError(
            f"data.held_out names all {count} segment{'s' * (count > 1)}: leave one to learn from"
        )
    return found
