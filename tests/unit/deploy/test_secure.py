"""Secure aggregation without a network: exact sums, random-looking vectors, and what is refused."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import pytest
from scipy import stats

from fedkoopman.deploy.secure import server_session, site_session
from fedkoopman.deploy.secure.masks import (
    SHARE,
    agreed_key,
    key_pair,
    mask,
    opened,
    public_of,
    rejoined,
    sealed,
    split,
    threshold_of,
)
from fedkoopman.deploy.secure.server_session import NoSum, ServerSession
from fedkoopman.deploy.secure.site_session import SiteSession
from fedkoopman.errors import InputError

SIZE = 40
STEPS = ("keys", "shares", "vectors", "unmasking")


class Play:
    """Sites and a server in one process; at each step some sites vanish."""

    def __init__(self, count: int, size: int = SIZE) -> None:
        places = [str(n) for n in range(count)]
        random = np.random.default_rng(count)
        self.size = size
        self.vectors = {p: random.integers(0, 2**64, size, np.uint64) for p in places}
        self.server: ServerSession = server_session.begin(places)
        self.sites = {p: site_session.begin(self.server.name, p) for p in places}

    def keys(self, gone: Collection[str] = ()) -> "Play":
        offers = {p: one.public for p, one in self.sites.items() if p not in gone}
        self.server, faults = self.server.with_keys(offers)
        assert not faults
        return self

    def shares(self, gone: Collection[str] = ()) -> "Play":
        found = {}
        for p in set(self.server.keys) - set(gone):
            self.sites[p], found[p] = self.sites[p].share(self.server.keys, self.server.threshold)
        self.server, faults = self.server.with_shares(found)
        assert not faults
        return self

    def masked(self, gone: Collection[str] = ()) -> "Play":
        found = {}
        for p in set(self.server.sealed) - set(gone):
            received = self.server.shares_for(p)
            self.sites[p], found[p] = self.sites[p].mask(received, "base", self.vectors[p])
        self.server, faults = self.server.with_vectors(found, self.size)
        assert not faults
        return self

    def unmasked(self, gone: Collection[str] = ()) -> np.ndarray:
        found = {}
        for p in set(self.server.vectors) - set(gone):
            self.sites[p], seeds, keys = self.sites[p].unmask(self.server.vectors)
            found[p] = seeds, keys
        total, faults = self.server.opened(found)
        assert not faults
        return total

    def all(self, gone: Mapping[str, Collection[str]]) -> np.ndarray:
        lost = [set().union(*(gone.get(s, ()) for s in STEPS[: i + 1])) for i in range(len(STEPS))]
        return self.keys(lost[0]).shares(lost[1]).masked(lost[2]).unmasked(lost[3])


def sum_of(vectors: Mapping[str, np.ndarray], places: Collection[str]) -> np.ndarray:
    """In Python's whole numbers."""
    columns = zip(*(vectors[p].tolist() for p in places), strict=True)
    return np.array([sum(column) % 2**64 for column in columns], np.uint64)


CASES = [
    *[(3, one) for one in itertools.combinations("012", 1)],
    *[(5, some) for k in (1, 2) for some in itertools.combinations("01234", k)],
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("count", "gone"), CASES, ids=str)
def test_dropouts_at_every_step_are_survived(step: str, count: int, gone: tuple) -> None:
    play = Play(count)
    total = play.all({step: gone})
    left = set(play.sites) if step == "unmasking" else set(play.sites) - set(gone)
    assert set(play.server.vectors) == left
    assert (total == sum_of(play.vectors, left)).all()


def test_dropouts_at_different_steps_and_nobody_at_all() -> None:
    assert (Play(2).all({}) == sum_of(Play(2).vectors, "01")).all()
    play = Play(7)
    total = play.all({"keys": "0", "vectors": "3", "unmasking": "6"})
    assert (total == sum_of(play.vectors, "12456")).all()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("count", "gone"), [(2, "0"), (3, "02"), (5, "014")])
def test_below_the_threshold_there_is_no_sum(step: str, count: int, gone: str) -> None:
    left = count - len(gone)
    message = f"{left} of {count} sites are left, and {threshold_of(count)} are needed"
    with pytest.raises(NoSum, match=message):
        Play(count).all({step: gone})


def test_the_threshold_is_a_majority() -> None:
    assert [threshold_of(n) for n in (2, 3, 4, 5, 10)] == [2, 2, 3, 3, 6]


def uniform(words: np.ndarray) -> float:
    """The smaller p-value of two tests: bytes by chi-square, words by Kolmogorov and Smirnov."""
    counts = np.bincount(words.view(np.uint8), minlength=256)
    by_bytes = stats.chisquare(counts).pvalue
    return min(by_bytes, stats.kstest(words / 2.0**64, "uniform").pvalue)


def test_single_masked_vectors_look_random_and_unmasked_ones_do_not() -> None:
    size, random = 4000, np.random.default_rng(0)
    play = Play(3, size)
    small = (random.normal(size=size) * 2**38).astype(np.int64).view(np.uint64)
    play.vectors = dict.fromkeys(play.sites, small)
    play.keys().shares().masked()
    assert uniform(small) < 1e-100  # the test can fail: this is an update without masks
    limit = 1e-7  # keys are new in every run of this test
    for place, words in play.server.vectors.items():
        assert uniform(words) > limit
        # Not even two sites' together, nor what one mask of three is taken from.
        assert uniform(words + play.server.vectors[str((int(place) + 1) % 3)]) > limit
        seed = play.sites[place].seed
        assert uniform(words - mask(seed, size, f"self {play.server.name}")) > limit
    again = Play(3, size)
    again.vectors = play.vectors
    again.keys().shares().masked()
    for place, words in again.server.vectors.items():  # new keys, new masks
        assert uniform(words - play.server.vectors[place]) > limit
    assert (play.unmasked() == small * np.uint64(3)).all()


def masked(count: int = 3) -> Play:
    return Play(count).keys().shares().masked()


def test_a_step_that_is_asked_for_again_gives_the_same_answer() -> None:
    play = masked()
    site, server = play.sites["1"], play.server
    after, given = site.share(server.keys, server.threshold)
    assert after is site and given == site.given
    after, words = site.mask(server.shares_for("1"), "base", play.vectors["1"])
    assert after is site and (words == server.vectors["1"]).all()
    # The kept words are sent, whatever the vector is now.
    _, words = site.mask(server.shares_for("1"), "base", play.vectors["2"])
    assert (words == server.vectors["1"]).all()
    site, *first = site.unmask("012")
    site, *second = site.unmask("210")
    assert first == second


def test_two_vectors_or_two_unmaskings_of_a_session_are_refused() -> None:
    play = masked(5)
    site, server = play.sites["1"], play.server
    with pytest.raises(InputError, match="another vector was sent"):
        site.mask(server.shares_for("1"), "another request", play.vectors["2"])
    fewer = {p: s for p, s in server.shares_for("1").items() if p != "4"}
    with pytest.raises(InputError, match="another vector was sent"):
        site.mask(fewer, "base", play.vectors["1"])
    for sent in ("02", "0234", "12", "1", "", "01234x"):
        with pytest.raises(InputError, match="refused"):
            site.unmask(list(sent))
    site, *_ = site.unmask("01234")
    for sent in ("0123", "123"):
        with pytest.raises(InputError, match="another sum of this session was unmasked"):
            site.unmask(sent)


def test_steps_out_of_order_are_refused() -> None:
    play = Play(3).keys()
    site = play.sites["0"]
    with pytest.raises(InputError, match="no keys in this session"):
        site.mask({}, "base", play.vectors["0"])
    with pytest.raises(InputError, match="has sent nothing"):
        site.unmask("012")
    play.shares()
    with pytest.raises(InputError, match="has sent nothing"):
        play.sites["0"].unmask("012")


def test_keys_and_thresholds_that_would_uncover_a_site_are_refused() -> None:
    play = Play(3).keys()
    site, keys = play.sites["0"], dict(play.server.keys)
    others = {p: pair for p, pair in keys.items() if p != "0"}
    for given, threshold, cause in (
        (others, 2, "not its own"),
        ({**keys, "0": keys["1"]}, 2, "not its own"),
        ({**keys, "1": keys["2"]}, 2, "same key"),
        ({**keys, "1": (keys["1"][0], keys["0"][1])}, 2, "same key"),
        ({"0": keys["0"]}, 1, "a majority and two at least"),
        (keys, 1, "a majority and two at least"),
        (keys, 4, "a majority and two at least"),
        ({**keys, "3": key_pair()}, 2, "a majority and two at least"),
    ):
        with pytest.raises(InputError, match=cause):
            site.share(given, threshold)
    site, _ = site.share(keys, 2)
    with pytest.raises(InputError, match="were other ones before"):
        site.share(keys, 3)
    small = {**keys, "1": (bytes(32), keys["1"][1])}
    with pytest.raises(InputError, match="public key is none"):
        play.sites["0"].share(small, 2)


def test_changed_shares_are_refused() -> None:
    play = Play(3).keys().shares()
    site, received = play.sites["0"], play.server.shares_for("0")
    flipped = bytes([received["1"][20] ^ 1])
    for bad in (
        {**received, "1": received["1"][:20] + flipped + received["1"][21:]},
        {**received, "1": received["2"]},  # of another site
        {**received, "1": play.server.shares_for("2")["1"]},  # for another site
        {**received, "1": b""},
    ):
        with pytest.raises(InputError, match="changed on their way"):
            site.mask(bad, "base", play.vectors["0"])
    for bad in ({}, {**received, "0": received["1"]}, {**received, "7": received["1"]}):
        with pytest.raises(InputError, match="are passed on"):
            site.mask(bad, "base", play.vectors["0"])


@pytest.mark.parametrize("count", [3, 4])
def test_no_lie_about_who_is_left_gets_both_secrets_of_a_site(count: int) -> None:
    """A server tells every site another story; all combinations are tried."""
    play = masked(count)
    places, needed = sorted(play.sites), play.server.threshold
    stories: dict[str, list[tuple[Mapping, Mapping]]] = {}
    for place, site in play.sites.items():
        stories[place] = []
        for k in range(count + 1):
            for sent in itertools.combinations(places, k):
                try:
                    stories[place].append(site.unmask(sent)[1:])
                except InputError:
                    continue
        assert stories[place]
    for told in itertools.product(*stories.values()):
        seeds = Counter(p for given, _ in told for p in given)
        keys = Counter(p for _, given in told for p in given)
        assert not any(seeds[p] >= needed and keys[p] >= needed for p in places)
        opened_alone = [p for p in places if seeds[p] >= needed]
        lost = [p for p in places if keys[p] >= needed]
        # A vector lies bare where its seed is known, and of every pair one key.
        assert len(opened_alone) + len(lost) <= count
        assert count - len(lost) >= 2


def test_the_server_notices_what_is_no_answer() -> None:
    play = Play(3)
    offers = {p: one.public for p, one in play.sites.items()}
    short = {**offers, "1": (offers["1"][0], b"short")}
    assert set(play.server.with_keys(short)[1]) == {"1"}
    play.keys()
    given = {p: one.share(play.server.keys, 2)[1] for p, one in play.sites.items()}
    broken = {p: s for p, s in given["2"].items() if p != "0"}
    assert set(play.server.with_shares({**given, "2": broken})[1]) == {"2"}
    assert set(play.server.with_shares({**given, "2": {**given["2"], "0": b""}})[1]) == {"2"}
    play.shares().masked()
    short_vector = {**play.server.vectors, "0": play.vectors["0"][1:]}
    assert set(play.server.with_vectors(short_vector, SIZE)[1]) == {"0"}
    shares = {p: one.unmask("012")[1:] for p, one in play.sites.items()}
    seeds, keys = shares["0"]
    for lie in (
        ({**seeds, "1": b""}, keys),
        ({p: s for p, s in seeds.items() if p != "1"}, keys),
        (seeds, {"1": seeds["1"]}),
        (shares["1"][0], keys),  # another site's shares
    ):
        total, faults = play.server.opened({**shares, "0": lie})
        assert set(faults) == {"0"} and (total == sum_of(play.vectors, "012")).all()


def test_wrong_shares_give_no_sum_or_one_that_looks_random() -> None:
    play = Play(3).keys().shares().masked("2")
    shares = {p: play.sites[p].unmask("01")[1:] for p in "01"}
    seeds, keys = shares["0"]
    wrong_key = {"2": keys["2"][:-1] + bytes([keys["2"][-1] ^ 1])}
    with pytest.raises(NoSum, match=r"another key|do not belong together"):
        play.server.opened({**shares, "0": (seeds, wrong_key)})
    wrong_seed = {**seeds, "1": seeds["1"][:10] + bytes([seeds["1"][10] ^ 1]) + seeds["1"][11:]}
    total, _ = play.server.opened({**shares, "0": (wrong_seed, keys)})
    assert (total != sum_of(play.vectors, "01")).all()


def test_primitives() -> None:
    (secret, public), (other, other_public) = key_pair(), key_pair()
    assert public_of(secret) == public and len(public) == 32
    key = agreed_key(secret, other_public, "x")
    assert key == agreed_key(other, public, "x") != agreed_key(other, public, "y")
    assert (mask(key, 9, "x")[:5] == mask(key, 5, "x")).all()
    assert (mask(key, 9, "x") != mask(key, 9, "y")).all()
    assert opened(key, sealed(key, b"content", "a to b"), "a to b") == b"content"
    with pytest.raises(InputError):
        opened(key, sealed(key, b"content", "a to b"), "b to a")
    shares = split(secret, 3, list("abcde"))
    assert all(len(one) == SHARE for one in shares.values())
    for some in itertools.combinations("abcde", 3):
        assert rejoined({p: shares[p] for p in some}, 3) == secret
    with pytest.raises(InputError, match="2 shares of a secret, and 3 are needed"):
        rejoined({p: shares[p] for p in "ab"}, 3)


def test_secrets_are_not_shown() -> None:
    site: SiteSession = Play(2).keys().shares().masked().sites["0"]
    text = repr(site)
    for secret in (site.sealing, site.masking, site.seed, site.own):
        assert repr(secret) not in text
