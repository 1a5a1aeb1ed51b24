"""Sums of whole numbers: exact to a stated bound, never overflowing, the same for both engines."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from reference.federations import clients, experiment, run

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.messages import ArrayField, Message, NumberField, Schema
from fedkoopman.federation.options import AggregationOptions
from fedkoopman.federation.quantised import (
    DIGIT,
    MOST_SAMPLES,
    MOST_SITES,
    added,
    check_sums,
    layout_of,
    longest_change,
    pooled,
)
from fedkoopman.federation.slot import Judged, summable

SHAPES = {"b": ArrayField((3, 4), "float32"), "a": ArrayField((5,), "float32")}
SCHEMAS = {
    "train": Schema("weights", SHAPES, reply="update"),
    "update": Schema("weights", SHAPES, changes=True, additive=True),
    "measure": Schema("nothing", reply="sums"),
    "sums": Schema(
        "sums", {"s": ArrayField((6,), "float64")}, {"pairs": NumberField(0, 1e12)}, additive=True
    ),
    "single": Schema("nothing", reply="one"),
    "one": Schema("weights", SHAPES, changes=True),
}
PROBLEM = experiment().problem


def weights(random: np.random.Generator, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {
        name: (scale * random.normal(size=one.shape)).astype(np.float32)
        for name, one in SHAPES.items()
    }


def exact_mean(request: Message, replies: list[Message], sizes: list[int]) -> dict:
    """ω + Σ n (ω_n − ω) / Σ n, in fractions."""
    found = {}
    for name, leaf in request.arrays.items():
        flat = []
        for i, start in enumerate(leaf.ravel().tolist()):
            moved = sum(
                n * (Fraction(float(one.arrays[name].ravel()[i])) - Fraction(start))
                for one, n in zip(replies, sizes, strict=True)
            )
            flat.append(Fraction(start) + moved / sum(sizes))
        found[name] = flat
    return found


@pytest.mark.parametrize("sites", [2, 3, 10])
def test_a_mean_is_exact_to_its_stated_bound(sites: int) -> None:
    random = np.random.default_rng(sites)
    request = Message("train", weights(random))
    current = {name: leaf.astype(np.float64) for name, leaf in request.arrays.items()}
    replies = [
        Message("update", {n: request.arrays[n] + leaf for n, leaf in weights(random, 0.1).items()})
        for _ in range(sites)
    ]
    sizes = random.integers(100, 5000, sites).tolist()
    wide = {
        **SCHEMAS,
        "update": replace(
            SCHEMAS["update"],
            arrays={n: replace(one, dtype="float64") for n, one in SHAPES.items()},
        ),
    }
    asked = {
        n: (request, Answered(r, k, (n,)))
        for n, (r, k) in enumerate(zip(replies, sizes, strict=True))
    }
    total = pooled(wide, asked)
    bound = longest_change(request.arrays)
    allowed = sites * bound * 2.0**-51 / sum(sizes)
    for name, wanted in exact_mean(request, replies, sizes).items():
        for got, value in zip(total.message.arrays[name].ravel(), wanted, strict=True):
            rounding = 4 * sites * 2.0**-53 * max(1.0, abs(float(value)))  # of float64
            assert abs(Fraction(float(got)) - value) <= allowed + rounding
    assert allowed < 1e-15  # far below what float32 can hold
    assert total.samples == sum(sizes) and total.clients == tuple(range(sites))
    # In float32 it is what the mean of the updates is, to the last bits.
    narrow = pooled(SCHEMAS, asked).message.arrays
    for name, leaf in narrow.items():
        mean = sum(
            k * one.arrays[name].astype(float) for one, k in zip(replies, sizes, strict=True)
        ) / sum(sizes)
        assert leaf.dtype == np.float32
        np.testing.assert_allclose(leaf, mean, rtol=0, atol=1e-6)
    assert all(current[name].shape == narrow[name].shape for name in current)


def test_sums_over_many_magnitudes_are_exact() -> None:
    random = np.random.default_rng(0)
    replies = [
        Message(
            "sums",
            {"s": random.normal(size=6) * 10.0 ** np.array([-20, -9, 0, 6, 15, 28])},
            {"pairs": float(random.integers(1, 1000))},
        )
        for _ in range(7)
    ]
    asked = {n: (Message("measure"), Answered(one, 10, (n,))) for n, one in enumerate(replies)}
    total = pooled(SCHEMAS, asked)
    for i, got in enumerate(total.message.arrays["s"]):
        wanted = sum(Fraction(float(one.arrays["s"][i])) for one in replies)
        assert abs(Fraction(float(got)) - wanted) <= 7 * 2.0**-101 + 2.0**-51 * abs(float(wanted))
    assert total.message.numbers == {"pairs": sum(one.numbers["pairs"] for one in replies)}
    too_large = Message("sums", {"s": np.full(6, 2.0**101)}, {"pairs": 1.0})
    with pytest.raises(InputError, match="choose larger units"):
        pooled(SCHEMAS, {0: (Message("measure"), Answered(too_large, 1, (0,)))})


@pytest.mark.parametrize("sign", [1, -1])
def test_no_number_of_sites_overflows(sign: int) -> None:
    """The largest change from the largest number of samples, of four million sites."""
    random = np.random.default_rng(1)
    request = Message("train", weights(random))
    layout = layout_of(SCHEMAS, request)
    far = {name: leaf.copy() for name, leaf in request.arrays.items()}
    far["a"][0] += np.float32(sign * layout.longest)
    one = layout.encoded(request, Message("update", far), MOST_SAMPLES)
    assert abs(one.view(np.int64)).max() <= 2**DIGIT
    total = one * np.uint64(MOST_SITES)  # modulo 2⁶⁴, as they are added up
    found, samples = layout.decoded(request, total, MOST_SITES)
    assert samples == MOST_SITES * MOST_SAMPLES
    for name, leaf in found.arrays.items():
        np.testing.assert_allclose(leaf, far[name], rtol=2e-7)
    with pytest.raises(InputError, match="takes at most 1,073,741,824"):
        layout.encoded(request, Message("update", far), MOST_SAMPLES + 1)


def test_sites_shorten_their_changes_and_longer_sums_are_refused() -> None:
    random = np.random.default_rng(2)
    request = Message("train", weights(random))
    layout = layout_of(SCHEMAS, request)
    norm = math.sqrt(sum(float((x.astype(float) ** 2).sum()) for x in request.arrays.values()))
    assert 10 * norm <= layout.longest < 20 * norm and math.frexp(layout.longest)[0] == 0.5
    huge = Message("update", {name: leaf * 1000 for name, leaf in request.arrays.items()})
    found, _ = layout.decoded(request, layout.encoded(request, huge, 300), 1)
    moved = {name: found.arrays[name].astype(float) - request.arrays[name] for name in SHAPES}
    length = math.sqrt(sum((x**2).sum() for x in moved.values()))
    assert length == pytest.approx(layout.longest, rel=1e-6)
    # A site that does not shorten its own is seen in the sum.
    cheating = replace(layout, longest=math.inf).encoded(request, huge, 300)
    honest = layout.encoded(request, Message("update", request.arrays), 300)
    with pytest.raises(InputError, match="changes the model by"):
        layout.decoded(request, added([cheating, honest]), 2)
    with pytest.raises(InputError, match="out of range"):
        layout.decoded(request, random.integers(0, 2**64, layout.size, np.uint64), 3)
    with pytest.raises(InputError, match="out of range"):
        layout.decoded(request, np.full(layout.size, 2**63, np.uint64), 3)
    with pytest.raises(InputError, match="words"):
        layout.decoded(request, honest[:-1], 3)
    with pytest.raises(InputError, match="every single 'one'"):
        layout_of(SCHEMAS, Message("single"))


def test_an_algorithm_that_needs_single_replies_is_refused() -> None:
    class Sees(FedAvgM):
        def messages(self, problem):
            found = super().messages(problem)
            return {**found, "update": replace(found["update"], additive=False)}

    check_sums(PROBLEM)
    with pytest.raises(InputError, match=r"every single 'update'.*algorithm\.name"):
        check_sums(replace(PROBLEM, algorithm=Sees()))


SECURE = AggregationOptions(secure=True)


def test_a_run_with_sums_only_is_close_to_one_without_and_never_asks_one_site() -> None:
    e = experiment(slots=12, clients=clients(3, probability=0.4))
    plain, secure = run(e), run(replace(e, aggregation=SECURE))
    alone = [one.record for one in secure if one.record.get("alone")]
    active = [one.record["active"] for one in secure]
    assert alone and all(record["active"] == [] for record in alone)
    assert any(active) and all(len(who) != 1 for who in active)
    assert any(len(one.record["active"]) == 1 for one in plain)
    # Nobody's data are lost by waiting.
    samples = [sum(record["samples"] for record in (o.record for o in r)) for r in (plain, secure)]
    waiting = [sum(map(len, r[-1].state.buffers)) * e.steps for r in (plain, secure)]
    assert samples[0] + waiting[0] == samples[1] + waiting[1]
    # Where everybody trains in every slot, the only difference is rounding.
    e = experiment(slots=3, clients=clients(3, probability=1.0))
    plain, secure = run(e), run(replace(e, aggregation=SECURE))
    for one, other in zip(plain, secure, strict=True):
        assert one.record["active"] == other.record["active"]
        for name, leaf in one.state.arrays.items():
            np.testing.assert_allclose(other.state.arrays[name], leaf, rtol=1e-9, atol=1e-12)


def test_a_site_with_nothing_useful_to_send_waits() -> None:
    class Spoilt(FedAvgM):
        def answer(self, problem, request, segments, asked):
            found = super().answer(problem, request, segments, asked)
            if asked.slot == 2 and asked.learning_rate == 0.002:
                return replace(found, arrays={n: x * np.nan for n, x in found.arrays.items()})
            return found

    everybody = clients(3, probability=1.0)
    spoilt = replace(everybody[2], learning_rate=0.002)
    e = experiment(
        slots=3, clients=(*everybody[:2], spoilt), algorithm=Spoilt(), aggregation=SECURE
    )
    found = [one.record for one in run(e)]
    by_slot = {record["slot"]: record for record in found}
    assert by_slot[2]["active"] == [0, 1] and by_slot[2]["late"] == [2]
    assert by_slot[3]["active"] == [0, 1, 2]
    assert by_slot[3]["samples"] == 4 * e.steps  # the last one has two segments now


def test_one_site_alone_is_not_asked() -> None:
    secure = replace(PROBLEM, aggregation=SECURE)
    one, two = {1: Message("train")}, {0: Message("train"), 2: Message("train")}
    assert summable(PROBLEM, one) == (one, ())
    assert summable(secure, one) == ({}, (1,))
    assert summable(secure, two) == (two, ())
    assert summable(secure, {}) == ({}, ())
    assert Judged(0, 1).accepted is False


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"aggregation.guard": "on"}, r'aggregation\.guard is "on"'),
        ({"policy.name": "round-robin"}, "one client trains at a time"),
        ({"policy.name": "random"}, "one client trains at a time"),
        ({"clients.count": 1}, "no two updates"),
        ({"scheme": "centralized"}, "no two updates"),
        ({"scheme": "single-client"}, "no two updates"),
        ({"aggregation.rule": "rule.py:rule"}, r'aggregation\.rule is "rule\.py:rule"'),
        ({"privacy.mode": "central"}, r'privacy\.mode is "central"'),
        ({"privacy.mode": "site"}, r'privacy\.mode is "site"'),
    ],
)
def test_what_needs_single_updates_is_refused_with_secure_aggregation(
    values: dict, cause: str
) -> None:
    Study().with_values(values)
    with pytest.raises(InputError, match=cause) as caught:
        Study().with_values({"aggregation.secure": True, **values})
    assert "\n" not in str(caught.value)
