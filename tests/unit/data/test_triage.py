"""What becomes of a segment, and which are held out, is decided by one rule each."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import Estimated, held_out, holds_out, triage

STUDY = Study.from_dict({"network": {"window": 2, "depth": 3}, "evaluation": {"horizon": 4}})


def segment(samples: int, observed: bool = True) -> Segment:
    z = np.full((samples, 1), 1.0 if observed else np.nan)
    return Segment("lab", "a", Path("a.csv"), z, None, 0.0, False, 0, ("z",), None)


@pytest.mark.parametrize(
    ("samples", "observed", "implausible", "held", "kind", "reason"),
    [
        (5, True, "", False, "train", ""),
        (4, True, "lost", False, "dropped", "4 samples, fewer than the 5 that training needs"),
        (14, True, "", True, "held-out", ""),
        (13, True, "", True, "dropped", "13 samples, fewer than the 14 that evaluation needs"),
        (5, False, "lost", False, "dropped", "nothing was observed"),
        (5, True, "lost", False, "dropped", "lost"),
        (14, True, "lost", True, "dropped", "lost"),
    ],
)
def test_a_segment_is_used_or_dropped_for_a_reason(
    samples: int, observed: bool, implausible: str, held: bool, kind: str, reason: str
) -> None:
    one = segment(samples, observed)
    fate = triage(STUDY, Estimated(one, np.zeros((samples, 2)), implausible), held)
    assert (fate.kind, fate.reason) == (kind, reason)


@given(st.floats(0, 0.9), st.integers(1, 60))
def test_a_recorded_site_follows_the_rule_of_a_live_one(share: float, count: int) -> None:
    """They differ only where the rule holds out none: then the last of several segments is."""
    names = [str(n) for n in range(count)]
    live = [holds_out(share, n, (names[n],)) for n in range(count)]
    recorded = list(held_out(share, names, names))
    if any(live) or share == 0 or count == 1:
        assert recorded == live
    else:
        assert recorded == [False] * (count - 1) + [True]


def test_the_split_of_the_pendulum_example() -> None:
    names = [str(n) for n in range(10)]
    assert [n for n, kept in enumerate(held_out(0.2, names, names)) if kept] == [4, 9]
