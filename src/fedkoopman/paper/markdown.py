"""Reproduced items as Markdown: a file of each, and one over all of them."""

import re
from collections.abc import Iterable, Sequence

from fedkoopman.paper.item import FAST, Reproduced, counts, worded

__all__ = ["item_markdown", "paper_markdown"]


def item_markdown(item: Reproduced) -> str:
    """The figure, the table, the verdicts and the notes."""
    lines = [f"# {_text(item.paper)}: {_text(item.heading)}", ""]
    lines += _fast([item])
    rows = [(worded(c), f"**{c.verdict}**", c.evidence, c.why) for c in item.findings.claims]
    lines += _table(("claim", "verdict", "ours", "why"), rows, marked=(1,))
    lines += ["", *_body(item, f"{item.name}.png")]
    return "\n".join(lines) + "\n"


def paper_markdown(items: Sequence[Reproduced]) -> str:
    """Every claim of the paper with our verdict and number, then every item.

    Arguments:
        items: in the order in which they are shown; their images are expected in `paper/`.
    """
    found = counts(items)
    lines = [
        "# The paper, reproduced",
        "",
        "Figures, tables and verdicts on this page were written by `fedkoopman reproduce`; each "
        "item names its command. Readings of the paper's words (“similar”, “quickly”) and remarks "
        "are ours, and stand in the notes. A verdict is computed from the numbers beside it. ± and "
        "bands are standard deviations over seeds; every item's page names its seeds and holds the "
        "exact study of every line. The same command gives the same numbers again, measured times "
        "apart; another kind of processor may round the last digit otherwise, which training "
        "magnifies: compare within the spread over seeds.",
        "",
        *_fast(items),
        *_table(
            ("verdict", "the paper's claims"), [(verdict, str(n)) for verdict, n in found.items()]
        ),
        "",
        "## Every claim",
        "",
    ]
    rows = [
        (f"[{_text(i.paper)}](#{i.name})", worded(c), f"**{c.verdict}**", c.evidence, c.why)
        for i in items
        for c in i.findings.claims
    ]
    columns = ("where", "claim", "verdict", "our result", "why")
    lines += _table(columns, rows, marked=(0, 2))
    for item in items:
        said = ", ".join(f"{n} {verdict}" for verdict, n in counts([item]).items() if n)
        lines += [
            "",
            f'<a id="{item.name}"></a>',
            "",
            f"## {_text(item.paper)}: {_text(item.heading)}",
            "",
            f"Claims: {said or 'none'}.",
            "",
            *_body(item, f"paper/{item.name}.png"),
        ]
    return "\n".join(lines) + "\n"


def _body(item: Reproduced, image: str) -> list[str]:
    lines = []
    if item.findings.panels:
        lines += [f"![{_text(item.description)}]({image})", ""]
        lines += [_text(item.caption), ""] if item.caption else []
    lines += _table(item.findings.table.columns, item.findings.table.rows)
    lines += [""] + [f"- {_text(note)}" for note in item.findings.notes]
    return [*lines, "", f"Made by {_code(item.command)}."]


def _fast(items: Iterable[Reproduced]) -> list[str]:
    names = [item.name for item in items if item.fast]
    return [f"> **{', '.join(names)}**: {_text(FAST)}", ""] if names else []


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], marked: Sequence[int] = ()
) -> list[str]:
    """Lines of a table; cells of the `marked` columns are Markdown already."""
    lines = [[_text(column) for column in columns], ["---"] * len(columns)]
    lines += [[cell if i in marked else _text(cell) for i, cell in enumerate(row)] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _text(text: str) -> str:
    """Plain text as Markdown shows it, on one line."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    # brackets that no parenthesis follows and underscores within words mean nothing by themselves
    special = r"[\\`*|~$]|\[(?=[^\]]*\]\()|(?<!\w)_|_(?!\w)|^[>#]|^[+-](?=\s)"
    return re.sub(special, r"\\\g<0>", line)


def _code(text: str) -> str:
    """Text to be read letter by letter."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{' '.join(text.split())}{fence}"
