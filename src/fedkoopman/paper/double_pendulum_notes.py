"""What a reader must know of the measured double pendulum, in sentences made from the numbers."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedkoopman.paper.arms import Measured
from fedkoopman.paper.double_pendulum_arms import FREE, FREE_MATCHED, FREE_TEST, LINEAR, RANDOM
from fedkoopman.paper.double_pendulum_data import INTERVAL
from fedkoopman.paper.double_pendulum_limits import (
    EQUATION,
    ESTIMATED,
    HOLD,
    TRUE,
    TWO,
    TWO_ESTIMATED,
    VELOCITY,
)
from fedkoopman.paper.double_pendulum_motion import (
    DEGREE,
    FIRST,
    LAST,
    MOVED,
    TEST_LAST,
    WIDTH,
)
from fedkoopman.paper.double_pendulum_parts import HELD, MOVING
from fedkoopman.paper.judging import CONVERGES
from fedkoopman.paper.verdicts import number


def notes(found: Mapping[str, Measured]) -> tuple[str, ...]:
    """About the samples, the readings, persistence, and what can be reached."""
    first = found[RANDOM]
    return (
        _slices(first.table["limits"]["test"]),
        *motion_notes(first.table["motion"]),
        "The paper does not say how 100 samples are taken in a slot: both readings are judged. "
        f"“Converges to a low level” is read as: it converges. {CONVERGES}",
        _readings(),
        _persistence(first.table["parts"]),
        *_reachable(first.table["limits"]),
        _matched(found[FREE].table["limits"], found[FREE_MATCHED].table["limits"]),
        "The linear network differs from the paper's in "
        f"{_differences(first.table['study'], found[LINEAR].table['study'])}. This setting was "
        "chosen by its score on these same test samples, so that its rows prove little. Samples "
        "3000 to 5000 of trial 3 had no part in the choice; the rows on them and on free motion "
        "are those to go by.",
    )


def _slices(test: Sequence[int]) -> str:
    return (
        "Training: samples 1000 to 6000 of trials 1 and 2, of which a client and slot draw one at "
        f"random; test: samples from 1000 to 3000 of trial 3, as {test[0]} trajectories of "
        f"{test[1]} steps that share their ends. Velocities are the difference over 200 samples on "
        "either side, which the paper prints with its sign reversed. Free motion: from the release "
        f"to 6000 in trials 1 and 2, and {FREE_TEST} samples from the release in trial 3. The "
        "studies' CSV files are in runs/double-pendulum-data."
    )


def motion_notes(trials: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """What happens in the trials, and how much of the paper's samples is no free motion."""
    released = [trial["release"] for trial in trials]
    train, test = shares(trials)
    before, after = ([trial[part]["both"] for trial in trials] for part in ("before", "free"))
    lowest, highest = zip(*(trial["energies"] for trial in trials), strict=True)
    return (
        f"Not all of the paper's samples are free motion. The pendulum hangs at rest, is "
        f"lifted by hand from about sample {FIRST} on (panel d: its energy rises from 0 to 1.734 "
        "J, that of both links pointing up), is held there almost still, and is let go at samples "
        f"{_listed(f'{one:,}' for one in released)} of trials 1 to 3 "
        f"({_listed(f'{one * INTERVAL:.2f}' for one in released)} s). So about "
        f"{100 * test:.0f} % of the test samples and {100 * train:.0f} % of the training samples "
        "are a hand's motion, for which the paper's equation is no model: R² of the accelerations "
        "that it gives is "
        f"{_listed(map(_signed, before))} before and {_listed(map(_signed, after))} after the "
        "release (fig-double-pendulum-motion.csv). How far below 0 it is depends on the smoothing, "
        "its sign does not.",
        f"The release ends the longest time in which both links point up and neither turns faster "
        "than 100°/s. A link that is let go near its highest point starts slowly: the hand may "
        "have left it 0.1 to 0.2 s earlier. Accelerations are those of a polynomial of degree "
        f"{DEGREE} through {WIDTH} angles ({(WIDTH - 1) * INTERVAL * 1000:.0f} ms). The energy "
        f"then wanders between {min(lowest):.2f} and {max(highest):.2f} J within a second, though "
        "nothing adds any: the equation has point masses, the links are bodies. In panel e each "
        "point is the root mean square residual of 0.2 s over that of the acceleration; 1 is what "
        "predicting 0 leaves.",
    )


def shares(trials: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Share of the training and of the test samples that lie before the release."""
    *train, test = (trial["release"] - FIRST for trial in trials)
    return sum(train) / len(train) / (LAST - FIRST), test / (TEST_LAST - FIRST)


def _readings() -> str:
    return (
        f"Motion: a link has moved where its angle is {MOVED} rad from its first; “around sample "
        "1000” is read as within 250 samples (half a second) of it, “largely subsided” as a root "
        "mean square speed, by differences of neighbouring angles, at least 2 times lower; "
        "intervals are over the trials. “Harmful”: windows of all samples instead of the paper's "
        "give a higher test loss. “Noninformative”: windows after sample 6000 alone do not lower "
        "the test loss tenfold. Both are tested on the paper's test samples. Samples before 1000 "
        "alone are not run: the pendulum hangs at rest."
    )


def _persistence(parts: Mapping[str, Any]) -> str:
    held, free = (parts[part]["persistence"]["l3"] for part in (HELD, MOVING))
    return (
        "Persistence is the identity as lift with K = I. It is compared by ℓ₃ and E₁, which are in "
        "units of the states; ℓ₁, E₂ and so the loss and E depend on the scale of the lift too. "
        f"Its ℓ₃ is {number(held)} before the release ({parts[HELD]['windows']} windows of the "
        f"test) and {number(free)} after it ({parts[MOVING]['windows']} windows): most of the "
        "test is easy for it because almost nothing moves. Scores on the parts are of the final "
        "model of each seed, not means over the last slots."
    )


def _reachable(limits: Mapping[str, Any]) -> tuple[str, str]:
    errors, mean = limits["errors"], partial(_mean, limits)

    def gain(two: str, one: str) -> str:
        return number(float(np.mean(errors[two]) / np.mean(errors[one])))

    return (
        "What can be had at 2 ms, as mean squared one-step errors of θ₁, ω₁, θ₂, ω₂ on the test "
        f"samples: persistence {_by_state(limits, HOLD)}; angles advanced by the recorded "
        f"velocities {_by_state(limits, VELOCITY)}; the paper's equation from the recorded states "
        f"{_by_state(limits, EQUATION)}. A velocity is a difference over 0.8 s: how it changes "
        "depends on angles 0.4 s earlier and later, which the state does not hold.",
        "The best linear map of one state to the next, by least squares over all that the first "
        f"seed's clients hold, has the mean {mean(TRUE)} with true and {mean(ESTIMATED)} with "
        f"estimated states (persistence {mean(HOLD)}); of two states {mean(TWO)} and "
        f"{mean(TWO_ESTIMATED)}, {gain(TWO, TRUE)} and {gain(TWO_ESTIMATED, ESTIMATED)} times as "
        "much. Root mean square errors of the estimated states: "
        f"{', '.join(number(v) for v in limits['estimates'])}.",
    )


def _matched(papers: Mapping[str, Any], matched: Mapping[str, Any]) -> str:
    return (
        "Matched velocities are the local polynomial's: summed up they give the angles' own steps. "
        "On free motion one-step errors are, with them, "
        f"{_by_state(matched, HOLD)} for persistence and {_by_state(matched, EQUATION)} for the "
        f"paper's equation; with the paper's velocities {_by_state(papers, HOLD)} and "
        f"{_by_state(papers, EQUATION)}. Persistence is worse with matched velocities because they "
        "change faster: scores of the two kinds are not to be compared, only each with its own "
        f"persistence. The best linear map of one true state has the means {_mean(papers, TRUE)} "
        f"and {_mean(matched, TRUE)} there (persistence {_mean(papers, HOLD)} and "
        f"{_mean(matched, HOLD)}) with the paper's and with matched velocities."
    )


def _by_state(limits: Mapping[str, Any], label: str) -> str:
    return ", ".join(number(value) for value in limits["errors"][label])


def _mean(limits: Mapping[str, Any], label: str) -> str:
    return number(float(np.mean(limits["errors"][label])))


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _listed(words: Any) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}"


def _differences(first: str, second: str) -> str:
    """The keys in which the second of two studies, given as TOML, differs from the first."""
    before, after = (_flat(tomllib.loads(text)) for text in (first, second))
    keys = [key for key in after if key != "name" and after[key] != before.get(key)]
    return ", ".join(f"{key} = {after[key]}" for key in keys)


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return found
