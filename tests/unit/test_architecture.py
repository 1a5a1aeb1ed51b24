"""docs/architecture.md names every module, or a pattern that covers it, and nothing else."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import fedkoopman

ROOT = Path(fedkoopman.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.py")
    if not path.name.startswith("__")
)


def named(text: str) -> list[str]:
    """Modules and patterns that a page names, as `deploy/wire.py` or `paper/fig_*.py`."""
    return re.findall(r"`(?!tests/)([\w/*-]+\.py)`", text)


def lacking(text: str) -> tuple[list[str], list[str]]:
    """Modules that a page does not name, and names on it that are no module."""
    patterns = named(text)
    missing = [m for m in MODULES if not any(fnmatchcase(m, p) for p in patterns)]
    stale = [p for p in patterns if not any(fnmatchcase(m, p) for m in MODULES)]
    return missing, stale


def test_every_module_has_its_place_on_the_page() -> None:
    missing, stale = lacking(PAGE.read_text(encoding="utf-8"))
    assert not missing, f"docs/architecture.md does not name {', '.join(missing)}"
    assert not stale, f"docs/architecture.md names {', '.join(stale)}, which do not exist"


def test_a_missing_and_a_stale_name_would_be_found() -> None:
    text = " ".join(f"`{module}`" for module in MODULES[1:]) + " `deploy/gone.py`"
    assert lacking(text) == (MODULES[:1], ["deploy/gone.py"])
    assert len(named("`paper/fig_*.py` and `slot.py`, not `fk.run` or setup.py")) == 2
