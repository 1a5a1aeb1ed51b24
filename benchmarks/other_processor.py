"""Does another kind of processor give the same verdicts?

XLA can be told to leave out newer instructions, which rounds as an older processor does: training
magnifies the difference, and all numbers move within their spread over seeds. Reproduce the paper
twice,

    fedkoopman reproduce all --data PATH --out here
    export XLA_FLAGS=--xla_cpu_max_isa=AVX JAX_COMPILATION_CACHE_DIR=avx
    fedkoopman reproduce all --data PATH --out there

and compare:

    python benchmarks/other_processor.py here there

It writes benchmarks/results/other_processor.md: every claim whose verdict differs, with both.
"""

import sys
from importlib import import_module
from pathlib import Path

from fedkoopman.paper.files import read_saved
from fedkoopman.paper.items import CATALOGUE, Claim

PAGE = Path(__file__).parent / "results" / "other_processor.md"


def claims(folder: Path) -> dict[tuple[str, str], Claim]:
    """All claims of a directory of reproduced items, by item and wording."""
    found = {}
    for name, about in CATALOGUE.items():
        saved = read_saved(folder, name)
        if saved is not None:
            for claim in import_module(about.module).ITEM.findings(saved.data).claims:
                found[name, claim.text] = claim
    return found


def page(ours: dict[tuple[str, str], Claim], theirs: dict[tuple[str, str], Claim]) -> str:
    """How many verdicts are the same, and which are not."""
    both = [key for key in ours if key in theirs]
    differ = [key for key in both if ours[key].verdict != theirs[key].verdict]
    moved = sum(ours[key].evidence != theirs[key].evidence for key in both)
    lines = [
        "# Verdicts on another kind of processor",
        "",
        "Made by `benchmarks/other_processor.py`, whose head says how: the second directory was "
        "computed without the instructions that came after AVX, which rounds as an older processor "
        "does.",
        "",
        f"Of {len(both)} claims, {moved} have other numbers there, and **{len(differ)} have "
        "another verdict**.",
    ]
    if differ:
        lines += ["", "| item | claim | here | there |", "|---|---|---|---|"]
        lines += [
            f"| {item} | {text} | {ours[item, text].told}: {ours[item, text].evidence} "
            f"| {theirs[item, text].told}: {theirs[item, text].evidence} |"
            for item, text in differ
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("give two directories that fedkoopman reproduce wrote")
    text = page(*(claims(Path(name)) for name in sys.argv[1:]))
    PAGE.write_text(text, encoding="utf-8")
    print(text)
