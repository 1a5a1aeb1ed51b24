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
"""Samples of the segment that is drawn in space."""


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
            _space(schemes),
            mechanisms.panel(seen),
        ),
        numbers=(mechanisms.numbers(seen),),
        notes=(
            f"“Similar”, “comparable” and “limited” are read as: within a factor of {SIMILAR:g}.",
            f"(c) shows {SHOWN} samples of a test trajectory of the first seed, each predicted "
            "from the true state before it; the claims on one-step predictions are judged by the "
            "final models' mean squared one-step error over all test trajectories, in all seeds.",
            mechanisms.NOTE,
        ),
    )


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


ITEM = Runs(arms, judge, rollouts=True, models=mechanisms.through_sensors)
