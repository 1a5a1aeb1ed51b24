"""What `mkdocs.yml` cannot say: pages from elsewhere in the repository, and links between them.

- The README is the first page; examples, results of benchmarks and the change log are pages too.
- A tutorial is a Python file with cells: text after `# %% [markdown]`, code after `# %%`.
- A link is written as for a code host, relative to its file. One to a page or picture of the site
  leads there; one to another file of the repository becomes its path; a dead one is a warning.
"""

import logging
import os
import re
from pathlib import Path
from posixpath import relpath
from urllib.parse import urldefrag

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[2]
PATTERNS = (
    ("README.md", "index.md"),
    ("CHANGELOG.md", "changelog.md"),
    ("CONTRIBUTING.md", "contributing.md"),
    ("examples/*/README.md", "examples/{parent}.md"),
    ("benchmarks/results/*.md", "benchmarks/{stem}.md"),
    ("benchmarks/results/*.svg", "benchmarks/{stem}.svg"),
    ("docs/tutorials/*.py", "tutorials/{stem}.md"),
)
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*>"
)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")

log = logging.getLogger("mkdocs.hooks")


def brought_in() -> dict[str, str]:
    """Paths in the repository, and where they are on the site."""
    return {
        path.relative_to(REPOSITORY).as_posix(): there.format(
            stem=path.stem, parent=path.parent.name
        )
        for pattern, there in PATTERNS
        for path in sorted(REPOSITORY.glob(pattern))
    }


def cells(text: str) -> str:
    """A tutorial's cells as Markdown."""
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
    said = []
    for kind, cell in zip(parts[1::2], parts[2::2], strict=True):
        if "[markdown]" in kind:
            said.append(re.sub(r"^# ?", "", cell.strip(), flags=re.MULTILINE))
        else:
            said.append(f"```python\n{cell.strip()}\n```")
    return "\n\n".join(said) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages from elsewhere join those of `docs/`."""
    for source, there in brought_in().items():
        path = REPOSITORY / source
        if source.endswith(".py"):
            file = File.generated(config, there, content=cells(path.read_text(encoding="utf-8")))
        else:
            file = File.generated(config, there, abs_src_path=str(path))
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead where they lead on a code host."""
    moved = brought_in()
    home = {there: source for source, there in moved.items()}
    here = page.file.src_uri
    folder = os.path.dirname(home.get(here, f"docs/{here}"))

    def led(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, anchor = urldefrag(target)
        if "://" in target or not path:
            return match[0]
        found = os.path.normpath(os.path.join(folder, path))
        there = moved.get(found) or moved.get(f"{found}/README.md")
        there = there or (found.removeprefix("docs/") if found.startswith("docs/") else None)
        if there and files.get_file_from_path(there):
            to = relpath(there, os.path.dirname(here) or ".")
            return f"{picture}[{words}]({to}{'#' + anchor if anchor else ''})"
        if not (REPOSITORY / found).exists():
            log.warning("%s links to %s, which does not exist", here, target)
        return words if words.startswith("`") else f"{words} (`{found}`)"

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(led, part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Nothing is fetched from elsewhere when a page is opened."""
    for found in ELSEWHERE.findall(output):
        log.warning("%s would fetch %s", page.file.src_uri, found)
    return output
