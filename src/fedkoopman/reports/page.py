"""One self-contained HTML page: text, tables and figures, nothing loaded from elsewhere."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Cell:
    """A table cell: its text and, for looks only, its class."""

    text: str
    style: str = ""


class Page:
    """A page put together from top to bottom; every text given is escaped."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        self._figures: dict[str, str] = {}

    def paragraph(self, text: str, style: str = "") -> None:
        """Add a paragraph; `style` is one of lede, caption, notice or nothing."""
        self._parts.append(f"<p{_class(style)}>{escape(text)}</p>")

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def facts(self, facts: Mapping[str, str]) -> None:
        """Add a row of single numbers with their names."""
        items = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in facts.items()
        )
        self._parts.append(f'<dl class="facts">{items}</dl>')

    def table(
        self, name: str, head: Sequence[Cell], rows: Sequence[Sequence[Cell]], *,
        below: str = "", low: bool = False,
    ) -> None:  # fmt: skip
        """Add a table whose rows begin with their heading.

        Arguments:
            name: unique on the page.
            head: the columns' headings.
            rows: each as long as the head.
            below: the line that opens the table; without it, the table stands open.
            low: no higher than a figure; what is more scrolls.
        """
        top = "".join(f'<th scope="col"{_class(c.style)}>{escape(c.text)}</th>' for c in head)
        body = "".join(
            f'<tr><th scope="row">{escape(first.text)}</th>'
            + "".join(f"<td{_class(c.style)}>{escape(c.text)}</td>" for c in rest)
            + "</tr>\n"
            for first, *rest in rows
        )
        table = (
            f'<table id="{escape(name)}"><thead><tr>{top}</tr></thead>\n'
            f"<tbody>{body}</tbody></table>"
        )
        table = f"<div{_class('scroll low' if low else 'scroll')}>{table}</div>"
        self._parts.append(folded(below, table))

    def chart(self, name: str, figure: "go.Figure", description: str) -> None:
        """Add a figure.

        Arguments:
            name: unique on the page.
            figure: drawn over the whole width there is.
            description: what it shows, for readers who cannot see it.
        """
        self._figures[name] = figure.to_json(engine="json")
        self._parts.append(
            f'<div class="chart" id="{escape(name)}" role="img" '
            f'aria-label="{escape(description)}"></div>'
        )

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Put the two parts added within beside each other, where there is room."""
        self._parts.append('<div class="pair">')
        yield
        self._parts.append("</div>")

    def code(self, text: str, below: str = "") -> None:
        """Add text in a fixed-width font; `below` as in `table`."""
        self._parts.append(folded(below, code(text)))

    def without_scripts(self, text: str) -> None:
        """Add a paragraph that is shown only where scripts are off."""
        self._parts.append(f'<noscript><p class="notice">{escape(text)}</p></noscript>')

    def html(self) -> Iterator[bytes]:
        """The whole page, in pieces: nearly all of it is plotly's script, which is not copied."""
        # plotly writes <, > and / of its texts as \\u003c…, so that no text can end the script
        figures = ",\n".join(f'"{name}": {figure}' for name, figure in self._figures.items())
        template = (files("fedkoopman.reports") / "run.html").read_text(encoding="utf-8")
        texts = {
            "title": escape(self._title),
            "body": "\n".join(self._parts),
            "figures": f"{{{figures}}}",
        }
        before, after = template.split("$plotly")
        yield Template(before).substitute(texts).encode()
        yield _plotly()
        yield Template(after).substitute(texts).encode()


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().encode()


def number(value: float, digits: int = 4) -> str:
    """A number as pages show it."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"


def _class(style: str) -> str:
    return f' class="{escape(style)}"' if style else ""


def code(text: str) -> str:
    """Text in a fixed-width font."""
    return f"<pre><code>{escape(text)}</code></pre>"


def folded(line: str, content: str) -> str:
    """Content that is hidden below a line until a reader opens it; without a line, it is shown."""
    if not line:
        return content
    return f"<details><summary>{escape(line)}</summary>\n{content}\n</details>"
