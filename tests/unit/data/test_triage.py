"""What becomes of a segment, and which are held out, is decided by one rule each."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import Estimated, Fate, held_out, holds_out, triage
from fedkoopman.estimation.left_out import stretches

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


def judged(
    samples: int, held: bool, beyond: tuple[int, ...] = (), doubted: tuple[int, ...] = ()
) -> Fate:
    """A segment of numbered states, some of them outside of the bounds or too uncertain."""
    states = np.column_stack([np.arange(samples, dtype=float)] * 2)
    found = Estimated(
        segment(samples), states, "", np.isin(np.arange(samples), beyond),
        "x is 9, outside of [0, 1]",
        np.isin(np.arange(samples), doubted),
    )  # fmt: skip
    return triage(STUDY.with_values({"estimation.gate": 2.0}), found, held)


def test_samples_are_left_out_and_not_the_segment() -> None:
    """Training takes five samples in a row here, so that 1 to 4 and 16 to 19 are too few."""
    fate = judged(20, False, beyond=(0, 5), doubted=(5, 15))
    assert fate.kind == "train"
    assert [part[:, 0].tolist() for part in stretches(fate.states)] == [[*range(6, 15)]]
    assert fate.reason == (
        "11 of 20 samples are left out: x is 9, outside of [0, 1] (2 such), 1 are more than 2 "
        "times as uncertain as usual, and 8 in stretches that are too short"
    )


def test_a_segment_with_nothing_left_is_dropped() -> None:
    fate = judged(20, False, beyond=(4, 9), doubted=(14, 19))
    assert fate.kind == "dropped"
    assert fate.reason.startswith("x is 9, outside of [0, 1] (2 such), 2 are more than 2 times")
    assert fate.reason.endswith(": no 5 samples in a row are left")


def test_scores_are_of_the_longest_plausible_stretch() -> None:
    """Whatever the gate says: with and without it, models are scored on the same samples."""
    fate = judged(40, True, beyond=(3, 30), doubted=(10, 20))
    assert fate.kind == "held-out" and fate.observations is not None
    assert fate.states[:, 0].tolist() == [*range(4, 30)]
    assert len(fate.observations) == 26
    assert fate.reason.startswith(
        "14 of 40 samples are left out: x is 9, outside of [0, 1] (2 such"
    )
    assert fate.reason.endswith(", and 12 beside the longest stretch")


def test_a_held_out_segment_of_which_less_than_half_is_left_is_dropped() -> None:
    """One short stretch would make all of a site's windows short."""
    assert judged(40, True, beyond=(0, 20)).kind == "dropped"
    assert judged(40, True, beyond=(19,)).kind == "held-out"
    assert judged(20, True, beyond=(13,)).kind == "dropped"  # 13 samples, and it takes 14


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
