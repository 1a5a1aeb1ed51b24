"""An audit as files: `audit.json` with every number, `audit.html` with what they mean."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.audit.audit import ATTACKS, Audit, Result
from fedkoopman.audit.verdict import QUESTIONS, claims_of, sentence, whole_claim
from fedkoopman.durable import writing, written_whole
from fedkoopman.errors import InputError
from fedkoopman.reports.page import Cell, Page
from fedkoopman.version import __version__

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["TITLES", "WORDS", "check_place", "facts_of", "write_audit"]

WORDS = {
    "leaks": "leaks",
    "hidden": "nothing of use",
    "undecided": "undecided",
}
TITLES = {
    "source": "site named",
    "membership": "used or not",
    "gradient": "states, 1 gradient",
    "update": "states, update",
    "noise": "noise",
}
"""Short names of the attacks, for tables."""
ABOUT = {
    "source": "The server has seen updates whose senders it knows, and names those of others. "
    "Bars: how often a site's update looks more like that site's than another's does.",
    "membership": "The server holds a segment, trains models with and without it, and compares. "
    "Bars: how often a used segment looks more used than an unused one.",
    "gradient": "The server looks for states that would give the gradient of eight consecutive "
    "samples: what a site would reveal that sent single gradients. Bars: its error over that of "
    "guessing the mean; shorter bars leak more.",
    "update": "The same for updates as they are really sent, after all epochs over all waiting "
    "segments. Bars: as above; shorter bars leak more.",
    "noise": "In a federation whose sensors differ in noise, the server says which of two is "
    "noisier. Bars: how often it is right.",
}


def check_place(out: Path) -> None:
    """Refuse a place that cannot be a directory, before long work."""
    with writing(out):
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file: give a directory")


def facts_of(audit: Audit) -> dict[str, Any]:
    """All of it as JSON has it."""
    claims = claims_of(audit)
    return _plain({
        "version": __version__,
        "study": audit.study.name,
        "digest": audit.study.digest(),
        "seed": audit.study.seed,
        "slots": audit.slots,
        "sites": audit.sites,
        "quick": audit.quick,
        "arms": [
            {
                **asdict(result),
                "sentences": {attack: sentence(result, attack) for attack in ATTACKS},
                "verdicts": {
                    attack: found.verdict if (found := result.main(attack)) else "not measured"
                    for attack in ATTACKS
                },
            }
            for result in audit.results
        ],
        "claim": {**asdict(whole_claim(claims)), "attacks": [asdict(claim) for claim in claims]},
        "notes": list(audit.notes),
    })  # fmt: skip


def write_audit(audit: Audit, out: Path) -> tuple[Path, Path]:
    """Write both files, whole or not at all."""
    text = json.dumps(facts_of(audit), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    pieces = list(_page(audit).html())
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    targets = out / "audit.json", out / "audit.html"
    with written_whole(*targets) as [numbers, page]:
        numbers.write_text(text, encoding="utf-8")
        page.write_bytes(b"".join(pieces))
    return targets


def _page(audit: Audit) -> Page:
    claims = claims_of(audit)
    whole = whole_claim(claims)
    page = Page(f"What the server can learn: {audit.study.name}")
    page.paragraph(
        f"{audit.sites} sites, {audit.slots} slots, seed {audit.study.seed}. An honest but curious "
        "server keeps to the protocol and looks closely at every update that it gets. These are "
        "attacks that it could make, and how often they are right. Square brackets: between which "
        "numbers the truth lies, with a certainty of 95 %.",
        "lede",
    )
    if audit.quick:
        page.paragraph("A quick audit: few victims and slots, so wide intervals.", "notice")
    page.paragraph(
        "The paper says that filtered states “contain minimal individual information compared to "
        f"the raw observation data”. By these numbers that {_says(whole.verdict)}: {whole.why}.",
        "notice" if whole.verdict == "does not hold" else "",
    )
    head = [Cell("what the server sees"), *(Cell(TITLES[attack]) for attack in ATTACKS)]
    rows = [
        [Cell(result.label), *(_cell(result, attack) for attack in ATTACKS)]
        for result in audit.results
    ]
    rows.append([Cell("the paper's claim"), *(Cell(claim.verdict, "strong") for claim in claims)])
    page.table("overview", head, rows)
    page.paragraph("Chance is 0.5 and, of states, 1; there smaller numbers leak.", "caption")
    for claim in claims:
        page.heading(QUESTIONS[claim.attack])
        page.paragraph(ABOUT[claim.attack], "caption")
        texts = [[Cell(r.label), Cell(sentence(r, claim.attack))] for r in audit.results]
        page.table(f"{claim.attack}-words", [Cell("with"), Cell("in words")], texts)
        page.paragraph(f"The paper's claim here {_says(claim.verdict)}: {claim.why}.")
        page.chart(claim.attack, _figure(audit, claim.attack), QUESTIONS[claim.attack])
    _limits(page, audit)
    return page


def _limits(page: Page, audit: Audit) -> None:
    page.heading("What this does not say")
    alone = audit.results[-1].single
    page.paragraph(
        f"In {100 * alone:.0f} of 100 slots with updates one site was alone. Its sum is then its "
        "update, and a secure sum hides nothing: such slots are left out above. Let more sites "
        "train in one slot where that matters."
    )
    page.paragraph(
        "An attack that fails is no proof: another may work. ε alone bounds what any attack can "
        "learn of one record; of what a whole site has in common, as its sensor or its noise, it "
        "promises nothing. Reconstruction and membership ask about states, as sites train on "
        "them; raw observations are not sent in any arm."
    )
    for note in audit.notes:
        page.paragraph(note)


def _figure(audit: Audit, attack: str) -> "go.Figure":
    from fedkoopman.reports.figures import GREY, RED, new_figure
    from fedkoopman.reports.plots import LINE

    shown = [(r, found) for r in audit.results if (found := r.main(attack)) is not None]
    figure = new_figure(90 + 36 * max(1, len(shown)))
    names = [result.label for result, _ in shown]
    values = [found.value for _, found in shown]
    colours = {"leaks": RED, "hidden": LINE, "undecided": GREY}
    figure.add_bar(
        x=values, y=names, orientation="h",
        marker_color=[colours[found.verdict] for _, found in shown],
        error_x={
            "type": "data", "symmetric": False, "thickness": 1.2, "width": 4,
            "array": [_finite(found.high - found.value) for _, found in shown],
            "arrayminus": [_finite(found.value - found.low) for _, found in shown],
        },
        hovertemplate="%{y}: %{x:.3f}<extra></extra>", showlegend=False,
    )  # fmt: skip
    if shown:
        figure.add_vline(
            shown[0][1].chance, line_dash="dot", annotation_text="tells nothing",
            annotation_position="top",
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero")
    return figure


def _cell(result: Result, attack: str) -> Cell:
    found = result.main(attack)
    if found is None:
        return Cell("not measured")
    return Cell(f"{found.value:.2f} {WORDS[found.verdict]}")


def _says(verdict: str) -> str:
    return "is undecided" if verdict == "undecided" else verdict


def _finite(value: float) -> float:
    return max(0.0, value) if math.isfinite(value) else 0.0


def _plain(value: Any) -> Any:
    """With null for numbers that JSON does not know."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
