"""What a notebook shows of an object at the end of a cell: a title and a small table of facts.

Every text is escaped, so names from files and networks are inert. Colours are those of the page
around it, so that it is readable on light and on dark.
"""

from collections.abc import Iterable
from html import escape
from typing import Any

LONGEST = 160
"""Characters of a fact; longer ones are cut."""

_TABLE = "border-collapse:collapse;border-left:3px solid #0072b2;margin:.3em 0;font-size:90%"
_NAME = "text-align:left;padding:.1em .8em;font-weight:normal;opacity:.7;background:none"
_FACT = "text-align:left;padding:.1em .8em;background:none"


def facts(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """The table as HTML.

    Arguments:
        title: above it.
        rows: names with facts, which are shown as texts; those that are None are left out.
    """
    lines = [
        f'<tr style="background:none"><th scope="row" style="{_NAME}">{_shown(name)}</th>'
        f'<td style="{_FACT}">{_shown(fact)}</td></tr>'
        for name, fact in rows
        if fact is not None
    ]
    head = f'<caption style="text-align:left;color:inherit"><b>{_shown(title)}</b></caption>'
    return f'<table style="{_TABLE}">{head}<tbody>{"".join(lines)}</tbody></table>'


def _shown(fact: Any) -> str:
    text = " ".join(str(fact).split())
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
