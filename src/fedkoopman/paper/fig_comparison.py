"""Fig. 6: KF-FedKL beside a single client, perfect data and centralised training."""

import itertools

import numpy as np

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Claim, Findings, Options, Panel, Series
from fedkoopman.paper.judging import all_of, compared, curves, ratio, shown, within

SCHEMES = {
    "KF-FedKL": "kf-fedkl",
    "Single Client": "single-client",
    "Perfect Data": "perfect-data",
    "Centralized": "centralized",
}
SIMILAR = 2.0
"""Losses within this factor of each other count as similar."""
SHOWN = 60
"""Samples of the segment that is drawn in space."""


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per scheme."""
    return tuple(Arm(label, variant({"scheme": name})) for label, name in SCHEMES.items())


def judge(found: dict[str, Measured]) -> Findings:
    """Judge which scheme is worst, best or alike: in loss, in E and one step ahead."""
    ours, alone, perfect, central = (found[label] for label in SCHEMES)
    segment = {label: _one_step_error(arm) for label, arm in found.items()}
    loss = {label: arm.tail("loss") for label, arm in found.items()}
    others = (ours, perfect, central)
    return shown(
        found.values(),
        claims=(
            _worst("the test loss of a single client is larger than that of the others", "loss",
                   alone, others),
            all_of(
                "the other three reach similar test losses",
                [
                    within(f"{a.label} to {b.label}", ratio(loss[a.label], loss[b.label]), SIMILAR)
                    for a, b in itertools.combinations(others, 2)
                ],
            ),
            all_of(
                "the error of the Kalman filter does impact training",
                compared([("KF-FedKL to Perfect Data", loss[ours.label], loss[perfect.label])]),
                lead="test loss: ",
            ),
            all_of(
                "but its effect is limited",
                [
                    within("KF-FedKL to Perfect Data",
                           ratio(loss[ours.label], loss[perfect.label]), SIMILAR)
                ],
                lead="test loss: ",
            ),
            all_of(
                "perfect data gives the lowest test loss",
                compared(
                    [
                        (f"{a.label} to {perfect.label}", a.tail("loss"), perfect.tail("loss"))
                        for a in (ours, central)
                    ]
                ),
            ),
            _worst("a single client has the largest prediction error", "E", alone, others),
            all_of(
                "perfect data and centralised training have the lowest prediction error",
                compared(
                    [
                        (f"{a.label} to {b.label}", a.tail("E"), b.tail("E"))
                        for a, b in itertools.product((ours, alone), (perfect, central))
                    ]
                ),
            ),
            all_of(
                "even with a similar test loss, KF-FedKL has a higher prediction error than both",
                compared(
                    [
                        (f"{ours.label} to {a.label}", ours.tail("E"), a.tail("E"))
                        for a in (perfect, central)
                    ]
                ),
            ),
            all_of(
                "one-step predictions of KF-FedKL are comparable to theirs",
                [
                    within(f"{ours.label} to {a.label}",
                           ratio(segment[ours.label], segment[a.label]), SIMILAR)
                    for a in (perfect, central)
                ],
            ),
            all_of(
                "one-step predictions of a trajectory are poorest for a single client",
                compared(
                    [
                        (f"{alone.label} to {a.label}", segment[alone.label], segment[a.label])
                        for a in others
                    ]
                ),
            ),
        ),
        panels=(
            curves("test loss", found.values(), "loss"),
            curves("prediction error", found.values(), "E"),
            _space(found),
        ),
        notes=(
            f"“Similar”, “comparable” and “limited” are read as: within a factor of {SIMILAR:g}.",
            f"(c) shows {SHOWN} samples of a test trajectory of the first seed, each predicted "
            "from the true state before it; the claim is judged by the mean squared one-step error "
            "over the whole of that trajectory, in all seeds.",
        ),
    )  # fmt: skip


def _worst(text: str, metric: str, worst: Measured, others: tuple[Measured, ...]) -> Claim:
    pairs = [(f"{worst.label} to {a.label}", worst.tail(metric), a.tail(metric)) for a in others]
    return all_of(text, compared(pairs))


def _one_step_error(arm: Measured) -> np.ndarray:
    """Errors on the trajectory that each seed keeps."""
    errors = []
    for rollout in arm.table["rollouts"]:
        truth, predicted = (np.array(rollout[name], float) for name in ("truth", "one_step"))
        errors.append(np.mean((truth[1:] - predicted) ** 2))
    return np.array(errors)


def _space(found: dict[str, Measured]) -> Panel:
    first = next(iter(found.values())).table["rollouts"][0]
    truth = np.array(first["truth"], float)[1:]
    start = max(0, len(truth) - SHOWN)
    lines = [_line("truth", truth[start:], muted=True)]
    for label, arm in found.items():
        predicted = np.array(arm.table["rollouts"][0]["one_step"], float)
        lines.append(_line(label, predicted[start:]))
    x, y, z = first["names"]
    return Panel("one step ahead", x, y, tuple(lines), z=z)


def _line(label: str, states: np.ndarray, muted: bool = False) -> Series:
    x, y, z = states.T.tolist()
    return Series(label, x, y, z=z, style="line" if muted else "dashed", muted=muted)


ITEM = Runs(arms, judge, rollouts=True)
