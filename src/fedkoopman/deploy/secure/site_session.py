"""A site's part in one session of secure aggregation: a state machine without a network.

Every step gives the next state and what the site sends. A step that is asked for again, with the
same content, gives the same answer again; with other content it is refused, as is a step out of
order. So one session's masks cover one vector, and one set of sites is unmasked.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from fedkoopman.deploy.secure.masks import (
    SHARE,
    Words,
    agreed_key,
    key_pair,
    mask,
    opened,
    sealed,
    split,
    threshold_of,
)
from fedkoopman.errors import InputError

__all__ = ["Keys", "SiteSession", "begin", "pair_purpose"]

Keys = tuple[bytes, bytes]
"""Public keys of a site: that by which shares are sealed, and that by which pairs mask."""


@dataclass(frozen=True)
class SiteSession:
    """What a site knows in a session, after the steps so far.

    Attributes:
        name: of the session.
        place: the site's own among all, as text.
        sealing, masking: its secret keys.
        public: its public keys.
        seed: of its own mask.
        peers: all sites' keys by place, itself included; none before the second step.
        threshold: how many shares rejoin a secret.
        given: what it has sent to the others, sealed; by place.
        own: its own shares of its own seed and key.
        held: by place, shares of others' seeds and keys, its own included.
        sent: for which request a vector was masked, and the masked vector.
        unmasked: whose seeds it has given shares of, all others being given up.
    """

    name: str
    place: str
    sealing: bytes = field(repr=False)
    masking: bytes = field(repr=False)
    public: Keys
    seed: bytes = field(repr=False)
    peers: Mapping[str, Keys] = field(default_factory=dict)
    threshold: int = 0
    given: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    own: bytes = field(default=b"", repr=False)
    held: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    sent: tuple[str, Words] | None = field(default=None, repr=False)
    unmasked: frozenset[str] | None = None

    def share(
        self, keys: Mapping[str, Keys], threshold: int
    ) -> tuple["SiteSession", Mapping[str, bytes]]:
        """Split the secrets among all who have sent keys; what goes to each, sealed.

        Arguments:
            keys: public ones by place, this site's included.
            threshold: how many shares are to rejoin a secret.
        """
        if self.peers:
            if dict(keys) == dict(self.peers) and threshold == self.threshold:
                return self, self.given
            raise InputError("the keys of this session were other ones before: refused")
        if keys.get(self.place) != self.public:
            raise InputError("the keys that are passed on as this site's are not its own: refused")
        if len({key for pair in keys.values() for key in pair}) < 2 * len(keys):
            raise InputError("two sites have the same key: refused")
        if not threshold_of(len(keys)) <= threshold <= len(keys):
            raise InputError(
                f"{threshold} of {len(keys)} sites are to open a sum, which must be a majority and "
                "two at least: refused"
            )
        places = sorted(keys)
        seeds = split(self.seed, threshold, places)
        secrets = split(self.masking, threshold, places)
        given = {}
        for peer in places:
            if peer != self.place:
                key = agreed_key(self.sealing, keys[peer][0], f"seal {self.name}")
                about = f"{self.name} {self.place} {peer}"
                given[peer] = sealed(key, seeds[peer] + secrets[peer], about)
        own = seeds[self.place] + secrets[self.place]
        after = replace(self, peers=dict(keys), threshold=threshold, given=given, own=own)
        return after, given

    def mask(
        self, received: Mapping[str, bytes], base: str, vector: Words
    ) -> tuple["SiteSession", Words]:
        """The site's vector, masked.

        Arguments:
            received: sealed shares, by who sent them.
            base: what the vector answers.
        """
        if not self.peers:
            raise InputError("there are no keys in this session yet: refused")
        if self.sent is not None:
            if self.sent[0] == base and set(received) | {self.place} == set(self.held):
                return self, self.sent[1]
            raise InputError("another vector was sent under the masks of this session: refused")
        left = set(received) | {self.place}
        if self.place in received or not left <= set(self.peers) or len(left) < self.threshold:
            raise InputError(
                f"shares of {len(left)} sites are passed on, where {self.threshold} to "
                f"{len(self.peers)} are expected: refused"
            )
        held = {self.place: self.own}
        total = vector + mask(self.seed, vector.size, f"self {self.name}")
        for peer in sorted(received):
            key = agreed_key(self.sealing, self.peers[peer][0], f"seal {self.name}")
            held[peer] = opened(key, received[peer], f"{self.name} {peer} {self.place}")
            if len(held[peer]) != 2 * SHARE:
                raise InputError("shares of another site are none: refused")
            purpose = pair_purpose(self.name)
            pair = agreed_key(self.masking, self.peers[peer][1], purpose)
            both = mask(pair, vector.size, purpose)
            total = total + both if self.place < peer else total - both
        return replace(self, held=held, sent=(base, total)), total

    def unmask(
        self, sent: Collection[str]
    ) -> tuple["SiteSession", Mapping[str, bytes], Mapping[str, bytes]]:
        """Shares of the seeds of those who sent their vectors, and of the keys of those who did
        not; never both of one site.

        Arguments:
            sent: places of those whose vectors are in the sum.
        """
        wanted = frozenset(sent)
        if self.sent is None or self.place not in wanted:
            raise InputError("this site has sent nothing that is in the sum: refused")
        if self.unmasked is not None and self.unmasked != wanted:
            raise InputError("another sum of this session was unmasked: refused")
        if not wanted <= set(self.held) or len(wanted) < self.threshold:
            raise InputError(
                f"a sum of {len(wanted)} sites is to be unmasked, where {self.threshold} to "
                f"{len(self.held)} are expected: refused"
            )
        seeds = {peer: self.held[peer][:SHARE] for peer in sorted(wanted)}
        keys = {peer: self.held[peer][SHARE:] for peer in sorted(set(self.held) - wanted)}
        return replace(self, unmasked=wanted), seeds, keys


def begin(name: str, place: str) -> SiteSession:
    """A session with new keys and a new seed."""
    (sealing, seal), (masking, pair) = key_pair(), key_pair()
    return SiteSession(name, place, sealing, masking, (seal, pair), os.urandom(len(seal)))


def pair_purpose(session: str) -> str:
    """Of the mask of a pair of sites."""
    return f"pair {session}"
