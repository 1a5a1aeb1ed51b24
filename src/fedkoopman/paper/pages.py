"""Pages of reproduced items: one of each, and one over all of them. They need no scripts."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from fedkoopman.paper.item import FAST, Reproduced, commands, counts, worded
from fedkoopman.paper.result import FAILS, HOLDS, OPEN, Claim, Table

__all__ = ["index_page", "item_page"]

BADGES = {HOLDS: ("holds", "✓"), FAILS: ("fails", "✗"), OPEN: ("open", "?")}
"""Class and sign of each verdict."""


def item_page(item: Reproduced, image: bytes | None) -> str:
    """A whole page.

    Arguments:
        item: what it tells.
        image: the figure as PNG, which becomes part of the page; None for a table.
    """
    parts = [
        f"<h1>{escape(item.heading)}</h1>",
        f'<p class="lede">{escape(item.paper)} of the paper, reproduced as '
        f'{escape(item.name)}. <a href="../index.html">All items</a></p>',
        *_notice([item]),
        "<h2>The paper’s claims</h2>",
        *map(_claim, item.findings.claims),
    ]
    if image is not None:
        parts += [
            "<h2>Figure</h2>",
            f'<figure><img class="{"several" if len(item.findings.panels) > 1 else "one"}" '
            f'src="data:image/png;base64,{b64encode(image).decode()}" '
            f'alt="{escape(item.description)}"></figure>',
            f'<p class="caption">{escape(item.caption)}</p>' if item.caption else "",
        ]
    parts += ["<h2>Table</h2>", _table(item.findings.table)]
    if item.findings.notes:
        notes = "".join(f"<li>{escape(note)}</li>\n" for note in item.findings.notes)
        parts += ["<h2>Notes</h2>", f"<ul>\n{notes}</ul>"]
    parts += ["<h2>How it was made</h2>", _code(item.command), _sources(item), _files(item)]
    return _page(f"{item.paper}: {item.heading}", parts)


def index_page(items: Sequence[Reproduced]) -> str:
    """A page over all items, beside their directories.

    Arguments:
        items: in the order in which they are shown.
    """
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
    ]
    for item in items:
        address = escape(f"{item.name}/{item.name}.html")
        claims = "".join(
            f"<li>{_badge(claim.verdict)} {escape(worded(claim))}"
            f'<span class="caption">{escape(claim.evidence)}</span></li>\n'
            for claim in item.findings.claims
        )
        parts += [
            f'<h2><a href="{address}">{escape(item.paper)}: {escape(item.heading)}</a></h2>',
            f'<div class="item"><div>{_thumbnail(item, address)}</div>\n<ul>\n{claims}</ul></div>',
        ]
    parts += ["<h2>How it was made</h2>", _code(commands(items))]
    return _page("The paper, reproduced", parts)


def _page(title: str, parts: Iterable[str]) -> str:
    template = (files("fedkoopman.paper") / "paper.html").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return Template(template).substitute(title=escape(title), body=body)


def _notice(items: Sequence[Reproduced]) -> list[str]:
    names = [item.name for item in items if item.fast]
    if not names:
        return []
    which = f"{', '.join(names)}: " if len(items) > 1 else ""
    return [f'<p class="notice">{escape(which + FAST)}</p>']


def _badge(verdict: str) -> str:
    style, sign = BADGES[verdict]
    return f'<span class="badge {style}">{sign} {escape(verdict)}</span>'


def _claim(claim: Claim) -> str:
    whose = "Our claim" if claim.ours else "Paper"
    rows = [(whose, claim.text), ("Ours", claim.evidence), ("Why", claim.why)]
    terms = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>\n" for name, text in rows if text)
    style, _ = BADGES[claim.verdict]
    return f'<div class="claim {style}">{_badge(claim.verdict)}\n<dl>\n{terms}</dl></div>'


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
    each = [_folded(label, _code(text)) for label, text in sources]
    return _folded(f"The exact study of each row and line ({len(sources)})", "\n".join(each))


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


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _folded(line: str, content: str) -> str:
    return f"<details><summary>{escape(line)}</summary>\n{content}\n</details>"
