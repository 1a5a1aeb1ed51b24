"""The report of a run says what its records say, and needs nothing but itself."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkoopman.errors import InputError
from fedkoopman.reports.run import write_report

METRICS = ("l1", "l2", "l3", "E", "horizon")


def study_text(name: str = "small", seed: int = 0, slots: int = 60, clients: int = 5) -> str:
    return f"""name = {json.dumps(name)}
seed = {seed}
slots = {slots}
scheme = "kf-fedkl"
[system]
name = "lorenz63"
[clients]
count = {clients}
[network]
depth = 2
[evaluation]
tail_slots = 50
"""


def lorenz(steps: int, start: np.ndarray, dt: float = 0.02) -> np.ndarray:
    """The Lorenz system by Runge and Kutta's fourth-order steps."""

    def field(x: np.ndarray) -> np.ndarray:
        return np.array([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    states = [start]
    for _ in range(steps):
        x = states[-1]
        k1 = field(x)
        k2 = field(x + dt / 2 * k1)
        k3 = field(x + dt / 2 * k2)
        k4 = field(x + dt * k3)
        states.append(x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    return np.array(states)


def rollout_of(seed: int, states: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = np.tile(lorenz(300, rng.normal(size=3) * 5 + [0, 0, 20]), (1, states))[:, :states]
    drift = np.cumsum(rng.normal(size=(300, states)), axis=0)
    turns = np.exp(1j * rng.uniform(0, 0.4, size=5)) * rng.uniform(0.7, 1.02, size=5)
    eigenvalues = [*turns, *turns.conj(), 0.98, 0.0]
    return {
        "dt": 0.02,
        "names": ["x", "y", "z", *(f"w{i}" for i in range(states - 3))][:states],
        "units": ["1", "m", "m/s", *["1"] * (states - 3)][:states],
        "truth": truth.tolist(),
        "one_step": (truth[1:] + rng.normal(size=(300, states)) * 0.3).tolist(),
        "free": (truth[1:] + 0.3 * drift).tolist(),
        "eigenvalues": [[complex(v).real, complex(v).imag] for v in eigenvalues],
    }


def records_of(seed: int, slots: int, clients: int) -> list[dict[str, Any]]:
    """Losses that fall and fluctuate, arrivals by chance, training at every fifth arrival."""
    rng = np.random.default_rng(seed)
    waiting = np.zeros(clients, int)
    records = []
    for slot in range(slots + 1):
        arrived = rng.random(clients) < (0.7 if slot else 0)
        waiting += arrived
        active = waiting >= 5
        fall = np.exp(-slot / 12) + 0.003
        values = fall * np.array([0.5, 90, 95, 14]) * np.exp(0.25 * rng.normal(size=4))
        records.append(
            {
                "slot": slot,
                "arrived": np.flatnonzero(arrived).tolist(),
                "buffered": (300 * waiting).tolist(),
                "active": np.flatnonzero(active).tolist(),
                "samples": int(300 * waiting[active].sum()),
                "dropped": [],
                **dict(zip(("l1", "l2", "l3", "E"), values.tolist(), strict=True)),
                "horizon": 30 * (1 - np.exp(-slot / 30)) + rng.random(),
                "seconds": 0.05 * slot,
            }
        )
        waiting[active] = 0
    return records


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_seed(folder: Path, seed: int = 0, slots: int = 60, clients: int = 5) -> None:
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(study_text(seed=seed, slots=slots, clients=clients))
    write_lines(folder / "records.jsonl", records_of(seed, slots, clients))
    (folder / "rollout.json").write_text(json.dumps(rollout_of(seed)))


def write_run(directory: Path, seeds: tuple[int, ...] = (0,), **sizes: int) -> Path:
    """A run directory without a summary, that is, of a run still going on."""
    if len(seeds) == 1:
        write_seed(directory, seeds[0], **sizes)
        return directory
    for seed in seeds:
        write_seed(directory / f"seed-{seed}", seed, **sizes)
    (directory / "study.toml").write_text(study_text(seed=min(seeds), **sizes))
    return directory


class Reader(HTMLParser):
    """Tables, texts and everything that a page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.tables: dict[str, dict[str, list[str]]] = {}
        self.texts: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self._open: list[str] = []
        self._table: dict[str, list[str]] | None = None
        self._row: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.loads += [str(values[key]) for key in ("src", "href", "srcset") if key in values]
        if tag == "table":
            self._table = self.tables.setdefault(str(values["id"]), {})
        if tag == "tr":
            self._row = []
        if tag in ("th", "td"):
            self._row.append("")
        if tag == "dt":
            self.facts[""] = ""
        if tag not in ("meta", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"
        if tag == "tr" and self._table is not None:
            self._table[self._row[0]] = self._row[1:]

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        tag = self._open[-1]
        self.texts[tag] = self.texts.get(tag, "") + data
        if tag in ("th", "td"):
            self._row[-1] += data
        if tag == "dd":
            self.facts[self.texts["dt"].strip()] = data
            self.texts["dt"] = ""


def read(directory: Path) -> Reader:
    return Reader(write_report(directory).read_text(encoding="utf-8"))


def story_in(page: str) -> dict[str, Any]:
    """What the page's script draws."""
    found = re.search(r'<script type="application/json" id="story">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def charts_of(page: str) -> dict[str, dict[str, Any]]:
    """The charts by name."""
    blocks = [block for part in story_in(page)["sections"] for block in part["blocks"]]
    return {block["id"]: block for block in blocks if block["kind"] == "chart"}


def charts_in(directory: Path) -> dict[str, dict[str, Any]]:
    return charts_of(write_report(directory).read_text(encoding="utf-8"))


def array(values: list[float | None]) -> np.ndarray:
    return np.array(values, float)


def line(chart: dict[str, Any], name: str, panel: int = 0) -> dict[str, Any]:
    [found] = [s for s in chart["series"] if s["name"] == name and s["panel"] == panel]
    return found


def numbers(cell: str) -> list[float]:
    power = re.search("·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)$", cell)
    scale = 1.0
    if power:
        scale = 10.0 ** int(power[1].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
        cell = cell[: power.start()].strip("()")
    return [scale * float(part.replace(",", "")) for part in cell.split(" ± ")]


def column(records: list[dict[str, Any]], metric: str, after: int = -1) -> list[float]:
    return [record[metric] for record in records if record["slot"] > after]


def test_the_table_holds_tail_means_and_their_spread(tmp_path: Path) -> None:
    seeds = (2, 10, 1)
    page = read(write_run(tmp_path / "run", seeds, slots=80))
    head, *rows = page.tables["summary"].values()
    assert head[0] == "last 50 slots, mean ± std"
    records = [records_of(seed, 80, 5) for seed in seeds]
    for metric, row in zip(METRICS, rows, strict=True):
        tails = [np.mean(column(r, metric, after=30)) for r in records]
        before = [r[0][metric] for r in records]
        for cell, values in ((row[0], tails), (row[1], before)):
            mean, std = numbers(cell)
            spread = np.std(values, ddof=1)
            assert mean == pytest.approx(np.mean(values), abs=0.06 * spread)
            assert std == pytest.approx(spread, rel=0.06)
    updates = np.mean([sum(map(len, column(r, "active"))) for r in records])  # type: ignore[arg-type]
    samples = np.mean([sum(column(r, "samples")) for r in records])
    assert float(page.facts["client trainings per seed"]) == pytest.approx(updates, abs=0.05)
    assert page.facts["trained samples per seed"] == f"{round(samples):,}"
    assert page.facts["seconds"] == "4.0"
    assert not any("dropped" in name for name in page.facts)


def test_one_seed_has_no_spread_and_short_runs_use_every_slot(tmp_path: Path) -> None:
    page = read(write_run(tmp_path / "run", slots=20))
    records = records_of(0, 20, 5)
    head, *rows = page.tables["summary"].values()
    assert head[0] == "last 20 slots, mean"
    for metric, row in zip(METRICS, rows, strict=True):
        [mean] = numbers(row[0])
        assert mean == pytest.approx(np.mean(column(records, metric, after=0)), rel=1e-3)


def test_a_finished_run_is_told_in_its_summarys_words(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (0, 1))
    summary: dict[str, Any] = {m: {"mean": 0.125, "std": 0.0625} for m in METRICS}
    summary |= {"finished": True, "seconds": 7.25, "tail_slots": 30, "E": {"mean": None}}
    (directory / "summary.json").write_text(json.dumps(summary))
    text = write_report(directory).read_text(encoding="utf-8")
    head, *rows = Reader(text).tables["summary"].values()
    assert head[0].startswith("last 30 slots")
    assert [row[0] for row in rows] == [*["0.125 ± 0.062"] * 3, "not finite", "0.125 ± 0.062"]
    assert Reader(text).facts["seconds"] == "7.2"
    assert 'class="notice">Not finished' not in text
    assert 'class="notice">All slots' not in text


def test_curves_are_means_over_seeds_with_a_band_above_zero(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (0, 1, 2), slots=30)
    wide = records_of(1, 30, 5)
    for record in wide:
        record["l1"] *= 50  # mean − std is then below zero
    write_lines(directory / "seed-1" / "records.jsonl", wide)
    losses = charts_in(directory)["losses"]
    values = np.array([column(r, "l1") for r in (records_of(0, 30, 5), wide, records_of(2, 30, 5))])
    mean, std = values.mean(axis=0), values.std(axis=0, ddof=1)
    assert (mean - std < 0).any()

    drawn = line(losses, "ℓ1")
    assert drawn["x"] == list(range(31))
    np.testing.assert_allclose(drawn["y"], mean, rtol=1e-4)
    np.testing.assert_allclose(drawn["high"], mean + std, rtol=1e-4)
    low = np.maximum(mean - std, values.min(axis=0))
    np.testing.assert_allclose(drawn["low"], low, rtol=1e-4)
    assert (low > 0).all() and losses["panels"][0]["log"]


def test_numbers_that_are_not_finite_are_gaps(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (0, 1), slots=30)
    records = records_of(1, 30, 5)
    for slot in (7, 30):
        records[slot]["l2"] = None
    write_lines(directory / "seed-1" / "records.jsonl", records)
    text = write_report(directory).read_text(encoding="utf-8")
    drawn = array(line(charts_of(text)["losses"], "ℓ2")["y"])
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [7, 30]
    page = Reader(text)
    assert list(page.tables["summary"].values())[2][0] == "not finite"
    assert page.tables["curves"]["30"][1] == "not finite"
    assert "Not finite, and so shown as gaps: 2 slots of seed 1." in page.texts["p"]


def test_very_many_slots_stay_a_small_page(tmp_path: Path) -> None:
    """A gap and a peak of one slot are still seen."""
    directory = write_run(tmp_path / "run", slots=0)
    record = records_of(0, 1, 5)[1]
    with (directory / "records.jsonl").open("w") as file:
        for slot in range(20_001):
            peak = {"E": 700.0} if slot == 17_777 else {"l2": None} if slot == 15_555 else {}
            file.write(json.dumps({**record, "slot": slot, **peak}) + "\n")
    report = write_report(directory)
    charts = charts_of(report.read_text(encoding="utf-8"))
    drawn = line(charts["error"], "E")
    assert len(drawn["x"]) <= 600 and drawn["x"][-1] == 20_000
    assert max(drawn["high"]) == 700
    gaps = [v is None for v in line(charts["losses"], "ℓ2")["y"]]
    assert sum(gaps) == 1
    assert report.stat().st_size < 300_000


def test_a_few_clients_have_a_row_each(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=40, clients=7)
    records = records_of(0, 40, 7)
    records[9]["dropped"] = records[9]["arrived"][:2]
    write_lines(directory / "records.jsonl", records)
    text = write_report(directory).read_text(encoding="utf-8")
    raster = charts_of(text)["clients"]
    for name, key in (("arrived", "arrived"), ("trained", "active"), ("dropped", "dropped")):
        marks = line(raster, name)
        found = sorted(zip(marks["x"], marks["y"], strict=True))
        assert found == [(r["slot"], client) for r in records for client in r[key]]
    assert Reader(text).facts["segments dropped (estimate diverged)"] == "2"
    trained = line(charts_of(text)["shares"], "trainings")
    assert trained["x"] == [sum(n in r["active"] for r in records) for n in range(7)]


def test_long_runs_count_slots_together(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=1000, clients=3)
    [heat] = charts_in(directory)["clients"]["series"]
    found = dict(zip(zip(heat["y"], heat["x"], strict=True), heat["z"], strict=True))
    records = records_of(0, 1000, 3)
    assert heat["size"] == 10
    for client in range(3):
        for i in range(1, 1001, 10):
            count = sum(client in r["active"] for r in records[i : i + 10])
            assert found.get((client, i), 0) == count


def test_many_clients_are_counted_and_the_page_stays_small(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=400, clients=3000)
    report = write_report(directory)
    clients = charts_of(report.read_text(encoding="utf-8"))["clients"]
    records = records_of(0, 400, 3000)
    for name, key in (("arrived", "arrived"), ("trained", "active")):
        assert line(clients, name)["y"] == [len(r[key]) for r in records if r["slot"]]
    small = write_report(write_run(tmp_path / "small", slots=1, clients=1))
    assert report.stat().st_size - small.stat().st_size < 100_000


def test_the_trajectory_and_its_forecast_begin_where_they_should(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    rollout = rollout_of(0)
    rollout["free"][200:] = [[1e30, None, 3.0]] * 100
    (directory / "rollout.json").write_text(json.dumps(rollout))
    charts = charts_in(directory)
    truth = np.array(rollout["truth"])
    for i in range(3):
        true = line(charts["states"], "truth", i)
        np.testing.assert_allclose(true["y"], truth[:, i], rtol=1e-4)
        assert true["even"] and true["x"] == [0.0, 0.02] and len(true["y"]) == 301
    free = line(charts["states"], "lifted once")
    np.testing.assert_allclose(free["y"][:2], [truth[0, 0], rollout["free"][0][0]], rtol=1e-4)
    assert len(free["y"]) == 201 and free["x"][1] == pytest.approx(0.02)
    low, high = charts["states"]["panels"][0]["yrange"]
    assert low < truth[:, 0].min() and truth[:, 0].max() < high < 100
    assert [one["y"] for one in charts["states"]["panels"]] == ["x", "y [m]", "z [m/s]"]
    assert [one["name"] for one in charts["space"]["frames"]] == ["x, y", "x, z", "y, z"]


@pytest.mark.parametrize(("states", "panels"), [(1, 1), (4, 4), (14, 6)])
def test_other_dimensions_have_a_panel_for_each_state(
    tmp_path: Path, states: int, panels: int
) -> None:
    directory = write_run(tmp_path / "run", slots=3)
    (directory / "rollout.json").write_text(json.dumps(rollout_of(0, states)))
    charts = charts_in(directory)
    assert len(charts["states"]["panels"]) == panels
    assert ("space" in charts) == (states > 1)


def test_eigenvalues_are_told_in_time(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=3)
    step = 2 * 0.02  # the study's depth of two samples
    turning = np.exp((-0.5 * np.log(2) + 2j * np.pi * 4) * step)  # 4 turns per unit, halved in 2
    values = [turning, turning.conjugate(), np.exp(0.25 * np.log(2) * step), 0.0, 1.0]
    rollout = rollout_of(0) | {"eigenvalues": [[complex(v).real, complex(v).imag] for v in values]}
    rollout["eigenvalues"].append([None, None])
    (directory / "rollout.json").write_text(json.dumps(rollout))
    text = write_report(directory).read_text(encoding="utf-8")
    rows = Reader(text).tables["modes"]
    [turns] = [row for name, row in rows.items() if name.endswith(" i")]
    assert turns[1:] == ["4", "0.25", "halves in 2"]
    assert rows["1.007"][1:] == ["0", "–", "doubles in 4"]
    assert rows["1"][1:] == ["0", "–", "stays"]
    assert rows["0"][1:] == ["0", "–", "vanishes at once"]
    assert "1 mode grows and doubles in 4: forecasts that are lifted once run away" in text
    plane = charts_of(text)["spectrum-plane"]
    assert len(line(plane, "fades")["x"]) == 4
    assert line(plane, "grows")["x"] == pytest.approx([np.exp(0.01 * np.log(2))], rel=1e-4)


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = write_report(write_run(tmp_path / "run")).read_text(encoding="utf-8")
    page = Reader(text)
    assert all(address.startswith("#") for address in page.loads)
    assert page.tags.count("script") == 2  # the data, and what draws them
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(page.tags)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy[1] and "connect-src" not in policy[1]


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (0, 1), slots=5)
    first = write_report(directory).read_bytes()
    assert write_report(directory).read_bytes() == first
    assert {path.name for path in directory.iterdir()} == {
        "seed-0", "seed-1", "study.toml", "report.html",
    }  # fmt: skip


def test_text_of_the_study_stays_text(tmp_path: Path) -> None:
    name = '</title></script><script>alert(1)</script><img src=x onerror="alert(2)"> & $story'
    directory = write_run(tmp_path / "run", slots=3)
    (directory / "study.toml").write_text(study_text(name))
    rollout = rollout_of(0) | {"names": [name, "%{y}", "z"], "units": ["</script>", "<b>", "1"]}
    (directory / "rollout.json").write_text(json.dumps(rollout))
    text = write_report(directory).read_text(encoding="utf-8")
    page = Reader(text)
    assert page.texts["title"] == name
    assert page.texts["h1"] == name
    assert json.dumps(name) in page.texts["code"]
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert charts_of(text)["states"]["panels"][0]["y"] == f"{name} [</script>]"


def test_the_study_and_its_command_are_there(tmp_path: Path) -> None:
    page = read(write_run(tmp_path / "run", (4, 5, 6), slots=3))
    assert "fedkoopman run study.toml --seeds 3 --out again" in page.texts["code"]
    assert study_text(seed=4, slots=3).strip() in page.texts["code"]
    page = read(write_run(tmp_path / "gap", (4, 10), slots=3))
    assert "fedkoopman run study.toml --out again-4\n" in page.texts["code"]
    assert "fedkoopman run study.toml --set seed=10 --out again-10" in page.texts["code"]


def test_seeds_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (10, 9), slots=3)
    (directory / "seed-9" / "rollout.json").unlink()
    page = read(directory)
    assert "Seed 9, the first of 2." in page.texts["p"]
    assert page.texts["p"].count("Written when the run ends.") == 2


def test_an_unfinished_run_shows_what_is_there(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=60)
    whole = (directory / "records.jsonl").read_text().splitlines(keepends=True)
    (directory / "records.jsonl").write_text("".join(whole[:26]) + whole[26][:40])
    (directory / "rollout.json").unlink()
    text = write_report(directory).read_text(encoding="utf-8")
    page = Reader(text)
    assert "Not finished: slot 25 of 60 reached." in page.texts["p"]
    assert len(line(charts_of(text)["error"], "E")["y"]) == 26
    assert page.tables["summary"][""][0] == "last 25 slots, mean"
    assert {"states", "spectrum-plane"}.isdisjoint(charts_of(text))


def test_seeds_may_be_at_different_slots(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", (0, 1, 2), slots=20)
    write_lines(directory / "seed-1" / "records.jsonl", records_of(1, 20, 5)[:11])
    (directory / "seed-2" / "records.jsonl").write_text('{"slot": 0, "arri')
    text = write_report(directory).read_text(encoding="utf-8")
    notice = "Not finished: slots 10 to 20 of 20 reached; no slot yet of seed 2."
    assert notice in Reader(text).texts["p"]
    assert "--seeds 3" in Reader(text).texts["code"]
    drawn = array(line(charts_of(text)["error"], "E")["y"])
    a, b = (column(records_of(seed, 20, 5), "E") for seed in (0, 1))
    np.testing.assert_allclose(drawn[:11], np.mean([a[:11], b[:11]], axis=0), rtol=1e-4)
    np.testing.assert_allclose(drawn[11:], a[11:], rtol=1e-4)


def test_the_untrained_model_alone_is_a_report(tmp_path: Path) -> None:
    page = read(write_run(tmp_path / "run", slots=0))
    assert "No slot has passed yet." in page.texts["p"]
    [error] = numbers(page.tables["summary"]["E"][0])
    assert error == pytest.approx(records_of(0, 0, 5)[0]["E"], rel=1e-3)


def spoil(directory: Path, file: str, content: str | None) -> None:
    if content is None:
        (directory / file).unlink()
    else:
        (directory / file).write_text(content)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("study.toml", None, "there is no .*study.toml: give the directory of a run"),
        ("study.toml", "name = ", "study.toml is not TOML"),
        ("records.jsonl", None, "holds no finished slot yet"),
        ("records.jsonl", "", "holds no finished slot yet"),
        ("records.jsonl", '{"slot": 0, "l1"', "holds no finished slot yet"),
        ("records.jsonl", '{"slot": 0\n{"slot": 1}\n', "line 1 of .*records.jsonl is no record"),
        ("records.jsonl", '{"l1": 0}\n', "line 1 of .*no object with a slot number"),
        ("records.jsonl", '{"slot": 0, "l1": "high"}\n', "line 1 of .*'high'"),
        ("rollout.json", "{", "rollout.json is not JSON"),
        ("rollout.json", '{"dt": 0.1}', "rollout.json is no rollout .*'truth'"),
        ("summary.json", "[]", "summary.json holds no JSON object"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    directory = write_run(tmp_path / "run", slots=3)
    spoil(directory, file, content)
    with pytest.raises(InputError, match=message) as caught:
        write_report(directory)
    assert "\n" not in str(caught.value)
    assert not (directory / "report.html").exists()


def test_a_missing_directory_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run directory .*nowhere"):
        write_report(tmp_path / "nowhere")


def test_a_report_needs_no_jax(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", slots=3)
    code = (
        "import sys, pathlib; from fedkoopman.reports.run import write_report; "
        "write_report(pathlib.Path(sys.argv[1])); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True)
