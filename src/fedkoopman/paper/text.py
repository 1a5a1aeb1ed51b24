"""Sections I to IV: what the text claims beside its figures and tables."""

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import AUDITED, OPEN, Claim, Findings, Options
from fedkoopman.paper.judging import CONVERGES, converges, curves, shown
from fedkoopman.paper.verdicts import all_of, compared

DEFAULT = "one state (μ = τ = 1)"
EMBEDDED = "two states (μ = τ = 2)"


def arms(options: Options) -> tuple[Arm, ...]:
    """The default experiment, and one whose network takes and gives two states."""
    return (
        Arm(DEFAULT, variant({})),
        Arm(EMBEDDED, variant({"network.window": 2, "network.depth": 2})),
    )


def judge(found: dict[str, Measured]) -> Findings:
    """Judge delay embedding and the one-step loss; say where the rest is measured, or why not."""
    default, embedded = found[DEFAULT], found[EMBEDDED]
    held = [
        ("ℓ₃", default.persistence("l3"), default.tail("l3")),
        ("E₁", default.persistence("E"), default.tail("E1")),
    ]
    return shown(
        found.values(),
        claims=(
            Claim(
                "estimates contain minimal individual information compared to the raw observation "
                "data (Section I)",
                AUDITED,
                "the command prints it for raw observations and for smoothed states, attack by "
                "attack",
                "what it printed on the default experiment stands in docs/trust.md, “The leak "
                "meter”",
            ),
            all_of(
                "the network linearises a time-delay embedded representation, too (Sections I, IV)",
                converges(embedded),
                "the loss does not converge",
            ),
            all_of(
                "a loss of one-step errors alone delivers satisfactory performance (Section IV)",
                compared(held),
                "holding the last state predicts better",
                lead="persistence to model: ",
            ),
            Claim(
                "it is crucial to fine-tune network size and training policy to mitigate the "
                "impact of estimation errors (Section I)",
                OPEN,
                "the policies are those of Fig. 7d",
                "the paper shows no other network size",
            ),
        ),
        panels=(
            curves("test loss", found.values(), "loss"),
            curves("prediction error", found.values(), "E"),
        ),
        notes=(
            CONVERGES,
            "“Satisfactory” is read as: one-step error (ℓ₃) and the error over one to five steps "
            "in units of the states (E₁) below those of holding the last state.",
            "Claims of these sections that a figure or table shows are judged there: raw "
            "observations and collaboration in Fig. 6, estimation and smoothing in Table III, the "
            "three losses in Table IV, the theorem by itself.",
        ),
    )


ITEM = Runs(arms, judge)
