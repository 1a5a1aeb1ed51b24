"""Fig. 7a: clients with more noise than others, and all of them with much."""

from fedkoopman.config.study import Study
from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import OPEN, Claim, Findings, Options
from fedkoopman.paper.judging import CONVERGES, close, converges, curves, higher, shown
from fedkoopman.paper.verdicts import all_of, every, ratio, trend

CLIENTS = 5
NOISY = 3
LEVELS = (3, 9, 25, 100)
"""Σ = level × I at all clients."""
MILD = 1.25
"""A loss within this factor of that without noisy clients is hardly harmed."""


def _mixed(noisy: int) -> str:
    return "-".join(["1"] * (CLIENTS - noisy) + [str(NOISY)] * noisy)


MIXED = tuple(_mixed(count) for count in range(CLIENTS + 1))
ALL_NOISY = tuple("-".join([str(level)] * CLIENTS) for level in LEVELS)


def arms(options: Options) -> tuple[Arm, ...]:
    """Arms with zero to five clients at three times the noise, then all clients at more."""
    labels = dict.fromkeys(MIXED + ALL_NOISY)
    return tuple(Arm(label, _study(label)) for label in labels)


def _study(label: str) -> Study:
    levels = [float(part) for part in label.split("-")]
    noise = levels[0] if len(set(levels)) == 1 else levels
    return variant({"clients.observation_noise": noise, "clients.process_noise": noise})


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether noisy clients make losses fluctuate, and whether averaging mitigates it."""
    shake = {label: arm.fluctuation("loss") for label, arm in found.items()}
    more = trend([1 + i for i in range(CLIENTS + 1)], [shake[label] for label in MIXED])
    level = trend([1, *LEVELS], [shake[label] for label in (MIXED[0], *ALL_NOISY)])
    return shown(
        found.values(),
        claims=(
            all_of(
                "more noisy clients make the test loss fluctuate more",
                [more.above(1.0, "per tenfold (1 + noisy clients)")],
            ),
            all_of(
                "higher noise makes the test loss fluctuate more",
                [level.above(1.0, "per tenfold noise of all clients")],
            ),
            all_of(
                "noisy clients impair the convergence",
                higher("loss", [(found[MIXED[-1]], found[MIXED[0]])]),
                lead="test loss: ",
            ),
            all_of(
                "averaging mitigates the noise of few clients",
                [
                    *higher("loss", [(found[MIXED[-1]], found[MIXED[0]])]),
                    *close("loss", [(found[_mixed(1)], found[MIXED[0]])], MILD),
                ],
                lead="test loss: ",
            ),
            Claim(
                "with high noise at all clients the training fails to converge",
                OPEN,
                "; ".join(_outcome(found[label], found[MIXED[0]]) for label in ALL_NOISY),
                "the paper does not say how high its noise was, nor show its curve; ours is drawn",
            ),
        ),
        panels=(
            curves("none to five noisy clients", [found[label] for label in MIXED], "loss"),
            curves("all clients noisy", [found[label] for label in (MIXED[0], *ALL_NOISY)], "loss"),
        ),
        notes=(
            "Fluctuation is the standard deviation of the test loss over the last slots of a seed; "
            "trends come from a line through each seed's logarithms.",
            CONVERGES,
            f"“Mitigates” is read as: all clients at {NOISY} I harm the test loss, while with one "
            f"of them it stays within a factor of {MILD:g}.",
            "1-1-1-1-3 means four clients with Σ_f = Σ_h = I and one with 3 I.",
        ),
    )  # fmt: skip


def _outcome(arm: Measured, usual: Measured) -> str:
    """Whether an arm converges, and how its loss compares with the default's."""
    against = ratio(arm.tail("loss"), usual.tail("loss"))
    verdict = every(converges(arm)).verdict
    return f"{arm.label} converges: {verdict}, test loss to {usual.label} {against.words}"


ITEM = Runs(arms, judge)
