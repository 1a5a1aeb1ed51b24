"""What the runs on the measured double pendulum say: claims, table, figure.

Speeds of `motion` are plain differences of neighbouring angles. The paper's velocity averages over
0.8 s and hides fast swings.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.paper.arms import Measured
from fedkoopman.paper.double_pendulum_data import INTERVAL
from fedkoopman.paper.items import (
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Findings,
    Numbers,
    Panel,
    Series,
    Table,
)
from fedkoopman.paper.judging import (
    CONVERGES,
    converges,
    curves,
    mean_and_spread,
    shown,
)
from fedkoopman.paper.verdicts import all_of, compared, number, ratio

HOLD = "persistence"
VELOCITY = "angles advanced by their velocities"
EQUATION = "the paper's equation"
TRUE = "linear map of one state, true states"
ESTIMATED = "linear map of one state, estimated states"
TWO = "linear map of two states, true states"
TWO_ESTIMATED = "linear map of two states, estimated states"

RANDOM = "random windows"
CONSECUTIVE = "consecutive windows"
PERFECT = "perfect data"
LINEAR = "linear network"
LINEAR_CONSECUTIVE = "linear network, consecutive windows"
LINEAR_PERFECT = "linear network, perfect data"
LATER = "linear network, later samples"
LATER_CONSECUTIVE = "linear network, consecutive windows, later samples"

COLUMNS = ("loss", "l2", "l3", "E", "E1")


def judge(found: Mapping[str, Measured]) -> Findings:
    """The runs, by label.

    The first carries what `fig_double_pendulum.limits` and `motion` give.
    """
    limits = found[RANDOM].table["limits"]
    return shown(
        found.values(),
        claims=_claims(found),
        panels=_panels(found),
        notes=_notes(found, limits),
        table=_table(found),
        numbers=(_limits_csv(limits),),
    )


def _claims(found: Mapping[str, Measured]) -> tuple[Claim, ...]:
    papers = [found[RANDOM], found[CONSECUTIVE]]

    def beats(text: str, labels: Iterable[str], why: str = "") -> Claim:
        pairs = [
            (f"{label}, {name}", found[label].persistence(held), found[label].tail(metric))
            for label in labels
            for name, held, metric in (("ℓ₃", "l3", "l3"), ("E₁", "E", "E1"))
        ]
        return all_of(text, compared(pairs), why, lead="persistence to model: ", ours=True)

    linear = "a linear network predicts better than persistence"
    return (
        *(
            _converges(f"the {name} converges to a low level: {arm.label}", arm, metric)
            for name, metric in (("test loss", "loss"), ("prediction error", "E"))
            for arm in papers
        ),
        *motion_claims(found[RANDOM].table["motion"]),
        beats(
            "the paper's network predicts better than persistence",
            (RANDOM, CONSECUTIVE),
            _autoencoder(papers),
        ),
        beats(f"{linear}, random windows", [LINEAR]),
        beats(f"{linear}, consecutive windows", [LINEAR_CONSECUTIVE]),
        beats(f"{linear}, perfect data", [LINEAR_PERFECT]),
        beats(
            f"{linear}, samples that had no part in its choice",
            (LATER, LATER_CONSECUTIVE),
            "the network was chosen by its score on the other test samples",
        ),
    )


def _converges(text: str, arm: Measured, metric: str) -> Claim:
    """Whether a score has fallen, and is at the end about as low as it has ever been."""
    fallen, stays = converges(arm, metric)
    causes = []
    if fallen.verdict == FAILS:
        causes.append("it fell by less in these runs")
    if stays.verdict == FAILS:
        causes.append("it rises again after its best slots")
        if arm.label == CONSECUTIVE:
            causes.append("the last windows are later samples than the test's, which may be why")
    return all_of(text, [fallen, stays], "; ".join(causes))


def _autoencoder(arms: Iterable[Measured]) -> str:
    """How bad reconstruction is, if it alone is worse than persistence; else nothing."""
    found = [(arm.label, ratio(arm.tail("l2"), arm.persistence("l3"))) for arm in arms]
    if any(not one.low > 1 for _, one in found):
        return ""
    told = ", ".join(f"{label} {one.words}" for label, one in found)
    return f"it does not give back a state that it is shown: test ℓ₂ to persistence's ℓ₃ {told}"


def _table(found: Mapping[str, Measured]) -> Table:
    first = found[RANDOM]
    rows = [
        (
            arm.label,
            *(mean_and_spread(arm.tail(metric)) for metric in COLUMNS),
            ratio(arm.tail("l3"), arm.persistence("l3")).words,
            f"{arm.table['renewals']:.0f}",
        )
        for arm in found.values()
    ]
    untrained = tuple(mean_and_spread(first.untrained(metric)) for metric in COLUMNS)
    l3, e = (number(first.persistence(metric)[0]) for metric in ("l3", "E"))
    rows.append(("paper's network, untrained", *untrained, "–", "–"))
    rows.append(("persistence", "–", "0", l3, e, e, "–", "–"))
    names = ("test loss", "test ℓ₂", "test ℓ₃", "E", "E₁")
    return Table(("setting", *names, "ℓ₃ to persistence", "slots with training"), tuple(rows))


def _panels(found: Mapping[str, Measured]) -> tuple[Panel, ...]:
    first = found[RANDOM]
    drawn = [found[label] for label in (RANDOM, CONSECUTIVE, PERFECT, LINEAR, LINEAR_PERFECT)]

    def level(label: str, value: float, style: str) -> Series:
        return Series(label, [1, first.slots], [value] * 2, style=style, muted=True)

    def panel(title: str, metric: str, held: str | None) -> Panel:
        lines = [level("untrained", float(first.untrained(metric).mean()), "dotted")]
        if held is not None:
            lines.append(level("persistence", float(first.persistence(held).mean()), "dashed"))
        return curves(title, drawn, metric, lines)

    return (
        panel("test loss", "loss", None),
        panel("one-step prediction", "l3", "l3"),
        panel("prediction error", "E", "E"),
    )


def _notes(found: Mapping[str, Measured], limits: Mapping[str, Any]) -> tuple[str, ...]:
    errors = limits["errors"]

    def by_state(label: str) -> str:
        return ", ".join(number(value) for value in errors[label])

    def mean(label: str) -> str:
        return number(float(np.mean(errors[label])))

    def gain(two: str, one: str) -> str:
        return number(float(np.mean(errors[two]) / np.mean(errors[one])))

    trajectories, steps = limits["test"]
    changed = _differences(found[RANDOM].table["study"], found[LINEAR].table["study"])
    return (
        "Training: samples 1000 to 6000 of trials 1 and 2, of which a client and slot draw one at "
        f"random; test: samples from 1000 to 3000 of trial 3, as {trajectories} trajectories of "
        f"{steps} steps that share their ends. Velocities are the difference over 200 samples on "
        "either side, which the paper prints with its sign reversed. The studies' CSV files are in "
        "runs/double-pendulum-data.",
        "The paper does not say how 100 samples are taken in a slot: both readings are judged. "
        f"“Converges to a low level” is read as: it converges. {CONVERGES}",
        NOTE,
        "Persistence is the identity as lift with K = I. It is compared by ℓ₃ and E₁, which are in "
        "units of the states; ℓ₁, E₂ and so the loss and E depend on the scale of the lift too.",
        "What can be had at 2 ms, as mean squared one-step errors of θ₁, ω₁, θ₂, ω₂ on the test "
        f"samples: persistence {by_state(HOLD)}; angles advanced by the recorded velocities "
        f"{by_state(VELOCITY)}; the paper's equation from the recorded states "
        f"{by_state(EQUATION)}. A velocity is a difference over 0.8 s: how it changes depends on "
        "angles 0.4 s earlier and later, which the state does not hold.",
        "The best linear map of one state to the next, by least squares over all that the first "
        f"seed's clients hold, has the mean {mean(TRUE)} with true and {mean(ESTIMATED)} with "
        f"estimated states (persistence {mean(HOLD)}); of two states {mean(TWO)} and "
        f"{mean(TWO_ESTIMATED)}, {gain(TWO, TRUE)} and {gain(TWO_ESTIMATED, ESTIMATED)} times as "
        "much. Root mean square errors of the estimated states: "
        f"{', '.join(number(v) for v in limits['estimates'])}.",
        f"The linear network differs from the paper's in {changed}. This setting was chosen by its "
        "score on these same test samples, so that its rows prove little. Samples 3000 to 5000 of "
        "trial 3 had no part in the choice; the row on them is the one to go by.",
    )


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


def _limits_csv(limits: Mapping[str, Any]) -> Numbers:
    columns = ("prediction", *limits["names"], "mean")
    rows = [
        (label, *map(float, values), float(np.mean(values)))
        for label, values in limits["errors"].items()
    ]
    return Numbers("limits", columns, tuple(rows))


MOVED = 0.05
"""Radians from its first angle at which a link has begun to move."""
BEGIN, AROUND = 1000, 250
USED, AFTER = (1000, 6000), (6000, 11000)
"""Samples that the paper takes, and as many after them."""
SUBSIDED = 2.0
"""Motion has largely subsided if its speed has fallen by this factor."""
LINK_NAMES = ("upper link", "lower link")

NOTE = (
    f"Motion: a link has begun to move where its angle is {MOVED} rad from its first; “around "
    f"sample {BEGIN}” is read as within {AROUND} samples (half a second) of it, “largely subsided” "
    f"as a root mean square speed, by differences of neighbouring angles, at least {SUBSIDED:g} "
    "times lower; intervals are over the trials."
)


def motion(trials: Sequence[NDArray[np.float64]]) -> list[dict[str, Any]]:
    """First motion and speeds of every trial, whose states (T, 4) are as `read_trials` gives them.

    Of each trial `begins`, the first sample at which a link has moved, or None; `used` and `after`,
    the root mean square speed of both links; `last`, where `after` ends.
    """
    found = []
    for states in trials:
        angles = states[:, [0, 2]]
        moved = np.flatnonzero((np.abs(angles - angles[0]) > MOVED).any(axis=1))
        speeds = np.diff(angles, axis=0) / INTERVAL
        used, after = (
            np.sqrt(np.mean(speeds[first:last] ** 2, axis=0)).tolist()
            for first, last in (USED, AFTER)
        )
        found.append(
            {
                "begins": int(moved[0]) if len(moved) else None,
                "used": used,
                "after": after,
                "last": min(AFTER[1], len(speeds)),
            }
        )
    return found


def motion_claims(trials: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """The paper's statements about the samples, from what `motion` gives."""
    begins = [trial["begins"] for trial in trials]
    near = [begin is not None and abs(begin - BEGIN) <= AROUND for begin in begins]
    told = ", ".join("never" if begin is None else str(begin) for begin in begins)
    used, after = (np.array([trial[part] for trial in trials]) for part in ("used", "after"))
    last = min(trial["last"] for trial in trials)
    falls = [
        ratio(used[:, i], after[:, i]).above(
            SUBSIDED,
            f"{link} {number(used[:, i].mean())} to {number(after[:, i].mean())} rad/s, a fall by",
        )
        for i, link in enumerate(LINK_NAMES)
    ]
    return (
        Claim(
            f"the pendulums begin to move around sample {BEGIN}",
            HOLDS if all(near) else FAILS,
            f"first sample more than {MOVED} rad from the start, by trial: {told}",
        ),
        all_of(
            f"the motion has largely subsided by sample {USED[1]}",
            falls,
            lead=f"root mean square speed, samples {USED[0]} to {USED[1]} against {AFTER[0]} to "
            f"{last}: ",
        ),
        Claim(
            "the excluded samples are noninformative and harmful to training",
            OPEN,
            "not computed",
            "the paper speaks of preliminary experiments and shows none",
        ),
    )
