"""A survey counts what an independent count finds, and says what looks wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.triage import held_out
from fedkoopman.errors import InputError
from fedkoopman.survey.survey import ChannelTally, Survey, survey

NAN = np.nan


def found_in(folder: Path, files: Any, dt: float = 1.0, **data: Any) -> Survey:
    sensor = data.pop("sensor", {"kind": "identity"})
    table = {"name": "lab", "data": {"files": files, **data}, "sensor": sensor}
    return survey(SiteFile.from_dict(table, folder / "site.toml"), dt)


def save(folder: Path, **segments: np.ndarray) -> str:
    np.savez(folder / "z.npz", **segments)  # type: ignore[arg-type]
    return "z.npz"


def test_counts_and_statistics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(1e6, 1.0, size=(3, 500, 2))  # a mean far above the spread
    z[rng.random(z.shape) < 0.2] = NAN
    z[0, 100:107] = NAN
    found = found_in(tmp_path, save(tmp_path, a=z[0], b=z[1], c=z[2][:301]), scale=[2, 1])
    together = np.concatenate([z[0], z[1], z[2][:301]]) * [2, 1]
    assert (found.site, found.files, len(found.segments), found.samples) == ("lab", 1, 3, 1301)
    assert found.lengths == (301, 500, 500)
    for j, channel in enumerate(found.channels):
        values = together[:, j]
        there = values[~np.isnan(values)]
        assert channel.missing == pytest.approx(np.mean(np.isnan(values)))
        assert (channel.low, channel.high) == (there.min(), there.max())
        assert channel.mean == pytest.approx(there.mean(), rel=1e-12)
        assert channel.std == pytest.approx(there.std(), rel=1e-6)
        assert not channel.constant and not channel.dead and not channel.suspicious
    # gaps, counted in words: runs of the letter g
    letters = "".join(
        "".join("g" if np.isnan(row).all() else "." for row in part) + "|"
        for part in (z[0], z[1], z[2][:301])
    )
    runs = [len(run) for run in letters.replace("|", ".").split(".") if run]
    assert (found.gaps, found.longest_gap) == (len(runs), max(runs))
    assert sum(s.missing * s.samples for s in found.segments) == pytest.approx(
        np.isnan(together).sum() / 2
    )


@settings(max_examples=50)
@given(
    st.lists(
        arrays.arrays(
            np.float64,
            st.integers(1, 30),
            elements=st.one_of(st.just(NAN), st.floats(-1e6, 1e6, width=32)),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_parts_add_up_to_the_whole(parts: list[np.ndarray]) -> None:
    tally = ChannelTally("z")
    for i, part in enumerate(parts):
        tally.add(str(i), part)
    channel = tally.channel()
    whole = np.concatenate(parts)
    there = whole[~np.isnan(whole)]
    assert channel.dead == (len(there) == 0)
    if len(there):
        scale = np.abs(there).max()
        assert channel.mean == pytest.approx(there.mean(), rel=1e-9, abs=1e-9 * scale)
        assert channel.std == pytest.approx(there.std(), rel=1e-6, abs=1e-7 * scale)
        assert (channel.low, channel.high) == (there.min(), there.max())


def test_gaps_in_time_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"{t},1\n" for t in (0, 1, 2, 5, 6, 13))
    (tmp_path / "z.csv").write_text("t,x\n" + rows, encoding="utf-8")
    found = found_in(tmp_path, "z.csv", columns=["x"], time="t")
    assert (found.samples, found.gaps, found.longest_gap) == (14, 2, 6)
    assert found.channels[0].missing == pytest.approx(8 / 14)


def test_memory_for_quartiles_is_bounded_and_fair() -> None:
    tally = ChannelTally("z")
    for i in range(2000):
        tally.add(str(i), np.full(300, float(i % 100)))
    assert sum(map(len, tally.kept)) <= 65_536
    assert np.median(np.concatenate(tally.kept)) == pytest.approx(49.5, abs=5)


WAVE = np.sin(np.arange(400.0))[:, None]


def notes(folder: Path, **data: Any) -> list[str]:
    return list(found_in(folder, "z.npz", **data).notes)


def test_good_data_has_no_notes(tmp_path: Path) -> None:
    save(tmp_path, a=WAVE, b=WAVE)
    assert notes(tmp_path) == []


def test_a_code_for_a_fault_is_noticed(tmp_path: Path) -> None:
    faulty = WAVE.copy()
    faulty[17:57:4] = -999.0
    save(tmp_path, a=WAVE, b=faulty, c=faulty)
    [note] = notes(tmp_path)
    assert note.startswith("component 1 is -999 20 times, first in sample 18 of segment b, far")


def test_channels_that_say_nothing_are_noticed(tmp_path: Path) -> None:
    z = np.concatenate([WAVE, np.full_like(WAVE, 4.0), np.full_like(WAVE, NAN), WAVE], axis=1)
    stuck = z.copy()
    stuck[:, 3] = 0.25
    save(tmp_path, a=z, b=stuck)
    found = found_in(tmp_path, "z.npz")
    assert [c.constant for c in found.channels] == [False, True, False, False]
    assert [c.dead for c in found.channels] == [False, False, True, False]
    assert np.isnan(found.channels[2].mean)
    first, second, third = found.notes
    assert first.startswith("component 2 is 4 throughout")
    assert second.startswith("component 3 was never observed")
    assert third.startswith("component 4 does not change in 1 of 2 segments")


def test_angles_in_degrees_are_noticed(tmp_path: Path) -> None:
    save(tmp_path, a=170 * WAVE, b=170 * WAVE)
    sensor = {"kind": "identity", "angles": [0]}
    [note] = notes(tmp_path, sensor=sensor)
    assert note.startswith("component 1 reaches 170 but angles are in radians")
    assert notes(tmp_path, sensor=sensor, scale=float(np.pi / 180)) == []


def test_cutting_is_said(tmp_path: Path) -> None:
    save(tmp_path, a=WAVE, b=WAVE[:50])
    [note] = notes(tmp_path, longest=150)
    assert note == "segments longer than data.longest = 150 samples were cut into 3 pieces"
    assert found_in(tmp_path, "z.npz", longest=150).held_out == ("b",)


def test_nothing_to_evaluate_on_is_said(tmp_path: Path) -> None:
    save(tmp_path, a=WAVE)
    assert notes(tmp_path) == [
        "no segment is held out for evaluation, as there is only one segment"
    ]
    assert notes(tmp_path, held_out=0) == [
        "no segment is held out for evaluation, as data.held_out is 0"
    ]


@pytest.mark.parametrize(
    ("interval", "off_grid", "words"),
    [
        (2.0, "refuse", "samples are 2 apart but the study's dt is 1: those between are missing"),
        (0.1, "resample", "samples are 0.1 apart but the study's dt is 1: they are resampled wit"),
    ],
)
def test_another_interval_is_said(
    tmp_path: Path, interval: float, off_grid: str, words: str
) -> None:
    for name in ("a.csv", "b.csv"):
        rows = "".join(f"{interval * i:.3f},{i % 7}\n" for i in range(60))
        (tmp_path / name).write_text("t,x\n" + rows, encoding="utf-8")
    found = found_in(tmp_path, "*.csv", columns=["x"], time="t", off_grid=off_grid)
    [note] = found.notes
    assert note.startswith(words)


def test_columns_that_are_taken_unasked_are_said(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        rows = "".join(f"1,{i},{i % 5}\n" for i in range(60))
        (tmp_path / name).write_text("segment,time,x\n" + rows, encoding="utf-8")
    found = found_in(tmp_path, "*.csv")
    [note] = found.notes
    assert "a.csv the column 'segment' tells segments apart and the column 'time' gives" in note
    assert note.endswith('give data.segment = "" or data.time = "" to do without')
    assert [fact.name for fact in found.segments] == ["a:1", "b:1"]
    named = found_in(tmp_path, "*.csv", segment="segment", time="time")
    assert named.notes == () and named.segments == found.segments
    without = found_in(tmp_path, "*.csv", segment="", time="")
    assert without.notes == () and [fact.name for fact in without.segments] == ["a", "b"]
    [note] = found_in(tmp_path, "*.csv", columns=["x", "time"]).notes
    assert "'time'" not in note


def test_progress_is_told(tmp_path: Path) -> None:
    save(tmp_path, a=WAVE, b=WAVE)
    told: list[tuple[int, int]] = []
    table = {"name": "lab", "data": {"files": "z.npz"}, "sensor": {"kind": "identity"}}
    site = SiteFile.from_dict(table, tmp_path / "site.toml")
    survey(site, 1.0, lambda done, total: told.append((done, total)))
    size = (tmp_path / "z.npz").stat().st_size
    assert told == [(size // 2, size), (size, size)]


def names(count: int) -> list[str]:
    return [f"run{i}" for i in range(count)]


@given(st.floats(0, 0.9), st.integers(1, 200))
def test_a_share_of_the_segments_is_held_out(share: float, count: int) -> None:
    kept = held_out(share, names(count), names(count))
    assert len(kept) == count
    least = 1 if share > 0 and count > 1 else 0
    assert sum(kept) == max(int(share * count + 1e-9), least)
    assert not all(kept)
    # evenly: any two stretches of one length differ by one at most
    stretches = {sum(kept[i : i + 10]) for i in range(0, count - 10)}
    assert not stretches or max(stretches) - min(stretches) <= 1


def test_every_fifth_segment_is_a_share_of_a_fifth() -> None:
    assert [i for i, keep in enumerate(held_out(0.2, names(12), names(12))) if keep] == [4, 9]
    assert held_out(0.2, names(3), names(3)) == (False, False, True)
    assert held_out(0.2, names(1), names(1)) == (False,)
    assert held_out(0.0, names(9), names(9)) == (False,) * 9


def test_segments_are_held_out_by_name() -> None:
    pieces, bases = ["a.1", "a.2", "b", "c"], ["a", "a", "b", "c"]
    assert held_out(("b",), pieces, bases) == (False, False, True, False)
    assert held_out(("a",), pieces, bases) == (True, True, False, False)
    assert held_out(("a.2", "c"), pieces, bases) == (False, True, False, True)
    assert held_out((), pieces, bases) == (False,) * 4
    with pytest.raises(InputError, match=r"unknown segment in data\.held_out 'd'"):
        held_out(("d",), pieces, bases)
    with pytest.raises(InputError, match="names all 4 segments: leave one to learn from"):
        held_out(("a", "b", "c"), pieces, bases)


def test_two_segments_of_one_name_are_refused(tmp_path: Path) -> None:
    arrays_by_name = {"a": WAVE, "a.1": WAVE[:10]}
    np.savez(tmp_path / "z.npz", **arrays_by_name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"two segments are called 'a\.1'"):
        found_in(tmp_path, "z.npz", longest=250)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(2, 12))
def test_a_survey_holds_out_what_it_says(tmp_path: Path, count: int) -> None:
    found = found_in(tmp_path, save(tmp_path, **{f"run{i}": WAVE[:20] for i in range(count)}))
    kept = held_out(0.2, names(count), names(count))
    assert found.held_out == tuple(f"run{i}" for i in range(count) if kept[i])
