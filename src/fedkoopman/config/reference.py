"""The references of study files and site files, made from their classes and kept inside pages.

`python -m fedkoopman.config.reference docs/studies.md docs/own-data.md` writes them anew between
their markers; a test fails when one is stale.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError

SITE = {
    "name": "lab-a",
    "data": {"files": "data/*.csv"},
    "sensor": {"kind": "linear", "matrix": [[1.0, 0.0]]},
    "bounds": {"theta": [-20.0, 20.0]},
}
"""The required keys of a site file, and one bound."""


def reference() -> str:
    """The default study, each key with its meaning and what it may be, as Markdown."""
    return f"```toml\n{Study().to_toml(comments=True)}```"


def site_reference() -> str:
    """A short site file with every key, its meaning and what it may be, as Markdown."""
    return f"```toml\n{SiteFile.from_dict(SITE).to_toml(comments=True)}```"


PLACES: dict[str, Callable[[], str]] = {"reference": reference, "site reference": site_reference}
"""What may stand in a page, by the name in its markers."""


def refreshed(page: str) -> str:
    """A page with its reference written anew."""
    found = False
    for name, make in PLACES.items():
        begin, end = _markers(name)
        before, start, rest = page.partition(begin)
        _, stop, after = rest.partition(end)
        if start and stop:
            found = True
            page = f"{before}{begin}\n{make()}\n{end}{after}"
    if not found:
        begin, end = _markers("reference")
        raise InputError(f"the page has no place for the reference: add {begin} and {end}")
    return page


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- begin {name}: made by `make docs`, do not edit -->", f"<!-- end {name} -->"


def main(*paths: Path) -> None:
    """Write the references of some pages anew."""
    for path in paths:
        path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
