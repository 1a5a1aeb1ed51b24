"""What the runs on the measured double pendulum say: claims, table, figure.

Beside the runs stands how well any method can predict one sample from those before it (`limits`):
squared errors of one step on the test recording, state by state. They are of holding the state, of
advancing the angles by the recorded velocities, of the paper's equation, and of linear maps that
least squares finds in all segments that the clients of a seed hold. None of them is a network: they
show what the data and the choice of the state allow.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.paper.arms import Measured
from fedkoopman.paper.double_pendulum_data import NOTE, motion_claims
from fedkoopman.paper.judging import all_of, compared, number, opposite, ratio
from fedkoopman.paper.result import FAILS, Claim, Findings, Numbers, Panel, Series, Table
from fedkoopman.paper.showing import (
    csv_of,
    curves,
    mean_and_spread,
    seeds_note,
    sources_of,
)

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Experiment

States = NDArray[np.float64]

HOLD = "persistence"
VELOCITY = "angles advanced by their velocities"
EQUATION = "the paper's equation"
TRUE = "linear map of one state, true states"
ESTIMATED = "linear map of one state, estimated states"
TWO = "linear map of two states, true states"
TWO_ESTIMATED = "linear map of two states, estimated states"


def limits(study: Study, seed: int) -> dict[str, Any]:
    """Errors of every way to predict, by state; errors of the estimated states; size of the test.

    Arguments:
        study: with recordings; its segments and test set are used.
        seed: of its draws.
    """
    from fedkoopman.federation.sites import held_out
    from fedkoopman.runs.experiment import experiment_of
    from fedkoopman.systems import simulate

    experiment = experiment_of(study, seed)
    test = held_out(experiment)[0].trajectories
    true, estimated = _segments(experiment)
    ways: dict[str, tuple[int, Callable[[States], States]]] = {
        HOLD: (1, lambda x: x),
        VELOCITY: (1, lambda x: x + experiment.system.dt * x[:, [1, 1, 3, 3]] * [1, 0, 1, 0]),
        EQUATION: (1, lambda x: simulate(experiment.system, 1, initial=x)[:, 1]),
        TRUE: (1, _least_squares(true, 1)),
        ESTIMATED: (1, _least_squares(estimated, 1)),
        TWO: (2, _least_squares(true, 2)),
        TWO_ESTIMATED: (2, _least_squares(estimated, 2)),
    }
    return {
        "names": list(experiment.system.names),
        "errors": {label: _error(test, *way).tolist() for label, way in ways.items()},
        "test": [test.shape[0], test.shape[1] - 1],
        "estimates": np.sqrt(np.mean((estimated - true) ** 2, axis=(0, 1))).tolist(),
    }


def _segments(experiment: "Experiment") -> tuple[States, States]:
    """True and estimated states (segments, ζ, d) of all arrivals whose filter stayed finite."""
    from fedkoopman.federation.arrivals import arrivals
    from fedkoopman.federation.sites import Address, Sites
    from fedkoopman.federation.workers import Workers

    wanted = [
        Address(slot, int(n))
        for slot in range(1, experiment.slots + 1)
        for n in np.flatnonzero(arrivals(experiment.seed, slot, experiment.clients))
    ]
    with Workers(1) as workers:
        true = Sites(experiment, perfect=True).segments(wanted, workers)
        found = Sites(experiment, perfect=False).segments(wanted, workers)
    pairs = [(true[address], found[address]) for address in wanted]
    good = [(x, y) for x, y in pairs if x is not None and y is not None]
    return np.stack([x for x, _ in good]), np.stack([y for _, y in good])


def _least_squares(segments: States, window: int) -> Callable[[States], States]:
    """The affine map from `window` states to the next one, by least squares."""
    x, y = _pairs(segments, window)
    found = np.linalg.lstsq(_with_one(x), y)[0]
    return lambda given: _with_one(given) @ found


def _error(test: States, window: int, predict: Callable[[States], States]) -> States:
    x, y = _pairs(test, window)
    error: States = np.mean((predict(x) - y) ** 2, axis=0)
    return error


def _pairs(trajectories: States, window: int) -> tuple[States, States]:
    """Windows (n, window · d), oldest state first, and the state that follows each."""
    length = trajectories.shape[1] - window
    windows = np.concatenate([trajectories[:, i : i + length] for i in range(window)], axis=-1)
    following = trajectories[:, window:]
    return windows.reshape(-1, windows.shape[-1]), following.reshape(-1, following.shape[-1])


def _with_one(x: States) -> States:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


RANDOM = "random windows"
CONSECUTIVE = "consecutive windows"
PERFECT = "perfect data"
LINEAR = "linear network"
LINEAR_CONSECUTIVE = "linear network, consecutive windows"
LINEAR_PERFECT = "linear network, perfect data"
LATER = "linear network, later samples"
LATER_CONSECUTIVE = "linear network, consecutive windows, later samples"

FALL = 5.0
"""A score counts as low if it has fallen by this factor."""
STAYS = 2.0
"""A score has converged if its last slots are at most this many times its best ones before."""
COLUMNS = ("loss", "l2", "l3", "E", "E1")


def judge(found: Mapping[str, Measured]) -> Findings:
    """The runs, by label.

    The first carries what `limits` and `double_pendulum_data.motion` give.
    """
    arms = list(found.values())
    limits = found[RANDOM].table["limits"]
    return Findings(
        claims=_claims(found),
        table=_table(found),
        numbers=(*csv_of(arms), _limits_csv(limits)),
        panels=_panels(found),
        notes=_notes(found, limits),
        sources=sources_of(arms),
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
    [fallen] = compared([("untrained to final", arm.untrained(metric), arm.tail(metric))], FALL)
    length, values = arm.table["tail_slots"], arm.curves(metric)
    windows = np.lib.stride_tricks.sliding_window_view(values, length, axis=1).mean(axis=-1)
    before = windows[:, : max(arm.slots - 2 * length + 1, 1)]
    risen = ratio(arm.tail(metric), before.min(axis=1))
    ends = before.argmin(axis=1) + length
    where = (
        f"slot {ends.min()}" if ends.min() == ends.max() else f"slots {ends.min()} to {ends.max()}"
    )
    stays = (
        opposite(risen.above(STAYS)),
        f"final to the best {length} slots before {risen.words}, which ended at {where}",
    )
    causes = []
    if fallen[0] == FAILS:
        causes.append("it fell by less in these runs")
    if stays[0] == FAILS:
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
    shown = [found[label] for label in (RANDOM, CONSECUTIVE, PERFECT, LINEAR, LINEAR_PERFECT)]

    def level(label: str, value: float, style: str) -> Series:
        return Series(label, [1, first.slots], [value] * 2, style=style, muted=True)

    def panel(title: str, metric: str, held: str | None) -> Panel:
        lines = [level("untrained", float(first.untrained(metric).mean()), "dotted")]
        if held is not None:
            lines.append(level("persistence", float(first.persistence(held).mean()), "dashed"))
        return curves(title, shown, metric, lines)

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
        f"“Low” is read as: at least {FALL:g} times below the untrained model's; “converges” as: "
        f"the last slots are at most {STAYS:g} times the best as many before, which are chosen for "
        "each seed after the fact.",
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
        seeds_note(found.values()),
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
