"""Reproduced items as HTML and Markdown, one page of each and one over all, and in a terminal.

The HTML pages need no scripts.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from fedkoopman.paper.items import (
    AUDITED,
    DEPENDS,
    FAILS,
    HOLDS,
    OPEN,
    UNDECIDED,
    Claim,
    Reproduced,
    Table,
    commands,
    counts,
    printed_counts,
    worded,
)
from fedkoopman.paper.verdicts import BEYOND, HOLM, RULE
from fedkoopman.reports.document import code, folded
from fedkoopman.reports.tables import plain_console

if TYPE_CHECKING:
    from rich.console import Console

BADGES = {
    HOLDS: ("holds", "✓"),
    DEPENDS: ("open", "±"),
    FAILS: ("fails", "✗"),
    UNDECIDED: ("open", "?"),
    OPEN: ("open", "–"),
    AUDITED: ("open", "→"),
}
"""Class and sign of each verdict."""


def item_page(item: Reproduced, image: bytes | None) -> str:
    """A whole page, with the figure as PNG inside it; None for a table."""
    parts = [
        f"<h1>{escape(item.heading)}</h1>",
        f'<p class="lede">{escape(item.paper)} of the paper, reproduced as '
        f'{escape(item.name)}. <a href="../index.html">All items</a></p>',
        *_notice([item]),
    ]
    claims = ["<h2>The paper’s claims</h2>", *map(_claim, item.findings.claims)]
    parts += [] if item.fast else claims  # with few seeds and slots they decide nothing
    if image is not None:
        parts += [
            "<h2>Figure</h2>",
            f'<figure><img class="{"several" if len(item.findings.panels) > 1 else "one"}" '
            f'src="data:image/png;base64,{b64encode(image).decode()}" '
            f'alt="{escape(item.description)}"></figure>',
            f'<p class="caption">{escape(item.caption)}</p>' if item.caption else "",
        ]
    parts += ["<h2>Table</h2>", _table(item.findings.table)]
    parts += claims if item.fast else []
    for title, table in item.findings.all_tables:
        parts += [f"<h2>{escape(title)}</h2>", _table(table)]
    if item.findings.notes:
        notes = "".join(f"<li>{escape(note)}</li>\n" for note in item.findings.notes)
        parts += ["<h2>Notes</h2>", f"<ul>\n{notes}</ul>"]
    parts += ["<h2>How it was made</h2>", code(item.command), _sources(item), _files(item)]
    return _page(f"{item.paper}: {item.heading}", parts)


def index_page(items: Sequence[Reproduced]) -> str:
    """A page over all items in the order in which they are shown, beside their directories."""
    facts = "".join(
        f"<div><dt>{_badge(verdict)}</dt><dd>{number}</dd></div>"
        for verdict, number in counts(items).items()
    )
    parts = [
        "<h1>The paper, reproduced</h1>",
        '<p class="lede">Every claim of the paper’s numerical section and of its theorem, with a '
        'verdict computed from our numbers. The same as text: <a href="paper.md">paper.md</a></p>',
        *_notice(items),
        f'<dl class="facts">{facts}</dl>',
        f"<p>{escape(_sentence(printed_counts(items)))}</p>" if printed_counts(items) else "",
    ]
    for item in items:
        address = escape(f"{item.name}/{item.name}.html")
        claims = "".join(
            f"<li>{_badge(claim.verdict, claim.told)} {escape(worded(claim))}"
            f'<span class="caption">{escape(claim.evidence)}</span></li>\n'
            for claim in item.findings.claims
        )
        parts += [
            f'<h2><a href="{address}">{escape(item.paper)}: {escape(item.heading)}</a></h2>',
            f'<div class="item"><div>{_thumbnail(item, address)}</div>\n<ul>\n{claims}</ul></div>',
        ]
    parts += ["<h2>How it was made</h2>", code(commands(items))]
    return _page("The paper, reproduced", parts)


def _page(title: str, parts: Iterable[str]) -> str:
    template = (files("fedkoopman.paper") / "paper.html").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return Template(template).substitute(title=escape(title), body=body)


def _notice(items: Sequence[Reproduced]) -> list[str]:
    several = len(items) > 1
    return [
        f'<p class="notice">{escape(f"{names}: " if several else "")}{escape(notice)}</p>'
        for notice, names in _noticed(items)
    ]


def _noticed(items: Iterable[Reproduced]) -> list[tuple[str, str]]:
    """What readers must know before all else, each with the names of the items it is about."""
    found: dict[str, list[str]] = {}
    for item in items:
        for notice in item.notices:
            found.setdefault(notice, []).append(item.name)
    return [(notice, ", ".join(names)) for notice, names in found.items()]


def _badge(verdict: str, told: str = "") -> str:
    style, sign = BADGES[verdict]
    return f'<span class="badge {style}">{sign} {escape(told or verdict)}</span>'


def _claim(claim: Claim) -> str:
    whose = "Our claim" if claim.ours else "Paper"
    rows = [(whose, claim.text), ("Ours", claim.evidence), ("Why", claim.why)]
    terms = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>\n" for name, text in rows if text)
    style, _ = BADGES[claim.verdict]
    badge = _badge(claim.verdict, claim.told)
    return f'<div class="claim {style}">{badge}\n<dl>\n{terms}</dl></div>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>\n"
        for first, *rest in table.rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
    )


def _sources(item: Reproduced) -> str:
    sources = item.findings.sources
    if not sources:
        return ""
    each = [folded(label, code(text)) for label, text in sources]
    return folded(f"The exact study of each row and line ({len(sources)})", "\n".join(each))


def _files(item: Reproduced) -> str:
    names = [f"{item.name}.pdf", f"{item.name}.png"] if item.findings.panels else []
    names += [*item.tables, f"{item.name}.md", f"{item.name}.json"]
    links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in names)
    return f"<p>Files: {links}</p>"


def _thumbnail(item: Reproduced, address: str) -> str:
    if not item.findings.panels:
        return f'<p class="caption">A table: <a href="{address}">{escape(item.name)}</a></p>'
    source = escape(f"{item.name}/{item.name}.png")
    return f'<a href="{address}"><img src="{source}" alt="{escape(item.description)}"></a>'


def item_markdown(item: Reproduced) -> str:
    """The figure, the table, the verdicts and the notes."""
    lines = [f"# {_markdown(item.paper)}: {_markdown(item.heading)}", ""]
    lines += _markdown_notices([item])
    rows = [(worded(c), _verdict(c), c.evidence, c.why) for c in item.findings.claims]
    lines += _markdown_table(("claim", "verdict", "ours", "why"), rows, marked=(1,))
    lines += ["", *_markdown_body(item, f"{item.name}.png")]
    return "\n".join(lines) + "\n"


def paper_markdown(items: Sequence[Reproduced]) -> str:
    """Every claim of the paper with our verdict and number, then every item, in the order given.

    Images are expected in `paper/`.
    """
    found = counts(items)
    lines = [
        "# The paper, reproduced",
        "",
        "Figures, tables and verdicts on this page were written by `fedkoopman reproduce`; each "
        "item names its command. Readings of the paper's words (“similar”, “quickly”) and remarks "
        "are ours, and stand in the notes. A verdict is computed from the numbers beside it. "
        f"{RULE} {BEYOND} {HOLM} ± and bands are standard deviations over seeds; every item's page "
        "names its seeds and holds the exact study of every line.",
        "",
        "“Undecided” is what more seeds or trajectories could tell, or a difference of less than "
        "5 %, which no number of seeds makes count; “depends on the reading” what holds under one "
        "reading of the paper and is not shown to hold under another; “cannot be compared” what no "
        "number of ours could tell.",
        "",
        "The same command gives the same numbers again, measured times apart. Another kind of "
        "processor rounds the last digit otherwise, which training magnifies: numbers then move "
        "within their spread over seeds; `benchmarks/other_processor.py` compares the verdicts.",
        "",
        *_markdown_notices(items),
        *_markdown_table(
            ("verdict", "the paper's claims"), [(verdict, str(n)) for verdict, n in found.items()]
        ),
        "",
        *([_markdown(_sentence(printed_counts(items))), ""] if printed_counts(items) else []),
        "## Every claim",
        "",
    ]
    rows = [
        (f"[{_markdown(i.paper)}](#{i.name})", worded(c), _verdict(c), c.evidence, c.why)
        for i in items
        for c in i.findings.claims
    ]
    columns = ("where", "claim", "verdict", "our result", "why")
    lines += _markdown_table(columns, rows, marked=(0, 2))
    for item in items:
        said = ", ".join(f"{verdict} {n}" for verdict, n in counts([item]).items() if n)
        lines += [
            "",
            f'<a id="{item.name}"></a>',
            "",
            f"## {_markdown(item.paper)}: {_markdown(item.heading)}",
            "",
            f"Claims: {said or 'none'}.",
            "",
            *_markdown_body(item, f"paper/{item.name}.png"),
        ]
    return "\n".join(lines) + "\n"


def _verdict(claim: Claim) -> str:
    detail = f" ({_markdown(claim.detail)})" if claim.detail else ""
    return f"**{_markdown(claim.verdict)}**{detail}"


def _markdown_body(item: Reproduced, image: str) -> list[str]:
    lines = []
    if item.findings.panels:
        lines += [f"![{_markdown(item.description)}]({image})", ""]
        lines += [_markdown(item.caption), ""] if item.caption else []
    lines += _markdown_table(item.findings.table.columns, item.findings.table.rows)
    for title, table in item.findings.all_tables:
        lines += ["", f"**{_markdown(title)}**", "", *_markdown_table(table.columns, table.rows)]
    lines += [""] + [f"- {_markdown(note)}" for note in item.findings.notes]
    return [*lines, "", f"Made by {_markdown_code(item.command)}."]


def _markdown_notices(items: Iterable[Reproduced]) -> list[str]:
    lines = [[f"> **{names}**: {_markdown(notice)}", ""] for notice, names in _noticed(items)]
    return [line for pair in lines for line in pair]


def _markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], marked: Sequence[int] = ()
) -> list[str]:
    """Lines of a table; cells of the `marked` columns are Markdown already."""
    lines = [[_markdown(column) for column in columns], ["---"] * len(columns)]
    lines += [
        [cell if i in marked else _markdown(cell) for i, cell in enumerate(row)] for row in rows
    ]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _markdown(text: str) -> str:
    """Plain text as Markdown shows it, on one line."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    # brackets that no parenthesis follows and underscores within words mean nothing by themselves
    special = r"[\\`*|~$]|\[(?=[^\]]*\]\()|(?<!\w)_|_(?!\w)|^[>#]|^[+-](?=\s)"
    return re.sub(special, r"\\\g<0>", line)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _markdown_code(text: str) -> str:
    """Text to be read letter by letter."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{' '.join(text.split())}{fence}"


COLOURS = {
    HOLDS: "green", FAILS: "red", DEPENDS: "magenta", UNDECIDED: "yellow", OPEN: "yellow",
    AUDITED: "cyan",
}  # fmt: skip
LABEL = 24
"""Columns for a row's label; a longer one takes several lines where there is no room."""

GAP = 3
"""Width of the gap between two columns of a table."""


def show(item: Reproduced) -> None:
    """Print the item's table and what it says about each of the paper's claims."""
    from rich.padding import Padding
    from rich.text import Text

    console = plain_console()
    console.print()
    console.print(Text(f"{item.paper}: {item.heading}", style="bold"))
    for notice in item.notices:
        console.print(Text(notice, style="yellow"))
    _print_table(console, item.findings.table)
    for title, table in item.findings.all_tables:
        console.print(Text(title))
        _print_table(console, table)
    for claim in item.findings.claims:
        style = COLOURS[claim.verdict]
        console.print(Text.assemble((claim.told, f"bold {style}"), ": ", worded(claim)))
        for line in filter(None, (claim.evidence, claim.why)):
            console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False))


def _print_table(console: "Console", table: Table) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    for group, widths in _groups(table, console.width):
        grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for i, width in zip(group, widths, strict=True):
            grid.add_column(Text(table.columns[i]), overflow="fold", width=width)
        for row in table.rows:
            grid.add_row(*(Text(row[i]) for i in group))
        console.print(grid)


def show_counts(items: Sequence[Reproduced]) -> None:
    """Print how many claims of each item, and of all, have each verdict."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    console = plain_console()
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_footer=True)
    grid.add_column("item", footer="all")
    grid.add_column("paper")
    every = counts(items)
    for verdict, count in every.items():
        style = COLOURS[verdict]
        grid.add_column(Text(verdict, style=style), Text(str(count)), justify="right", style=style)
    for item in items:
        found = counts([item])
        cells = [str(found.get(verdict, "")) for verdict in every]
        grid.add_row(*map(Text, (item.name, item.paper, *cells)))
    console.print(grid)
    if line := printed_counts(items):
        console.print(Text(line))
    for notice, _ in _noticed(items):
        console.print(Text(notice, style="yellow"))


def _groups(table: Table, width: int) -> list[tuple[list[int], list[int]]]:
    """The columns and their widths, in groups that fit, each with the first column before it.

    If all columns do not fit as they are, headings are broken between words, and so are long
    labels.
    """
    from rich.cells import cell_len

    natural, broken = [], []
    for i, heading in enumerate(table.columns):
        cells = [row[i] for row in table.rows]
        longest = max((cell_len(cell) for cell in cells), default=0)
        word = max(cell_len(word) for cell in (heading, *cells) for word in cell.split() or [""])
        natural.append(max(longest, cell_len(heading)))
        broken.append(max(word, min(longest, LABEL) if i == 0 else longest))
    widths = natural if sum(natural) + GAP * len(natural) <= width else broken
    groups = [[0]]
    for i in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(GAP + widths[j] for j in [*groups[-1], i]) > width:
            groups.append([0])
        groups[-1].append(i)
    return [(group, [widths[i] for i in group]) for group in groups]
