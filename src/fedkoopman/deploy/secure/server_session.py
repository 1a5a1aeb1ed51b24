"""The server's part in one session of secure aggregation: a state machine without a network.

Each step takes what sites sent, and gives the next state with the reasons why some of it is no
good; who sent that counts as gone. Where too few are left, `NoSum` says so, and nothing is
learned: neither a vector nor a sum.
"""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedkoopman.deploy.secure.masks import (
    SECRET,
    SHARE,
    Words,
    agreed_key,
    mask,
    public_of,
    rejoined,
    threshold_of,
)
from fedkoopman.deploy.secure.site_session import Keys, pair_purpose
from fedkoopman.errors import InputError

__all__ = ["NoSum", "ServerSession", "begin"]

SEALED = 12 + 2 * SHARE + 16
"""Bytes of two sealed shares."""
Faults = dict[str, str]
"""By place, why what a site sent is no good, after its name."""


class NoSum(InputError):
    """Why a sum cannot be opened."""


@dataclass(frozen=True)
class ServerSession:
    """What the server knows in a session, after the steps so far.

    Attributes:
        name: of the session.
        asked: places of all who were asked.
        threshold: how many of them must be left.
        keys: public keys, of those who sent some.
        sealed: by who sent shares, what goes to each other site.
        vectors: masked, of those who sent theirs.
    """

    name: str
    asked: tuple[str, ...]
    threshold: int
    keys: Mapping[str, Keys] = field(default_factory=dict)
    sealed: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    vectors: Mapping[str, Words] = field(default_factory=dict)

    def with_keys(self, keys: Mapping[str, Keys]) -> tuple["ServerSession", Faults]:
        """After the first step."""
        faults = {
            place: "sends keys that are none"
            for place, pair in keys.items()
            if any(len(key) != SECRET for key in pair) or pair[0] == pair[1]
        }
        good = {place: pair for place, pair in sorted(keys.items()) if place not in faults}
        self._check(good)
        return replace(self, keys=good), faults

    def with_shares(
        self, sealed: Mapping[str, Mapping[str, bytes]]
    ) -> tuple["ServerSession", Faults]:
        """After the second step."""
        faults = {
            place: "sends shares that are none"
            for place, given in sealed.items()
            if {*given, place} != set(self.keys)
            or any(len(one) != SEALED for one in given.values())
        }
        good = {place: dict(given) for place, given in sealed.items() if place not in faults}
        self._check(good)
        return replace(self, sealed=good), faults

    def shares_for(self, place: str) -> dict[str, bytes]:
        """What others have sealed for a site, by who they are."""
        return {peer: given[place] for peer, given in self.sealed.items() if peer != place}

    def with_vectors(
        self, vectors: Mapping[str, Words], size: int
    ) -> tuple["ServerSession", Faults]:
        """After the third step; a vector has so many words."""
        faults = {
            place: f"sends {vector.size:,} masked words, not {size:,}"
            for place, vector in vectors.items()
            if vector.shape != (size,)
        }
        good = {place: vector for place, vector in vectors.items() if place not in faults}
        self._check(good)
        return replace(self, vectors=good), faults

    def opened(
        self, shares: Mapping[str, tuple[Mapping[str, bytes], Mapping[str, bytes]]]
    ) -> tuple[Words, Faults]:
        """After the last step: the sum of the vectors.

        Arguments:
            shares: by who answered, shares of the seeds of all whose vectors came, and shares of
                the keys of all who shared and sent no vector.
        """
        lost = set(self.sealed) - set(self.vectors)
        faults = {
            place: "sends shares of other secrets than it was asked for"
            for place, (seeds, keys) in shares.items()
            if set(seeds) != set(self.vectors)
            or set(keys) != lost
            or any(not self._is_share(place, one) for one in [*seeds.values(), *keys.values()])
        }
        good = {place: both for place, both in sorted(shares.items()) if place not in faults}
        self._check(good)
        size = next(iter(self.vectors.values())).size
        total = np.zeros(size, np.uint64)
        for vector in self.vectors.values():
            total = total + vector
        for place in self.vectors:
            seed = self._rejoined({p: seeds[place] for p, (seeds, _) in good.items()})
            total = total - mask(seed, size, f"self {self.name}")
        purpose = pair_purpose(self.name)
        for gone in sorted(lost):
            key = self._rejoined({p: keys[gone] for p, (_, keys) in good.items()})
            if public_of(key) != self.keys[gone][1]:
                raise NoSum("shares rejoin to another key than the one that was shared")
            for place in self.vectors:
                pair = agreed_key(key, self.keys[place][1], purpose)
                both = mask(pair, size, purpose)
                total = total - both if place < gone else total + both
        return total, faults

    def _rejoined(self, shares: Mapping[str, bytes]) -> bytes:
        try:
            return rejoined(shares, self.threshold)
        except InputError as error:
            raise NoSum(str(error)) from error

    def _is_share(self, place: str, share: bytes) -> bool:
        """Whether this may be the share that a site was given."""
        number = sorted(self.keys).index(place) + 1
        return len(share) == SHARE and int.from_bytes(share[:4], "little") == number

    def _check(self, left: Collection[str]) -> None:
        if len(left) < self.threshold:
            raise NoSum(
                f"{len(left)} of {len(self.asked)} sites are left, and {self.threshold} are needed"
            )


def begin(asked: Collection[str]) -> ServerSession:
    """A new session with the sites in these places."""
    places = tuple(sorted(asked))
    return ServerSession(secrets.token_hex(16), places, threshold_of(len(places)))
