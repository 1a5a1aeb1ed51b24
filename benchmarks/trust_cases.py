"""The cases of `trust.py`: who lies how, under which rule; and their results as a page."""

import math
import platform
from dataclasses import dataclass, replace
from typing import Any

from trust_attacks import ATTACKS

from fedkoopman.estimation.estimates import cores

__all__ = ["GONE", "RULES", "SITES", "Case", "page", "ratio_of"]

RULES: dict[str, dict[str, Any]] = {
    name: {"aggregation.rule": name}
    for name in (
        "mean",
        "median",
        "trimmed-mean",
        "geometric-median",
        "krum",
        "multi-krum",
        "norm-clip",
        "centred-clip",
        "adaptive",
    )
}
RULES["guard"] = {"aggregation.guard": "on"}
RULES["guard+median"] = {"aggregation.guard": "on", "aggregation.rule": "median"}
SITES = {5: 1, 10: 2}
"""How many of so many sites lie."""
GONE = "gone"
"""In place of an attack: the liars do not take part."""


@dataclass(frozen=True)
class Case:
    """One run."""

    rule: str
    attack: str
    sites: int
    seed: int
    slots: int
    first: int

    @property
    def liars(self) -> tuple[int, ...]:
        """Identities of those that lie, the first ones."""
        return tuple(range(SITES[self.sites]))


def ratio_of(results: dict[Case, dict[str, Any]], case: Case) -> float:
    """E over that of the plain mean: without the liars, or for honest sites with all of them."""
    other = "none" if case.attack == "none" else GONE
    base = results[replace(case, rule="mean", attack=other)]["E"]
    own = results[case]["E"]
    return math.inf if own is None else own / base


def number(value: float) -> str:
    """Short: two decimals, or a power of ten."""
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2f}" if value < 99.5 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def cell(results: dict[Case, dict[str, Any]], runs: list[Case]) -> str:
    """Ratios of all seeds, and after how many of its updates the liar was named."""
    text = " ".join(number(ratio_of(results, case)) for case in runs)
    if "guard" not in runs[0].rule:
        return text
    if runs[0].attack == "none":
        wrong = sum(len(results[case]["honest_named"]) for case in runs)
        return f"{text} ({wrong} named)"
    after = [str(n) if n is not None else "–" for case in runs for n in results[case]["named"]]
    wrong = sum(len(results[case]["honest_named"]) for case in runs)
    return f"{text} ({' '.join(after)}{f'; {wrong} honest' if wrong else ''})"


def page(results: dict[Case, dict[str, Any]], slots: int, first: int) -> str:
    """The results of all cases with so many slots and such a first lie, as Markdown."""
    known = [case for case in results if (case.slots, case.first) == (slots, first)]
    names, lies = list(RULES), list(ATTACKS)
    rules = sorted({c.rule for c in known}, key=names.index)
    lines = [
        "# Lying sites",
        "",
        f"By `python benchmarks/trust.py --seeds {1 + max(c.seed for c in known)} --slots "
        f"{slots} --first {first}` on {platform.machine()}, {cores()} cores.",
        "The default federation (Lorenz63, the paper's network); the first site of 5, or the first "
        f"two of 10, lie from slot {first} on.",
        "One number per seed: E (mean of the last 50 slots) over E of the plain mean without the "
        "liars, on the same draws; in the row `none` over the plain mean with all sites honest.",
        "Attacks that are missing and cells that are empty were not run (`--only`).",
    ]
    if any("guard" in rule for rule in rules):
        lines.append(
            "In brackets: after how many of its own updates each liar was named (–: never), and "
            "how many honest sites were named."
        )
    for count in sorted({case.sites for case in known}):
        some = [case for case in known if case.sites == count and case.attack != GONE]
        attacks = sorted({case.attack for case in some}, key=lies.index)
        lines += ["", f"## {SITES[count]} of {count}", ""]
        lines += ["| attack | " + " | ".join(rules) + " |", "|---" * (len(rules) + 1) + "|"]
        for attack in attacks:
            row = []
            for rule in rules:
                runs = [c for c in some if (c.rule, c.attack) == (rule, attack)]
                runs.sort(key=lambda c: c.seed)
                runs = [c for c in runs if replace(c, rule="mean", attack=GONE) in results]
                row.append(cell(results, runs) if runs else "")
            lines.append(f"| {attack} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"
