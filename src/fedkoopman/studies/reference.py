"""The reference of study files, made from the study itself and kept inside a written page.

`python -m fedkoopman.studies.reference docs/studies.md` writes it anew between its markers; a test
fails when it is stale.
"""

import sys
from pathlib import Path

from fedkoopman.errors import InputError
from fedkoopman.studies.config import Study

BEGIN = "<!-- begin reference: made by `make docs`, do not edit -->"
END = "<!-- end reference -->"


def reference() -> str:
    """The default study, each key with its meaning and what it may be, as Markdown."""
    return f"```toml\n{Study().to_toml(comments=True)}```"


def refreshed(page: str) -> str:
    """A page with its reference written anew.

    Arguments:
        page: Markdown with the two markers in it.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the page has no place for the reference: add {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def main(path: Path) -> None:
    """Write a page's reference anew."""
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
