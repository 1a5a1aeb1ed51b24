"""A story (`blocks.Story`) as one self-contained HTML page: nothing is loaded from elsewhere.

Texts and tables are HTML, which needs no script; charts are drawn by the page's own script. The
page's policy lets nothing run but this script, by its hash, so that no name in a study can.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from fedkoopman.reports.blocks import Block, Section, Story

__all__ = ["code", "document", "folded", "story_json"]


def document(story: Story, live: str | None = None) -> Iterator[bytes]:
    """The whole page, in pieces.

    Arguments:
        live: an address on the page's own server that gives the story of the moment as JSON
            (`story_json`); the page asks for it every second, with `If-None-Match`, and redraws
            what has changed.
    """
    style, script = _asset("page.css"), _asset("charts.js") + _asset("page.js")
    policy = [
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    texts = {
        "title": escape(story["title"]),
        "policy": escape("; ".join(policy)),
        "live": escape(live or ""),
        "style": style,
        "script": script,
        "lede": escape(story["lede"]),
        "contents": "\n".join(
            f'<a href="#{escape(one["id"])}">{escape(one["title"])}</a>'
            for one in story["sections"]
        ),
        "sections": "\n".join(map(_section, story["sections"])),
        "story": story_json(story).decode().replace("<", "\\u003c"),
    }
    yield Template(_asset("page.html")).substitute(texts).encode()


def story_json(story: Story) -> bytes:
    """A story as the page's script reads it."""
    return json.dumps(story, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@cache
def _asset(name: str) -> str:
    return (files("fedkoopman.reports") / "assets" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _section(one: Section) -> str:
    body = "\n".join(map(_block, one["blocks"]))
    name, title = escape(one["id"]), escape(one["title"])
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>\n{body}\n</section>'  # noqa: E501


def _block(block: Block) -> str:
    kind = block["kind"]
    if kind == "text":
        return f"<p{_class(block['style'])}>{escape(block['text'])}</p>"
    if kind == "facts":
        items = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in block["facts"]
        )
        return f'<dl class="facts">{items}</dl>'
    if kind == "code":
        return folded(block["folded"], code(block["text"]))
    if kind == "table":
        return folded(block["folded"], _table(block))
    return (
        f'<figure class="chart" id="{escape(block["id"])}"><figcaption>{escape(block["title"])}'
        f"</figcaption><noscript><p>{escape(block['description'])}</p></noscript></figure>"
    )


def _table(block: Block) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in block["head"])
    rows = "".join(
        f'<tr><th scope="row"{_class(first[1])}>{escape(first[0])}</th>'
        + "".join(
            f'<td{_class(style)} data-name="{escape(name)}">{escape(words)}</td>'
            for (words, style), name in zip(rest, block["head"][1:], strict=True)
        )
        + "</tr>\n"
        for first, *rest in block["rows"]
    )
    return (
        f'<div class="scroll" tabindex="0"><table id="{escape(block["id"])}"'
        f"{_class(block['style'])}><thead><tr>{top}</tr>"
        f"</thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _class(style: str) -> str:
    return f' class="{escape(style)}"' if style else ""


def code(words: str) -> str:
    """Text in a fixed-width font."""
    return f"<pre><code>{escape(words)}</code></pre>"


def folded(line: str, content: str) -> str:
    """Content that is hidden below a line until a reader opens it; without a line, it is shown."""
    if not line:
        return content
    return f"<details><summary>{escape(line)}</summary>\n{content}\n</details>"
