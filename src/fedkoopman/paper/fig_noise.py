"""Fig. 7a: clients with more noise than others, and all of them with much."""

from fedkoopman.config.study import Study
from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options
from fedkoopman.paper.judging import all_of, compared, curves, opposite, ratio, shown, trend, within

CLIENTS = 5
NOISY = 3
LEVELS = (3, 9, 25, 100)
"""Σ = level × I at all clients."""
MILD = 1.25
"""A loss within this factor of that without noisy clients is hardly harmed."""
FALL = 10.0
"""Training counts as converging where the test loss falls by this factor."""


def _mixed(noisy: int) -> str:
    return "-".join(["1"] * (CLIENTS - noisy) + [str(NOISY)] * noisy)


def _all(level: int) -> str:
    return "-".join([str(level)] * CLIENTS)


MIXED = tuple(_mixed(count) for count in range(CLIENTS + 1))
ALL_NOISY = tuple(_all(level) for level in LEVELS)


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
    loss = {label: arm.tail("loss") for label, arm in found.items()}
    more = trend([1 + i for i in range(CLIENTS + 1)], [shake[label] for label in MIXED])
    level = trend([1, *LEVELS], [shake[label] for label in (MIXED[0], *ALL_NOISY)])
    falls = {label: ratio(found[label].untrained("loss"), loss[label]) for label in ALL_NOISY}
    return shown(
        found.values(),
        claims=(
            all_of(
                "more noisy clients make the test loss fluctuate more",
                [(more.above(1.0), f"per tenfold (1 + noisy clients) {more.words}")],
            ),
            all_of(
                "higher noise makes the test loss fluctuate more",
                [(level.above(1.0), f"per tenfold noise of all clients {level.words}")],
            ),
            all_of(
                "averaging mitigates the noise of few clients",
                [
                    *compared([(f"{MIXED[-1]} to {MIXED[0]}", loss[MIXED[-1]], loss[MIXED[0]])]),
                    within(f"{_mixed(1)} to {MIXED[0]}", ratio(loss[_mixed(1)], loss[MIXED[0]]),
                           MILD),
                ],
                lead="test loss: ",
            ),
            all_of(
                "with high noise at all clients the training fails to converge",
                [
                    (
                        opposite(falls[ALL_NOISY[-1]].above(FALL)),
                        "untrained to final test loss: "
                        + ", ".join(f"{label} {falls[label].words}" for label in ALL_NOISY),
                    )
                ],
                "the loss rises with the noise but training does not break down; our filters know "
                "their noise, which the paper's may not have",
            ),
        ),
        panels=(
            curves("none to five noisy clients", [found[label] for label in MIXED], "loss"),
            curves("all clients noisy", [found[label] for label in (MIXED[0], *ALL_NOISY)], "loss"),
        ),
        notes=(
            "Fluctuation is the standard deviation of the test loss over the last slots of a seed; "
            "trends come from a line through each seed's logarithms.",
            f"“Fails to converge” is read as: even at {LEVELS[-1]} I the test loss falls less than "
            f"{FALL:g}-fold from the untrained model's. The paper does not say how high its noise "
            "was.",
            f"“Mitigates” is read as: all clients at {NOISY} I harm the test loss, while with one "
            f"of them it stays within a factor of {MILD:g}.",
            "1-1-1-1-3 means four clients with Σ_f = Σ_h = I and one with 3 I.",
        ),
    )  # fmt: skip


ITEM = Runs(arms, judge)
