"""Fig. 7b: prediction error against the probability of a successful observation."""

from dataclasses import replace

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options, Panel, Series
from fedkoopman.paper.judging import against, curves, grows, higher, shown
from fedkoopman.paper.verdicts import Part, all_of, dips

PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
STAGGERED = "p = 1, thresholds 3 to 7"
THRESHOLDS = [3, 4, 5, 6, 7]
"""One per client, in segments; their mean is the paper's."""


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per probability, and p = 1 with a threshold of each client's own."""
    return (
        *(Arm(f"p = {p:g}", variant({"clients.probability": p}), p) for p in PROBABILITIES),
        Arm(STAGGERED, variant({"clients.probability": 1.0, "policy.segments": THRESHOLDS})),
    )


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether E falls and then rises, and what the rise comes from."""
    line = [arm for arm in found.values() if arm.value is not None]
    last, staggered = found["p = 1"], found[STAGGERED]

    def dip(arms: list[Measured]) -> Part:
        return dips([arm.label for arm in arms], [arm.tail("E") for arm in arms])

    return shown(
        found.values(),
        claims=(
            all_of(
                "the prediction error first falls and then rises with p",
                [dip(line)],
            ),
            all_of(
                "it does so below p = 1, too",
                [dip(line[:-1])],
                "the rise is that of p = 1, where all clients reach the threshold in one slot",
                ours=True,
            ),
            all_of(
                "clients take part in the training more often as p grows",
                [grows("trainings per seed", line, lambda arm: arm.table["rounds"])],
            ),
            all_of(
                "the rise comes from overfitting, by frequent participation in training",
                higher("E", [(staggered, last)]),
                "with thresholds of their own the clients train at least as often on the same "
                "data, and the error is lower: the rise comes from training in the same slots",
                lead=f"trainings per seed: {_trainings(staggered)} against {_trainings(last)}; if "
                "they overfitted, E would not be lower: ",
            ),
        ),
        panels=(
            _with_point(against("tail mean", "probability p", line, "E"), staggered),
            curves("over slots", [*line[:9:3], found["p = 0.95"], last, staggered], "E"),
        ),
        notes=(
            "With p = 1 and one threshold the clients reach it together: the shared model is "
            f"renewed in {last.table['renewals']:.0f} slots, by all clients at once. With "
            f"thresholds of {THRESHOLDS[0]} to {THRESHOLDS[-1]} segments it is renewed in "
            f"{staggered.table['renewals']:.0f}, with p = 0.95 in "
            f"{found['p = 0.95'].table['renewals']:.0f}. Thresholds of each client's own "
            "(`policy.segments` as a list) are the remedy for such lockstep.",
            "“Falls and then rises” is read as: some setting between both ends has a lower error "
            "than either end, with Holm's correction for the choice among them; it does not hold "
            "if one end is lower than all between.",
        ),
    )


def _with_point(panel: Panel, arm: Measured) -> Panel:
    """The panel with an arm at p = 1."""
    error = arm.tail("E")
    spread = float(error.std(ddof=1)) if len(error) > 1 else 0.0
    point = Series(arm.label, [1.0], [float(error.mean())], [spread], style="points")
    return replace(panel, series=(*panel.series, point))


def _trainings(arm: Measured) -> str:
    return f"{arm.table['rounds']:.0f}"


ITEM = Runs(arms, judge)
