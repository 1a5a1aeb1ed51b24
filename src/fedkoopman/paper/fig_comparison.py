"""Fig. 6: KF-FedKL beside a single client, perfect data and centralised training.

Beside them, ours: the same clients without a filter, on raw observations (`mechanisms`).
"""

import itertools
from typing import Any

import numpy as np

from fedkoopman.paper import mechanisms
from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options, Panel, Series
from fedkoopman.paper.judging import close, curves, higher, shown
from fedkoopman.paper.verdicts import all_of, compared, ratio

SCHEMES = {
    "KF-FedKL": "kf-fedkl",
    "Single Client": "single-client",
    "Perfect Data": "perfect-data",
    "Centralized": "centralized",
}
RAW: dict[str, dict[str, Any]] = {
    "Observations (in z)": {"scheme": "observations"},
    "Observations (in z), one client": {"scheme": "observations", "clients.count": 1},
}
"""No filter: what the paper's introduction rejects. Scores are in units of observations."""
SIMILAR = 2.0
"""Losses within this factor of each other count as similar."""
SHOWN = 60
"""Samples that are drawn."""


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per scheme, then those on raw observations."""
    changes = {label: {"scheme": name} for label, name in SCHEMES.items()} | RAW
    return tuple(Arm(label, variant(values)) for label, values in changes.items())


def judge(found: dict[str, Measured]) -> Findings:
    """Judge which scheme is worst, best or alike: in loss, in E and one step ahead."""
    schemes = {label: found[label] for label in SCHEMES}
    ours, alone, perfect, central = schemes.values()
    seen = {label: found[label] for label in ("KF-FedKL", *RAW)}
    others, best = (ours, perfect, central), (perfect, central)
    single, same = [(alone, other) for other in others], [(ours, perfect)]

    def one_step(
        first: Measured, rest: tuple[Measured, ...]
    ) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Errors of the final models on all test trajectories: of one arm beside others."""
        # one sample ahead, without a window, this is ℓ₃
        mine = first.last("l3")
        return [(f"{first.label} to {arm.label}", mine, arm.last("l3")) for arm in rest]

    return shown(
        found.values(),
        claims=(
            all_of(
                "the test loss of a single client is larger than that of the others",
                higher("loss", single),
            ),
            all_of(
                "collaborative training improves generalisation (Section II)",
                (*higher("loss", [(alone, ours)]), *higher("E", [(alone, ours)])),
                lead="test loss and prediction error: ",
            ),
            all_of(
                "the other three reach similar test losses",
                close("loss", itertools.combinations(others, 2), SIMILAR),
            ),
            all_of(
                "the error of the Kalman filter does impact training",
                higher("loss", same),
                lead="test loss: ",
            ),
            all_of("but its effect is limited", close("loss", same, SIMILAR), lead="test loss: "),
            all_of(
                "perfect data gives the lowest test loss",
                higher("loss", [(ours, perfect), (central, perfect)]),
            ),
            all_of(
                "KF-FedKL is comparable to centralised training in terms of test loss",
                close("loss", [(ours, central)], SIMILAR),
            ),
            all_of("a single client has the largest prediction error", higher("E", single)),
            all_of(
                "perfect data and centralised training have the lowest prediction error",
                higher("E", itertools.product((ours, alone), best)),
            ),
            all_of(
                "even with a similar test loss, KF-FedKL has a higher prediction error than both",
                higher("E", [(ours, other) for other in best]),
            ),
            all_of(
                "one-step predictions of KF-FedKL are comparable to theirs",
                [ratio(a, b).within(SIMILAR, name) for name, a, b in one_step(ours, best)],
            ),
            all_of(
                "one-step predictions of a trajectory are poorest for a single client",
                compared(one_step(alone, others)),
            ),
            *mechanisms.claims(*seen.values()),
        ),
        panels=(
            curves("test loss", schemes.values(), "loss"),
            curves("prediction error", schemes.values(), "E"),
            _distances(schemes),
            mechanisms.panel(seen),
        ),
        numbers=(mechanisms.numbers(seen),),
        notes=(
            f"“Similar”, “comparable” and “limited” are read as: within a factor of {SIMILAR:g}.",
            f"(c) shows {SHOWN} samples of a test trajectory of the first seed, each predicted "
            "from the true state before it, as distances from the truth: drawn in space, as the "
            "paper does, the predictions cannot be told apart; the claims on one-step predictions "
            "are judged by the final models' mean squared one-step error over all test "
            "trajectories, in all seeds.",
            mechanisms.NOTE,
        ),
    )


def _distances(found: dict[str, Measured]) -> Panel:
    lines = []
    for label, arm in found.items():
        first = arm.table["rollouts"][0]
        truth, predicted = (np.array(first[key], float) for key in ("truth", "one_step"))
        far = np.sqrt(((predicted - truth[1:]) ** 2).sum(axis=1))
        start = max(0, len(far) - SHOWN)
        lines.append(Series(label, list(range(start + 1, len(far) + 1)), far[start:].tolist()))
    return Panel("one step ahead", "sample", "distance from the truth", tuple(lines), log_y=True)


ITEM = Runs(arms, judge, rollouts=True, models=mechanisms.through_sensors)
