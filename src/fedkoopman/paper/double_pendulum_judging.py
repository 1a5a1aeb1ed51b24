"""What the runs on the measured double pendulum say: the claims, judged.

Some are about the samples themselves: when the pendulums begin to move, what moves them, and
whether the paper's equation holds there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedkoopman.paper.arms import Measured
from fedkoopman.paper.double_pendulum_arms import (
    ALL,
    CONSECUTIVE,
    EXCLUDED,
    FREE,
    FREE_MATCHED,
    LATER,
    LATER_CONSECUTIVE,
    LINEAR,
    LINEAR_CONSECUTIVE,
    LINEAR_FREE,
    LINEAR_MATCHED,
    LINEAR_PERFECT,
    RANDOM,
)
from fedkoopman.paper.double_pendulum_limits import EQUATION, HOLD
from fedkoopman.paper.double_pendulum_motion import AFTER, FIRST, LAST, MOVED
from fedkoopman.paper.double_pendulum_notes import notes
from fedkoopman.paper.double_pendulum_parts import HELD, MOVING
from fedkoopman.paper.double_pendulum_shown import numbers, panels, table
from fedkoopman.paper.items import FAILS, Claim, Findings
from fedkoopman.paper.judging import converges, shown
from fedkoopman.paper.verdicts import Part, all_of, by_reading, compared, fact, number, ratio

AROUND = 250
"""Samples from 1000 that still are “around” it: half a second."""
SUBSIDED = 2.0
"""Motion has largely subsided if its speed has fallen by this factor."""
INFORMED = 10.0
"""Samples are informative if training on them alone lowers the test loss by this factor."""
OBEYED = 0.5
"""The equation explains accelerations if their R² is above this."""
LINK_NAMES = ("upper link", "lower link")


def judge(found: Mapping[str, Measured]) -> Findings:
    """The runs, by label, with what `fig_double_pendulum` adds to them.

    The first carries `motion` of the trials, and how many samples are `inside` the test's range;
    some have `limits`, and scores on `parts`.
    """
    return shown(
        found.values(),
        claims=(*_papers(found), *_ours(found)),
        panels=panels(found),
        notes=notes(found),
        table=table(found),
        numbers=numbers(found),
    )


def _papers(found: Mapping[str, Measured]) -> tuple[Claim, ...]:
    trials = found[RANDOM].table["motion"]
    return (
        *(
            _converges(f"the {name} converges to a low level: {arm.label}", arm, [metric])
            for name, metric in (("test loss", "loss"), ("prediction error", "E"))
            for arm in (found[RANDOM], found[CONSECUTIVE])
        ),
        learned_claim(found[RANDOM]),
        begin_claim(trials),
        subsided_claim(trials),
        *excluded_claims(found[RANDOM], found[ALL], found[EXCLUDED]),
    )


def _ours(found: Mapping[str, Measured]) -> tuple[Claim, ...]:
    papers, linear = "the paper's network", "a linear network"
    better = "predicts better than persistence"
    both = found[RANDOM], found[CONSECUTIVE]
    linears = found[LINEAR], found[LINEAR_CONSECUTIVE]
    return (
        *obeyed_claims(found[RANDOM].table["motion"]),
        *(equation_claim(found[label]) for label in (FREE, FREE_MATCHED)),
        *(
            _converges(f"test loss and prediction error converge: {arm.label}", arm, ["loss", "E"])
            for arm in (found[FREE], found[FREE_MATCHED])
        ),
        _beats(f"{papers} {better}", both, _autoencoder(both)),
        *(parts_claim(f"{papers} {better}, test samples {p}", both, p) for p in (HELD, MOVING)),
        _beats(
            f"{papers} {better}, free motion only",
            (found[FREE], found[FREE_MATCHED]),
            _autoencoder((found[FREE], found[FREE_MATCHED])),
        ),
        _beats(f"{linear} {better}, random windows", [found[LINEAR]]),
        _beats(f"{linear} {better}, consecutive windows", [found[LINEAR_CONSECUTIVE]]),
        _beats(f"{linear} {better}, perfect data", [found[LINEAR_PERFECT]]),
        *(parts_claim(f"{linear} {better}, test samples {p}", linears, p) for p in (HELD, MOVING)),
        _beats(
            f"{linear} {better}, samples that had no part in its choice",
            (found[LATER], found[LATER_CONSECUTIVE]),
            "the network was chosen by its score on the other test samples",
        ),
        _beats(
            f"{linear} {better}, free motion only",
            (found[LINEAR_FREE], found[LINEAR_MATCHED]),
            "free motion is not linear: see what the best linear map of one state reaches",
        ),
    )


def learned_claim(arm: Measured) -> Claim:
    """KF-FedKL learns the nonlinear dynamics: it converges, or it predicts something."""
    text = "KF-FedKL effectively learns the nonlinear dynamics from measured data"
    return by_reading(
        text,
        {
            "the test loss converges": _converges(text, arm, ["loss"]),
            "it predicts better than persistence": _beats(text, [arm], ours=False),
        },
    )


def begin_claim(trials: Sequence[Mapping[str, Any]]) -> Claim:
    """The pendulums begin to move around sample 1000: moved by a hand, or by themselves."""
    text = f"the pendulums begin to move around sample {FIRST}"

    def near(samples: Sequence[int | None], what: str) -> Claim:
        close = all(one is not None and abs(one - FIRST) <= AROUND for one in samples)
        told = ", ".join("never" if one is None else f"{one:,}" for one in samples)
        return all_of(text, [fact(close, f"{what}, by trial: {told}")])

    begins = [trial["begins"] for trial in trials]
    releases = [trial["release"] for trial in trials]
    return by_reading(
        text,
        {
            "moved at all, by the hand that lifts them": near(
                begins, f"first sample more than {MOVED} rad from the start"
            ),
            "moving freely": near(releases, "first sample after they are let go"),
        },
    )


def subsided_claim(trials: Sequence[Mapping[str, Any]]) -> Claim:
    """The motion has largely subsided by sample 6000."""
    used, after = (np.array([trial[part] for trial in trials]) for part in ("used", "after"))
    last = min(trial["last"] for trial in trials)
    falls = [
        ratio(used[:, i], after[:, i]).above(
            SUBSIDED,
            f"{link} {number(used[:, i].mean())} to {number(after[:, i].mean())} rad/s, a fall by",
        )
        for i, link in enumerate(LINK_NAMES)
    ]
    found = all_of(
        f"the motion has largely subsided by sample {LAST}",
        falls,
        lead=f"root mean square speed, from the release to sample {LAST} against {AFTER[0]} to "
        f"{last}: ",
    )
    return replace(found, detail=found.detail.replace("seeds", "trials"))


def excluded_claims(papers: Measured, every: Measured, others: Measured) -> tuple[Claim, Claim]:
    """The two things that the paper says of the samples that it leaves out.

    Arguments:
        papers, every, others: trained on the paper's samples, on all, on those after its own.
    """
    start, near = "the excluded samples are", papers.table["inside"]
    learns = ratio(others.untrained("loss"), others.tail("loss")).above(
        INFORMED, f"{others.label}, untrained to final"
    )
    return (
        all_of(
            f"{start} harmful to training",
            compared([(f"{every.label} to the paper's", every.tail("loss"), papers.tail("loss"))]),
            lead="test loss on the paper's test samples: ",
        ),
        all_of(
            f"{start} noninformative",
            [learns.opposite],
            f"the network learns from them alone; {100 * near['after']:.0f} % of them and "
            f"{100 * near['papers']:.0f} % of the paper's samples have angles in the test's range, "
            "others are turns away, which may be why they teach less about it",
            lead="test loss on the paper's test samples: ",
        ),
    )


def obeyed_claims(trials: Sequence[Mapping[str, Any]]) -> tuple[Claim, Claim]:
    """Whether the paper's equation explains its samples, on either side of the release."""

    def one(part: str, where: str, why: str) -> Claim:
        values = [trial[part]["both"] for trial in trials]
        told = ", ".join(f"{value:.3f}".replace("-", "−") for value in values)
        return all_of(
            f"the paper's equation explains the accelerations {where}",
            [fact(min(values) > OBEYED, f"R² by trial: {told}")],
            why,
            ours=True,
        )

    return (
        one("before", "of its samples before the release", "a hand lifts and holds the links"),
        one("free", "of its samples after the release", ""),
    )


def equation_claim(arm: Measured) -> Claim:
    """Whether one step of the equation from the recorded states is better than holding them."""
    held, equation = (np.array(arm.table["limits"]["errors"][way]) for way in (HOLD, EQUATION))
    gains = ", ".join(f"×{number(value)}" for value in held / equation)
    return all_of(
        f"one step of the paper's equation predicts better than persistence: {arm.label}",
        [fact(bool((equation < held).all()), f"persistence to equation, θ₁, ω₁, θ₂, ω₂: {gains}")],
        "a velocity that is a mean over 0.8 s does not change as the equation says",
        ours=True,
    )


def _beats(text: str, arms: Iterable[Measured], why: str = "", ours: bool = True) -> Claim:
    pairs = [
        (f"{arm.label}, {name}", arm.persistence(held), arm.tail(metric))
        for arm in arms
        for name, held, metric in (("ℓ₃", "l3", "l3"), ("E₁", "E", "E1"))
    ]
    return all_of(text, compared(pairs), why, lead="persistence to model: ", ours=ours)


def parts_claim(text: str, arms: Iterable[Measured], part: str) -> Claim:
    """Whether final models beat persistence on one part of the test samples."""
    pairs = []
    for arm in arms:
        scores = arm.table["parts"][part]
        for name, metric in (("ℓ₃", "l3"), ("E₁", "E1")):
            models = np.array(scores["models"][metric], float)
            held = np.full_like(models, scores["persistence"][metric])
            pairs.append((f"{arm.label}, {name}", held, models))
    lead = "persistence to final model: "
    return all_of(text, compared(pairs), lead=lead, ours=True)


def _converges(text: str, arm: Measured, metrics: Sequence[str]) -> Claim:
    """Whether scores have fallen, and are at the end about as low as they have ever been."""
    parts: list[Part] = []
    causes: dict[str, None] = {}
    for metric in metrics:
        fallen, stays = converges(arm, metric)
        parts += [fallen, stays]
        if fallen.verdict == FAILS:
            causes["it fell by less in these runs"] = None
        if stays.verdict == FAILS:
            causes["it rises again after its best slots"] = None
            if arm.label == CONSECUTIVE:
                why = "the last windows are later samples than the test's, which may be why"
                causes[why] = None
    return all_of(text, parts, "; ".join(causes), ours=len(metrics) > 1)


def _autoencoder(arms: Iterable[Measured]) -> str:
    """How bad reconstruction is, if it alone is worse than persistence; else nothing."""
    found = [(arm.label, ratio(arm.tail("l2"), arm.persistence("l3"))) for arm in arms]
    if any(not one.low > 1 for _, one in found):
        return ""
    told = ", ".join(f"{label} {one.words}" for label, one in found)
    return f"it does not give back a state that it is shown: test ℓ₂ to persistence's ℓ₃ {told}"
