"""Replies as whole numbers, so that a server that sees only their sum gets it exactly.

Where a study asks for secure aggregation (`aggregation.secure`), a site's reply becomes a vector of
64-bit words before it is masked, and words add up modulo 2⁶⁴. The in-process engine adds up the
same words without masks, so that both engines end with the same model, bit for bit.

A number x is written in digits of 40 bits, each with its sign: x = 2^top Σ_k d_k 2^(−40 k). Every
digit has a word of its own, and |d_k| ≤ 2⁴⁰, so that sums over four million sites do not overflow.

    changes of arrays   n (ω_n − ω), two digits: exact to B 2⁻⁵⁰ n, n being the number of samples
                        (at most 2³⁰), B the longest change that is allowed (`longest_change`);
                        every site shortens its own change to that
    sums and numbers    five digits: up to 2¹⁰⁰, exact to 2⁻¹⁰⁰
    samples             one digit, a whole number

The mean change of m sites with N samples together is thus wrong by m B 2⁻⁵¹ / N at most, apart from
the rounding of float64: far less than float32 can hold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Answered, Problem
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.slot import FEWEST, Judged

__all__ = [
    "DIGIT", "MOST_SAMPLES", "Layout", "added", "check_sums", "layout_of", "longest_change",
    "pooled", "summed",
]  # fmt: skip

DIGIT = 40
"""Bits of a digit."""
MOST_SITES = 2 ** (62 - DIGIT)
MOST_SAMPLES = 2**30
"""Of one site."""
CHANGES, SUMS = 2, 5
"""Digits of a number."""
TOP = 100
"""A sum is below 2 to this power."""
TIMES = 10.0
"""A change may be so many times as long as what is changed, or a little more."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Layout:
    """How replies of one kind stand in a vector: arrays by name, numbers by name, samples.

    Attributes:
        kind, schema: of the reply.
        top: of changes, the exponent of their first digit; of sums, `TOP`.
        longest: how long a change may be, all arrays together; infinite where nothing is changed.
    """

    kind: str
    schema: Schema
    top: int
    longest: float

    @property
    def size(self) -> int:
        """How many words a vector has."""
        entries = sum(math.prod(one.shape) for one in self.schema.arrays.values())
        return entries * self._digits + len(self.schema.numbers) * SUMS + 1

    @property
    def _digits(self) -> int:
        return CHANGES if self.schema.changes else SUMS

    def encoded(self, request: Message, reply: Message, samples: int) -> Words:
        """A site's reply as words; a change that is too long is shortened first.

        Arguments:
            request: what it answers.
            reply: fits the schema.
            samples: that it was computed from.
        """
        if not 0 <= samples <= MOST_SAMPLES:
            raise InputError(
                f"a reply from {samples:,} samples cannot be summed securely, which takes at most "
                f"{MOST_SAMPLES:,}: train in more slots"
            )
        values = _flat(reply.arrays, self.schema)
        if self.schema.changes:
            change = values - _flat(request.arrays, self.schema)
            length = _length(change)
            if length > self.longest:
                change *= self.longest / length
            values = samples * change
        numbers = np.array([reply.numbers[name] for name in sorted(self.schema.numbers)], float)
        parts = [
            _digits_of(values, self.top, self._digits),
            _digits_of(numbers, TOP, SUMS),
            np.array([samples], np.int64),
        ]
        return np.concatenate(parts).view(np.uint64)

    def decoded(self, request: Message, total: Words, sites: int) -> tuple[Message, int]:
        """What the replies of so many sites add up to, as one reply from all their samples.

        Of arrays that are changed, that is the mean, weighted by samples. A sum that honest sites
        cannot have is refused, after "the sum …".
        """
        if total.shape != (self.size,):
            raise InputError(f"has {total.size:,} words, not {self.size:,}")
        words = total.view(np.int64)
        if not 0 < sites <= MOST_SITES:
            raise InputError(f"is of {sites:,} sites")
        digits, samples = words[:-1], int(words[-1])
        most = sites * 2**DIGIT
        beyond = ((digits > most) | (digits < -most)).any()
        if beyond or not 0 <= samples <= sites * MOST_SAMPLES:
            raise InputError("is out of range: a site has sent something else than was agreed")
        count = len(digits) - len(self.schema.numbers) * SUMS
        values = _numbers_of(digits[:count], self.top, self._digits)
        if self.schema.changes:
            length = _length(values) / samples if samples else math.inf
            if length > self.longest * (1 + 1e-6):
                raise InputError(f"changes the model by {length:.4g}, more than {self.longest:.4g}")
            values = _flat(request.arrays, self.schema) + values / samples
        numbers = _numbers_of(digits[count:], TOP, SUMS)
        named = dict(zip(sorted(self.schema.numbers), numbers.tolist(), strict=True))
        reply = Message(self.kind, _shaped(values, self.schema), named)
        return reply, samples


def layout_of(schemas: Mapping[str, Schema], request: Message) -> Layout:
    """How replies to a request are written; only those of which the sum is enough can be."""
    kind = schemas[request.kind].reply
    schema = schemas[kind]
    _check_additive(kind, schema)
    if not schema.changes:
        return Layout(kind, schema, TOP, math.inf)
    longest = longest_change({name: request.arrays[name] for name in schema.arrays})
    top = math.frexp(longest)[1] + int(math.log2(MOST_SAMPLES))
    return Layout(kind, schema, top, longest)


def check_sums(problem: Problem) -> None:
    """Refuse an algorithm of whose replies the server needs more than sums."""
    schemas = problem.algorithm.messages(problem)
    for one in schemas.values():
        if one.reply:
            _check_additive(one.reply, schemas[one.reply])


def longest_change(current: Arrays) -> float:
    """B: ten times the length of what is changed, rounded up to a power of two."""
    # fsum rounds once, so that all machines find the same power of two.
    square = math.fsum(float(x) ** 2 for leaf in current.values() for x in leaf.flat)
    return math.ldexp(1.0, math.frexp(TIMES * math.sqrt(square))[1])


def added(vectors: Sequence[Words]) -> Words:
    """The sum modulo 2⁶⁴."""
    total = np.zeros_like(vectors[0])
    for one in vectors:
        total += one
    return total


def pooled(
    schemas: Mapping[str, Schema],
    replies: Mapping[int, tuple[Message, Answered]],
) -> Answered:
    """What a server that sees only sums makes of replies, by client; as one reply of all.

    Arguments:
        replies: with the request that each answers; all of one kind.
    """
    requests = [request for request, _ in replies.values()]
    layout = layout_of(schemas, requests[0])
    total = added(
        [layout.encoded(request, one.message, one.samples) for request, one in replies.values()]
    )
    message, samples = layout.decoded(requests[0], total, len(replies))
    return Answered(message, samples, tuple(replies))


def summed(
    problem: Problem, requests: Mapping[int, Message], judged: list[Judged]
) -> tuple[list[Judged], Answered | None]:
    """Where the server may see only sums: what became of every request, and the sum.

    As where sites are served, one that has nothing useful to send takes no part in the sum, and
    its data wait; as do all data where fewer than two are left.

    Arguments:
        requests: by client.
    """
    if not problem.aggregation.secure:
        return judged, None
    good = {
        one.client: (requests[one.client], Answered(one.reply, one.samples, (one.client,)))
        for one in judged
        if one.accepted and one.reply is not None
    }
    good = good if len(good) >= FEWEST else {}
    judged = [
        one if one.client in good else replace(one, reply=None, reason="", answered=False)
        for one in judged
    ]
    schemas = problem.algorithm.messages(problem)
    return judged, pooled(schemas, good) if good else None


def _check_additive(kind: str, schema: Schema) -> None:
    if not schema.additive:
        raise InputError(
            f"aggregation.secure is true, but the server needs every single {kind!r}, not only "
            "their sum: leave it out, or choose another algorithm.name"
        )


def _flat(arrays: Arrays, schema: Schema) -> NDArray[np.float64]:
    parts = [arrays[name].astype(np.float64).ravel() for name in sorted(schema.arrays)]
    return np.concatenate([np.zeros(0), *parts])


def _shaped(values: NDArray[np.float64], schema: Schema) -> dict[str, NDArray]:
    found, start = {}, 0
    for name in sorted(schema.arrays):
        one = schema.arrays[name]
        end = start + math.prod(one.shape)
        found[name] = values[start:end].reshape(one.shape).astype(one.dtype)
        start = end
    return {name: found[name] for name in schema.arrays}


def _digits_of(values: NDArray[np.float64], top: int, count: int) -> NDArray[np.int64]:
    """The digits of each value, one after the other; the last one is rounded."""
    if (np.abs(values) > math.ldexp(1.0, top)).any():
        most = np.abs(values).max()
        raise InputError(
            f"a sum of {most:.4g} cannot be summed securely, which takes at most 2^{top}: choose "
            "larger units for the states"
        )
    digits, rest = np.zeros((len(values), count), np.int64), values.astype(np.float64)
    for k in range(count):
        unit = math.ldexp(1.0, top - DIGIT * (k + 1))
        found = np.rint(rest / unit) if k == count - 1 else np.trunc(rest / unit)
        digits[:, k] = found.astype(np.int64)
        rest = rest - found * unit
    return digits.ravel()


def _numbers_of(digits: NDArray[np.int64], top: int, count: int) -> NDArray[np.float64]:
    """Values from their digits, the small ones first, so that little is rounded."""
    table, total = digits.reshape(-1, count), np.zeros(len(digits) // count)
    for k in reversed(range(count)):
        total = total + table[:, k] * math.ldexp(1.0, top - DIGIT * (k + 1))
    return total


def _length(values: NDArray[np.float64]) -> float:
    """Of a vector; the same on all machines."""
    with np.errstate(over="ignore"):
        return math.sqrt(math.fsum((values**2).tolist()))
