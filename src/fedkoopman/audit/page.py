"""An audit as files: `audit.json` with every number, `audit.html` with what they mean."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedkoopman.audit.audit import ATTACKS, Audit, Result
from fedkoopman.audit.statistics import Measured
from fedkoopman.audit.verdict import QUESTIONS, Claim, claims_of, sentence, whole_claim
from fedkoopman.durable import writing, written_whole
from fedkoopman.errors import InputError
from fedkoopman.reports.blocks import (
    Block,
    Section,
    Story,
    chart,
    line,
    panel,
    section,
    table,
    text,
)
from fedkoopman.reports.document import document
from fedkoopman.version import __version__

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
    content = json.dumps(facts_of(audit), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    pieces = list(document(_story(audit)))
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    targets = out / "audit.json", out / "audit.html"
    with written_whole(*targets) as [numbers, page]:
        numbers.write_text(content, encoding="utf-8")
        page.write_bytes(b"".join(pieces))
    return targets


def _story(audit: Audit) -> Story:
    claims = claims_of(audit)
    sections = [_overview(audit, claims)]
    for claim in claims:
        texts = [[result.label, sentence(result, claim.attack)] for result in audit.results]
        sections.append(section(
            claim.attack, QUESTIONS[claim.attack],
            text(ABOUT[claim.attack], "caption"),
            table(f"{claim.attack}-words", ["with", "in words"], texts, stacked=True),
            text(f"The paper's claim here {_says(claim.verdict)}: {claim.why}."),
            _chart(audit, claim.attack),
        ))  # fmt: skip
    return {
        "title": f"What the server can learn: {audit.study.name}",
        "lede": f"{audit.sites} sites · {audit.slots} slots · seed {audit.study.seed}",
        "finished": True,
        "sections": [*sections, _limits(audit)],
    }


def _overview(audit: Audit, claims: list[Claim]) -> Section:
    whole = whole_claim(claims)
    rows: list[list[Any]] = [
        [result.label, *(_cell(result, attack) for attack in ATTACKS)] for result in audit.results
    ]
    rows.append(["the paper's claim", *((claim.verdict, "strong") for claim in claims)])
    return section(
        "overview", "What does the server learn?",
        text(
            "An honest but curious server keeps to the protocol and looks closely at every update "
            "that it gets. These are attacks that it could make, and how often they are right. "
            "Square brackets: between which numbers the truth lies, with a certainty of 95 %."
        ),
        text("A quick audit: few victims and slots, so wide intervals.", "notice")
        if audit.quick else None,
        text(
            "The paper says that filtered states “contain minimal individual information compared "
            f"to the raw observation data”. By these numbers that {_says(whole.verdict)}: "
            f"{whole.why}.",
            "warning" if whole.verdict == "does not hold" else "",
        ),
        table("overview-table", ["what the server sees", *(TITLES[a] for a in ATTACKS)], rows,
              stacked=True),
        text("Chance is 0.5 and, of states, 1; there smaller numbers leak.", "caption"),
    )  # fmt: skip


def _limits(audit: Audit) -> Section:
    alone = audit.results[-1].single
    return section(
        "limits", "What this does not say",
        text(
            f"In {100 * alone:.0f} of 100 slots with updates one site was alone. Its sum is then "
            "its update, and a secure sum hides nothing: such slots are left out above. Let more "
            "sites train in one slot where that matters."
        ),
        text(
            "An attack that fails is no proof: another may work. ε alone bounds what any attack "
            "can learn of one record; of what a whole site has in common, as its sensor or its "
            "noise, it promises nothing. Reconstruction and membership ask about states, as sites "
            "train on them; raw observations are not sent in any arm."
        ),
        *(text(note) for note in audit.notes),
    )  # fmt: skip


COLOURS = {"leaks": "b", "hidden": "a", "undecided": "held"}


def _chart(audit: Audit, attack: str) -> Block | None:
    shown = [(r, found) for r in audit.results if (found := r.main(attack)) is not None]
    if not shown:
        return None
    lines = []
    for verdict, colour in COLOURS.items():
        mine = [(row, found) for row, (_, found) in enumerate(shown) if found.verdict == verdict]
        if mine:
            lines.append(
                line(
                    WORDS[verdict], [found.value for _, found in mine], [row for row, _ in mine],
                    colour, style="bars", low=[_finite(found.low, found) for _, found in mine],
                    high=[_finite(found.high, found) for _, found in mine],
                )
            )  # fmt: skip
    chance = shown[0][1].chance
    axes = panel(f"at {chance:g}, the dotted line, it tells nothing", "", mark=chance,
                 rows=[result.label for result, _ in shown])  # fmt: skip
    return chart(f"{attack}-chart", QUESTIONS[attack], ABOUT[attack], [axes], lines)


def _cell(result: Result, attack: str) -> str:
    found = result.main(attack)
    if found is None:
        return "not measured"
    return f"{found.value:.2f} {WORDS[found.verdict]}"


def _says(verdict: str) -> str:
    return "is undecided" if verdict == "undecided" else verdict


def _finite(value: float, found: Measured) -> float:
    return value if math.isfinite(value) else found.value


def _plain(value: Any) -> Any:
    """With null for numbers that JSON does not know."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
