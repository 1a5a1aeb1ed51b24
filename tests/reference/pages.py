"""The pages of the documentation, cut into blocks that can be run.

A comment before a fenced block says how a test treats it:

    <!-- slow -->                    run by `make test-slow` only
    <!-- small: --set slots=4 -->    run with these words after every command that takes them
    <!-- file: study.toml -->        written to this file, for the blocks that follow
    <!-- fails -->                   ends with 2, and says the block of text that follows
    <!-- not run: three machines --> not run, for this reason

`<!-- all: slow -->` and `<!-- all: not run: reason -->` say it for all of a page that follows and
says nothing itself. Without any, a block of `python` or `sh` is run by `make test`; what a page's
blocks leave behind, names in Python and files, is there for the next. A comment that begins with
the line `<!-- python` or `<!-- sh` is a block that readers do not see.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "examples/*/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
TUTORIALS = sorted((REPOSITORY / "docs" / "tutorials").glob("*.py"))
NOT_RUN, SLOW = "not run", "slow"
MARKS = (NOT_RUN, SLOW, "small", "file", "fails")
_BLOCK = re.compile(
    r"^<!-- all: (?P<all>[^\n]*) -->$"
    r"|(?:^ *<!-- (?P<marks>[^\n]*) -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$"
    r"|^<!-- (?P<unseen>python|sh)\n(?P<code>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or one that readers do not see."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and NOT_RUN not in self.marks


def blocks(page: str, text: str | None = None) -> list[Block]:
    """All blocks of a page, in order."""
    text, found, for_all = PAGES[page] if text is None else text, [], ""
    for match in _BLOCK.finditer(text):
        for_all = match["all"] or for_all
        if match["all"] is None:
            language, code = match["unseen"] or match["language"], match["code"] or match["text"]
            line = text.count("\n", 0, match.start("code" if match["unseen"] else "text")) + 1
            marks = dict(_marks(match["marks"] or for_all))
            found.append(Block(page, line, language, textwrap.dedent(code), marks))
    return found


def _marks(text: str) -> Iterator[tuple[str, str]]:
    """`slow, small: --set slots=4` → slow, and small with its words."""
    if not text or text.startswith("begin "):  # what a program writes into a page
        return
    for part in re.split(rf", (?={'|'.join(MARKS)})", text):
        word, _, value = part.partition(":")
        assert word in MARKS, f"what is {word!r}? known: {', '.join(MARKS)}"
        yield word, value.strip()


def prose(page: str) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", PAGES[page])


def commands(text: str) -> list[str]:
    """The commands of a block of `sh`: lines, joined where a quote or a backslash goes on."""
    said, open_ = [], ""
    for line in text.splitlines():
        open_ += line + "\n"
        bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", "", open_, flags=re.DOTALL)
        comment = re.sub(r"(^|\s)#.*", "", bare)
        if line.endswith("\\") or "'" in comment or '"' in comment:
            continue
        if open_.strip() and not open_.strip().startswith("#"):
            said.append(open_.strip())
        open_ = ""
    assert not open_, f"a quote is not closed: {open_}"
    return said
