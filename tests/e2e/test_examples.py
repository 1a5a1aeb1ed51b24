"""The worked examples: every command of their READMEs runs, and reaches what it is said to reach.

Commands are run as they stand, in this process; some in small, by settings that are added to them.
"""

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.paper.double_pendulum_data import INTERVAL, LINKS, SHORTEST, TRIALS
from fedkoopman.runs.site_preparation import prepared_sites

EXAMPLES = Path(__file__).parents[2] / "examples"
MEASURED = os.environ.get("FEDKOOPMAN_DOUBLE_PENDULUM")


@dataclass(frozen=True)
class Example:
    """An example's directory, and what its commands print."""

    source: Path
    monkeypatch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def commands(self, title: str = "") -> list[str]:
        """The lines of all blocks of commands in a section of the README."""
        page = (self.source / "README.md").read_text(encoding="utf-8")
        [section] = [s for s in re.split(r"^#+ ", page, flags=re.M) if s.startswith(title)][:1]
        return [line for block in re.findall(r"```sh\n(.*?)```", section, re.S)
                for line in block.splitlines()]  # fmt: skip

    def run(self, line: str, *more: str) -> str:
        """Run a command, with more words at its end; what it printed."""
        word, *rest = shlex.split(line, comments=True)
        self.capture.readouterr()
        if word == "cd":
            self.monkeypatch.chdir(rest[0])
        elif word == "python":
            script = Path(rest[0]) if Path(rest[0]).exists() else self.source / rest[0]
            self.monkeypatch.setattr(sys, "argv", [str(script), *rest[1:], *more])
            runpy.run_path(str(script), run_name="__main__")
        else:
            assert word == "fedkoopman"
            code = main([*rest, *more])
            assert code == 0, self.capture.readouterr().err
        return self.capture.readouterr().out


@pytest.fixture
def example(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Example:
    monkeypatch.chdir(tmp_path)
    return Example(EXAMPLES / request.param, monkeypatch, capsys)


def named(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True)


def only(site: str) -> tuple[str, ...]:
    """Settings for one site: to estimate noise takes long for systems that are costly to follow."""
    return ("--set", f'sites.files=["{site}/site.toml"]', "--set", "clients.count=1")


def sites_of(run: str) -> Mapping[str, Any]:
    return json.loads(Path(run, "summary.json").read_text(encoding="utf-8"))["sites"]


@pytest.mark.slow
@named("pendulum")
def test_a_pendulum_at_three_laboratories(example: Example) -> None:
    init, cd, check, run, inspect, predict = example.commands("A pendulum")
    for line in (init, cd):
        example.run(line)
    assert example.run(check).count("verdict: consistent") == 3
    example.run(run)
    sites = sites_of("runs/first")
    assert sites["lab-a"]["observation_error"][-1][0] < 0.5 * sites["lab-a"]["held_error"][-1][0]
    assert sites["lab-b"]["observation_noise"][0] == pytest.approx(0.1**2, rel=0.1)
    example.run(inspect)
    example.run(predict)
    assert Path("forecast.png").stat().st_size > 1000


@pytest.mark.slow
@named("pendulum")
def test_a_pendulum_of_unknown_length(example: Example) -> None:
    example.run("fedkoopman init swings --example pendulum")
    example.run("cd swings")
    [run] = example.commands("The length")
    printed = example.run(run, "--set", "slots=4")
    value, std = map(float, re.findall(r"length = (\S+) ± (\S+)", printed)[0])
    assert abs(value - 1.0) < 0.01 and 0 < std < 0.01


@pytest.mark.slow
@named("pendulum")
def test_a_pendulum_without_equations(example: Example) -> None:
    example.run("fedkoopman init swings --example pendulum")
    shutil.copytree(example.source / "no-equations", "swings/no-equations")
    example.run("cd swings")
    ours, theirs = (fk.Study.load(path) for path in ("study.toml", "no-equations/study.toml"))
    for part in ("slots", "segments", "network", "training", "policy"):  # so that they compare
        assert getattr(ours, part) == getattr(theirs, part)
    scores: dict[str, float] = {}
    for line in example.commands("No equation"):
        printed = example.run(line.replace("--seeds 6", "--seeds 1"))
        if line.startswith("python"):
            rows = [row.split() for row in printed.splitlines()[1:]]
            scores |= {row[0].removeprefix("runs/"): float(row[-1]) for row in rows}
    assert scores["no-equations"] < 2 * scores["equations"]
    assert scores["rate-equations"] < 2 * scores["equations"]
    assert scores["rate-no-equations"] > 1.5 * scores["rate-equations"]


@pytest.mark.slow
@named("regimes")
def test_together_laboratories_know_every_range(example: Example) -> None:
    """Alone each is good at home; the shared model is near the best of them everywhere."""
    init, cd, check, _ = example.commands("A pendulum that")
    for line in (init, cd):
        example.run(line)
    assert example.run(check).count("verdict: consistent") == 3
    *runs, edmd, compare = example.commands("Who knows")
    for line in runs:
        example.run(line.replace("--seeds 3", "--seeds 1"))
    assert "network.kind=edmd" in edmd
    tables = regime_tables(example.run(compare.replace(" runs/edmd", "")))
    ranges = ("small", "middle", "large")
    for (steps, way), table in tables.items():
        shared = table["runs/shared"]
        alone = np.array([table[f"runs/lab-{name}"] for name in ranges])
        at_home, elsewhere = np.diagonal(alone), ~np.eye(3, dtype=bool)
        if steps == 100:
            ratio = alone[:, :3] / shared[:3]
            # Of three seeds the smallest were 2.0 and 5.7, both of lab-large, lifted again.
            assert ratio[elsewhere].min() > 1.3, (way, ratio)
            assert np.where(elsewhere, ratio, 0).max(axis=1).min() > 3, (way, ratio)
        assert (shared[:3] < 3 * at_home + 0.3).all(), (steps, way)
        assert (shared[:3] < table["holding"][:3] / 3).all(), (steps, way)
        assert shared[3] < 0.3, (steps, way)  # no forecast explodes
    sites = sites_of("runs/shared")
    for name in ranges:
        lab = f"lab-{name}"
        together, by_itself = (
            np.array(found[lab]["observation_error"][-1])
            for found in (sites, sites_of(f"runs/{lab}"))
        )
        assert (together < 0.7 * by_itself).all(), lab


@pytest.mark.slow
@named("swing-up")
def test_together_laboratories_swing_a_pendulum_up_and_alone_none_can(example: Example) -> None:
    """With the same controller and motor: the shared model from anywhere, the others never from
    below."""
    init, cd, check, run, control = example.commands("A pendulum that")
    for line in (init, cd):
        example.run(line)
    # A filter that knows no equation hands the observations on; what it leaves over is a swing.
    assert example.run(check).count("verdict: the model does not explain the data") == 3
    example.run(run)
    printed = example.run(control)
    assert "mode" in printed and "wrote control.png" in printed
    assert Path("control.png").stat().st_size > 10_000
    trials = re.compile(r"runs/(\S+)/model\S+: (\d+) of (\d+) starts; .*, (\d+) of (\d+)")
    found = {}
    for line in example.commands("Together"):
        for lab, *counts in trials.findall(example.run(line)):
            found[lab] = tuple(map(int, counts))
    stood, starts, from_below, below = found.pop("shared")
    assert starts == 50 and stood >= 48 and from_below >= below - 2
    assert set(found) == {"lab-low", "lab-side", "lab-top"}
    for lab, (stood, starts, from_below, below) in found.items():
        assert from_below == 0 and below >= 5, lab
        assert stood <= starts / 4, lab  # let go almost upright, it may be held


def regime_tables(printed: str) -> dict[tuple[int, str], dict[str, np.ndarray]]:
    """What compare.py of the regimes prints: by steps and way, a row of four numbers per run."""
    found = {}
    for block in printed.strip().split("\n\n"):
        title, *rows = block.splitlines()
        way = "once" if "lifted once" in title else "again"
        found[int(title.split()[0]), way] = {
            row.split()[0]: np.array(row.split()[1:], float) for row in rows
        }
    return found


@pytest.mark.slow
@named("cardiac-cell")
def test_gates_are_found_from_the_voltage(example: Example) -> None:
    record, cd, check, run, inspect, predict = example.commands("A cardiac cell")
    example.run(record, "--recordings", "2")
    example.run(cd)
    assert "verdict: consistent" in example.run(check, *only("microelectrode"))
    example.run(run, "--set", "slots=8")
    [noise] = sites_of("runs/first")["microelectrode"]["observation_noise"]
    assert noise == pytest.approx(1.5**2, rel=0.15)
    example.run(inspect)
    example.run(predict)
    assert Path("forecast.png").stat().st_size > 1000
    lines = example.run("python compare.py").splitlines()
    for line in lines[4:]:  # after 100 ms
        voltage, *gates = map(float, line.split()[-7:])
        assert voltage < 0.7 and max(gates) < 0.03, line


@named("double-pendulum")
def test_trials_become_three_sites(example: Example, tmp_path: Path) -> None:
    """Simulated trials, written as the authors write theirs: what the filter finds is the truth."""
    truth = simulated_trials(tmp_path / "trials")
    convert, cd, *_ = example.commands("A measured")
    convert = convert.replace("Video_Tracking_Data.zip", "trials")
    assert "next: fedkoopman check" in example.run(convert, "--start", "0", "--seconds", "12.4")
    example.run(cd)
    for n, site in enumerate(prepared_sites(fk.Study.load("study.toml")).sites):
        assert len(site.train) == 5 and len(site.held_out) == 1 and not site.dropped
        rows = 5 * np.arange(200)
        np.testing.assert_allclose(site.train[0][:, [0, 2]], truth[n][rows][:, [0, 2]], atol=0.01)


def simulated_trials(folder: Path) -> list[np.ndarray]:
    """Trials of a frictionless pendulum, the first counted two turns further; their states."""
    found = []
    for trial in TRIALS:
        x0 = np.radians([10.0 * trial, 0.0, -15.0 * trial, 0.0])
        x = fk.simulate(fk.systems.DoublePendulum(), steps=SHORTEST - 1, initial=x0)
        place = folder / f"Trial{trial}"
        place.mkdir(parents=True)
        for link, angle in zip(LINKS, np.degrees(x[:, [0, 2]]).T, strict=True):
            angle = angle + 720.0 * (trial == 1)
            table = np.column_stack([INTERVAL * np.arange(len(angle)), angle])
            np.savetxt(place / link, table, delimiter=",")
        found.append(x)
    return found


@named("double-pendulum")
@pytest.mark.parametrize("given", [("nowhere", "swings"), ("swings",)])
def test_no_trials_are_told_in_a_line(example: Example, given: tuple[str, ...]) -> None:
    example.monkeypatch.delenv("FEDKOOPMAN_DOUBLE_PENDULUM", raising=False)
    with pytest.raises(SystemExit) as raised:
        example.run(shlex.join(["python", "convert.py", *given]))
    assert raised.value.code == 2
    assert not Path("swings").exists()


@pytest.mark.slow
@pytest.mark.skipif(
    MEASURED is None,
    reason="the measured double pendulum is not here: set FEDKOOPMAN_DOUBLE_PENDULUM to its folder",
)
@named("double-pendulum")
def test_the_measured_double_pendulum(example: Example) -> None:
    convert, cd, check, *rest = example.commands("A measured")
    example.run(convert.replace("Video_Tracking_Data.zip", shlex.quote(str(MEASURED))))
    example.run(cd)
    assert re.search(r"filter: NIS .* consistent", example.run(check, *only("camera")))
    for line in rest:
        example.run(line)
    for site in sites_of("runs/first").values():
        ours, held = (np.array(site[name][-1]) for name in ("observation_error", "held_error"))
        assert (ours < held / 3).all()
    assert Path("forecast.png").stat().st_size > 1000
