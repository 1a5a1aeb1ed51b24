"""`fedkoopman reproduce` with items that cost nothing: what is written when, judged how often."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.cli import main
from fedkoopman.paper.items import HOLDS, Claim, Findings, Numbers, Options, Table, Tell

FIRST, SECOND = "fig-policy", "fig-restart"
OUT = Path("paper")


@dataclass
class Counted:
    """An item that counts what is asked of it."""

    computed: int = 0
    judged: int = 0
    stop: bool = False
    pages: list[bool] = field(default_factory=list)

    def slots(self, options: Options) -> int:
        return 0

    def settings(self, options: Options) -> dict[str, Any]:
        return {"seeds": options.seeds}

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        self.computed += 1
        self.pages = [(OUT / name / f"{name}.html").is_file() for name in (FIRST, SECOND)]
        if self.stop:
            raise KeyboardInterrupt
        return {"value": 1.5}

    def findings(self, numbers: dict[str, Any]) -> Findings:
        self.judged += 1
        value = numbers["value"]
        return Findings(
            (Claim("it is small", HOLDS, f"{value}"),),
            Table(("value",), ((f"{value}",),)),
            (Numbers("", ("value",), ((value,),)),),
        )


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Counted, Counted]:
    monkeypatch.chdir(tmp_path)
    both = Counted(), Counted()
    for name, item in zip(("fig_policy", "fig_restart"), both, strict=True):
        monkeypatch.setattr(f"fedkoopman.paper.{name}.ITEM", item)
    return both


def reproduce(*names: str) -> int:
    return main(["reproduce", *names, "--out", str(OUT), "--no-progress"])


def test_an_item_has_its_page_before_the_next_is_computed(items, capsys) -> None:
    first, second = items
    second.stop = True
    assert reproduce(FIRST, SECOND) == 130
    assert "go on with: fedkoopman reproduce fig-policy fig-restart" in capsys.readouterr().err
    assert second.pages == [True, False]
    assert (first.computed, first.judged) == (1, 1)


def test_an_item_is_computed_and_judged_once(items) -> None:
    assert reproduce(FIRST, SECOND) == 0
    assert [(item.computed, item.judged) for item in items] == [(1, 1), (1, 1)]
    assert reproduce(FIRST) == 0  # the index shows both
    assert [(item.computed, item.judged) for item in items] == [(1, 2), (1, 2)]
    index = (OUT / "index.html").read_text(encoding="utf-8")
    assert "Fig. 7d" in index and "Fig. 7f" in index


def test_other_settings_are_computed_anew(items) -> None:
    assert reproduce(FIRST) == 0
    assert reproduce(FIRST, "--seeds", "3") == 0
    assert items[0].computed == 2
