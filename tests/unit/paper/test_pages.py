"""Pages, Markdown and terminal texts of reproduced items say everything, and say it as it is."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from fedkoopman.paper.files import write_index, write_item, write_numbers
from fedkoopman.paper.items import (
    FAILS,
    FAST,
    HOLDS,
    LOWER,
    OPEN,
    PRINTED,
    SPREAD,
    Reproduced,
    Table,
)
from fedkoopman.paper.pages import (
    index_page,
    item_markdown,
    item_page,
    paper_markdown,
    show,
    show_counts,
)


class Reader(HTMLParser):
    """The text of a page, and what its tags say."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._style = False
        self.feed(page)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._style else f" {data}"

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]


def said(item: Reproduced, why: bool = True) -> list[str]:
    """What every account of an item holds."""
    claims = [part for c in item.findings.claims for part in (c.text, c.verdict, c.evidence)]
    claims += [c.why for c in item.findings.claims if why]
    return [" ".join(part.split()) for part in (item.paper, item.heading, *claims)]


def cells(item: Reproduced) -> list[str]:
    """Every table's cells, and the titles of those after the first."""
    titled = item.findings.all_tables
    tables = [item.findings.table, *(table for _, table in titled)]
    found = [c for table in tables for row in (table.columns, *table.rows) for c in row]
    return [*(title for title, _ in titled), *found]


def rendered(markdown: str) -> Reader:
    return Reader(MarkdownIt("commonmark").enable("table").render(markdown))


def test_a_page_says_everything_as_it_is(item) -> None:
    page = Reader(item_page(item, b"\x89PNG"))
    sources = [" ".join(part.split()) for source in item.findings.sources for part in source]
    for words in (*said(item), *cells(item), *item.findings.notes, *sources, item.command, SPREAD):
        assert words in page.text
    assert not {"b", "script", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert page.values("src") == ["data:image/png;base64,iVBORw=="]


def test_a_verdict_is_told_by_a_badge_and_in_words(item) -> None:
    text = item_page(item, None)
    for verdict, style in ((HOLDS, "holds"), (FAILS, "fails"), (OPEN, "open")):
        assert re.search(rf'<span class="badge {style}">. {verdict}</span>', text)


def test_pages_load_nothing_and_their_links_lead_somewhere(tmp_path: Path, item) -> None:
    write_numbers(tmp_path, item.name, {}, {}, item.command, fast=False)
    page = write_item(tmp_path, item)
    index, _ = write_index(tmp_path, [item])
    for path in (page, index):
        text = path.read_text(encoding="utf-8")
        reader = Reader(text)
        assert "http:" not in text and "https:" not in text
        addresses = [a for a in reader.values("href") + reader.values("src") if a[:5] != "data:"]
        assert addresses
        for address in addresses:
            assert (path.parent / address).is_file(), address


def test_the_index_counts_verdicts_over_all_items(item) -> None:
    mine = replace(item.findings.claims[0], ours=True)
    claims = (*item.findings.claims, mine)
    findings = replace(item.findings, panels=(), claims=claims)
    again = item.command.replace(item.name, "fig-noise")
    other = replace(item, name="fig-noise", command=again, findings=findings)
    page = Reader(index_page([item, other]))
    for words in (
        *said(item, why=False),
        f"ours, not the paper's: {mine.text}",
        item.command.replace(item.name, f"{item.name} fig-noise"),
        "✓ holds 2 ✗ does not hold 2 – cannot be compared 2",
    ):
        assert words in page.text


def test_printed_numbers_have_a_table_and_are_counted(item, capsys) -> None:
    """Those by which a setting was chosen are told apart; a fast item decides nothing."""
    title, table = item.findings.all_tables[0]
    assert title == PRINTED and len(table.rows) == 4
    assert table.rows[1][1:] == ("3.25", "1.5", "1.125 to 1.875", LOWER)
    assert table.rows[2][4] == "agrees (our setting was chosen by it)"
    assert table.rows[3][2:] == ("not finite", "–", OPEN)
    line = (
        "rinted numbers: 2 agree, 0 higher, 2 lower, 2 cannot be compared (ours beside the "
        "paper's; under two readings a number counts twice; 2 more by which a setting of ours was "
        "chosen)"
    )
    items = [item, replace(item, name="fig-noise")]
    assert line in Reader(index_page(items)).text and line in rendered(paper_markdown(items)).text
    show_counts(items)
    assert line in " ".join(capsys.readouterr().out.split())
    none = replace(item, findings=replace(item.findings, printed=()))
    assert "rinted numbers" not in index_page([none]) + paper_markdown([none])
    assert {one.verdict for one in item.findings.left_open(FAST).printed} == {OPEN}


def test_fast_items_have_a_banner(item) -> None:
    fast = replace(item, fast=True)
    other = replace(item, name="fig-noise")
    assert FAST in Reader(item_page(fast, None)).text
    assert f"{item.name}: {FAST}" in Reader(index_page([fast, other])).text
    assert FAST in item_markdown(fast)
    assert FAST in paper_markdown([other, fast])
    for text in (item_page(item, None), index_page([item]), item_markdown(item)):
        assert "--fast" not in text


def test_markdown_of_an_item_reads_as_the_texts_are(item) -> None:
    page = rendered(item_markdown(item))
    for words in (*said(item), *cells(item), *item.findings.notes, item.command):
        assert words in page.text
    assert not {"em", "a", "b", "blockquote"} & {tag for tag, _ in page.tags}
    assert page.values("src") == [f"{item.name}.png"]


def test_the_paper_has_a_row_for_every_claim(item) -> None:
    other = replace(item, name="theorem1", paper="Theorem 1")
    text = paper_markdown([item, other])
    page = rendered(text)
    for words in (*said(item), *cells(item), *item.findings.notes, item.command):
        assert words in page.text
    for each in (item, other):
        for claim in each.findings.claims:
            start = f"| [{each.paper}](#{each.name}) | {claim.text[:8]}"
            [row] = [line for line in text.splitlines() if line.startswith(start)]
            assert f"| **{claim.verdict}** |" in row
            assert len(re.findall(r"(?<!\\)\|", row)) == 6
        assert f'<a id="{each.name}"></a>' in text
        assert f"](paper/{each.name}.png)" in text
    for verdict in (HOLDS, FAILS, OPEN):
        assert f"| {verdict} | 2 |" in text


def test_the_terminal_says_everything(item, capsys) -> None:
    show(replace(item, fast=True))
    out = " ".join(capsys.readouterr().out.split())
    for words in (*said(item), *cells(item), FAST):
        assert words in out


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_wide_table_stays_whole_in_a_narrow_terminal(item, capsys, monkeypatch, width) -> None:
    """No number is broken or lost; columns without room follow below, with the labels again."""
    columns = ("method", *(f"quantity {i}: ours" for i in range(9)))
    rows = tuple(
        (f"method number {j} with a name", *(f"{i}.{j}234 ± 0.5678" for i in range(9)))
        for j in range(3)
    )
    wide = replace(item, findings=replace(item.findings, table=Table(columns, rows)))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    show(wide)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= width
    for row in rows:
        for cell in row[1:]:
            assert sum(cell in line for line in lines) == 1


def test_the_terminal_counts_the_verdicts_of_many(item, capsys) -> None:
    one = replace(item.findings, claims=item.findings.claims[:1])
    other = replace(item, name="theorem1", paper="Theorem 1", findings=one, fast=True)
    show_counts([item, other])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [*f"{item.name} {item.paper}".split(), "1", "1", "1"] in rows
    assert ["theorem1", "Theorem", "1", "1"] in rows
    assert ["all", "2", "1", "1"] in rows
    assert FAST.split() in rows
