"""What a progress bar and a log are told."""

import re

import pytest

import fedkoopman as fk
from fedkoopman.runs.progress import Tally, cell_bar, slot_progress
from fedkoopman.runs.run import Progress


def event(slot: int, seed: int = 0, **record: object) -> Progress:
    return Progress(seed, slot, 20, {"loss": 0.5, "E": 2.0, "active": [], **record})


def test_one_seed_tells_who_trained() -> None:
    tally = Tally(20)
    assert (tally.count, tally.news, tally.left) == ("slot 0 of 20", "starting", "")
    tally.add(event(7, active=[0, 3]))
    assert (tally.count, tally.news) == ("slot 7 of 20", "loss 0.5  E 2  active 0,3")
    tally.add(event(8, active=list(range(40)), loss=None, E=float("inf")))
    assert tally.news == "loss not finite  E not finite  active 40 clients"


def test_several_seeds_tell_the_mean_of_what_is_finite() -> None:
    tally = Tally(60)
    for seed, loss in enumerate((1.0, 3.0, None)):
        tally.add(event(5, seed, loss=loss, active=[seed, 4]))
    assert tally.count == "slot 15 of 60"
    assert tally.news == "mean loss 2  E 2  6 active in 3 seeds"


def test_the_time_left_is_by_the_slots_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed at slot 10, then two slots in four seconds: 8 slots are left, 16 seconds."""
    clock = iter([100.0, 104.0])
    monkeypatch.setattr("fedkoopman.runs.progress.time.monotonic", lambda: next(clock))
    tally = Tally(20)
    for slot in (10, 11, 12):
        tally.add(event(slot))
    assert tally.left == "0:16 left"


def test_hours_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0])
    monkeypatch.setattr("fedkoopman.runs.progress.time.monotonic", lambda: next(clock))
    tally = Tally(3725)
    tally.add(event(1))
    tally.add(event(2))
    assert tally.left == "1:02:03 left"


def test_a_log_has_a_line_per_tenth(capfd: pytest.CaptureFixture[str]) -> None:
    with slot_progress(True, 40) as (tally, show):
        for place in range(2):
            tally.following(f"{place + 1} of 2", 20 * place)
            show()
            for slot in range(21):
                tally.add(event(slot))
                show()
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if " of 2" in line[:6]] == ["1 of 2", "2 of 2"]
    counts = [int(found[1]) for line in lines if (found := re.match(r"slot (\d+) of 40  ", line))]
    assert counts == list(range(4, 41, 4))


def test_none_is_shown_where_none_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with slot_progress(False, 20) as (tally, show):
        for slot in range(21):
            tally.add(event(slot))
            show()
    assert capfd.readouterr() == ("", "")


class Cell:
    """What a notebook would show, one entry per change."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def __call__(self, content: dict[str, str], raw: bool, display_id: bool) -> "Cell":
        assert raw and display_id
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(content)


def test_a_notebook_has_one_bar_that_ends_full() -> None:
    cell, tally = Cell(), Tally(20, title="<b>mine</b>")
    show = cell_bar(cell, tally)
    for slot in range(1, 21):
        tally.add(event(slot))
        show()
    last = cell.shown[-1]["text/html"]
    assert '<progress max="20" value="20">' in last and "slot 20 of 20" in last
    assert "<b>" not in last and "&lt;b&gt;" in last
    assert len(cell.shown) < 20  # it is not drawn anew for every slot


def test_progress_true_tells_of_the_slots_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    quick = {"segments.steps": 30, "training.epochs": 1, "evaluation.trajectories": 2}
    study = fk.Study.paper_default(slots=2).with_values({**quick, "scheme": "perfect-data"})
    fk.run(study, seeds=2, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith("slot 4 of 4") and "in 2 seeds" in lines[-1]
    fk.run(study, progress=False)
    assert capfd.readouterr().err == ""
