"""Every aggregator: the form of what it gives, and what it makes of updates that agree."""

import numpy as np
import pytest
from reference.extension import member
from reference.federations import first_weights, flat, model_bytes

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators import AGGREGATORS, aggregate

RULES = {name: AGGREGATORS.find(name) for name in AGGREGATORS}
RULES["trimmed-mean"] = member("trimmed_mean", "AGGREGATOR")


@pytest.fixture(params=RULES.values(), ids=RULES)
def rule(request):
    return request.param


def updates(count, dtype=np.float32):
    return [{n: x.astype(dtype) for n, x in first_weights(k).items()} for k in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_updates_are_their_own_aggregate(rule, count, dtype):
    one = updates(1, dtype)[0]
    found = aggregate(rule, updates(2, dtype)[1], [one] * count, range(1, count + 1))
    assert {name: leaf.dtype for name, leaf in found.items()} == dict.fromkeys(one, dtype)
    np.testing.assert_allclose(flat(found), flat(one), rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_order_of_clients_changes_rounding_only(rule, count):
    given, sizes = updates(count, np.float64), list(range(1, count + 1))
    found = aggregate(rule, given[0], given, sizes)
    backwards = aggregate(rule, given[0], given[::-1], sizes[::-1])
    np.testing.assert_allclose(flat(found), flat(backwards), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_an_aggregate_lies_between_its_updates(rule, count):
    given = updates(count, np.float64)
    found = flat(aggregate(rule, given[0], given, [1] * count))
    stacked = np.stack([flat(one) for one in given])
    assert (found >= stacked.min(axis=0) - 1e-12).all()
    assert (found <= stacked.max(axis=0) + 1e-12).all()


def test_the_unit_of_sizes_does_not_matter(rule):
    given = updates(3, np.float64)
    one, other = (aggregate(rule, given[0], given, [k, 2 * k, 5 * k]) for k in (1, 300))
    np.testing.assert_allclose(flat(one), flat(other), rtol=1e-14)


def test_updates_are_left_as_they_are(rule):
    given = updates(3)
    before = [model_bytes(one) for one in given]
    aggregate(rule, given[0], given, [1, 2, 3])
    assert [model_bytes(one) for one in given] == before


BAD = {
    "nothing": lambda *_: None,
    "a number": lambda *_: 3.0,
    "other names": lambda current, *_: {f"{n}x": v for n, v in current.items()},
    "other shapes": lambda current, *_: {n: v[:1] for n, v in current.items()},
    "another type": lambda current, *_: {n: v.astype(int) for n, v in current.items()},
    "not finite": lambda current, *_: {n: v * np.nan for n, v in current.items()},
    "ragged": lambda current, *_: {name: [[1], [1, 2]] for name in current},
}


@pytest.mark.parametrize("rule_", BAD.values(), ids=BAD)
def test_a_rule_of_the_users_own_is_held_to_its_form(rule_):
    given = updates(2)
    with pytest.raises(InputError, match="the aggregator gave") as caught:
        aggregate(rule_, given[0], given, [1, 1])
    assert "\n" not in str(caught.value)
