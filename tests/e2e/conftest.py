"""A site's directory with a sensor and observations, and the program as a user runs it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedkoopman.cli import main

SENSOR = 'kind = "linear"\nmatrix = [[1, 0, 0], [0, 1, 0]]\nnoise = 0.5\n'


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Site:
    """A directory with `z.csv` and `sensor.toml`, in which commands are run."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> Outcome:
        """Run the program inside this process, which saves loading JAX every time."""
        self.capture.readouterr()
        code = main(arguments)
        captured = self.capture.readouterr()
        return Outcome(code, captured.out, captured.err)

    def run_alone(self, *arguments: str, **environment: str) -> Outcome:
        """Run the program as a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "fedkoopman.cli", *arguments],
            cwd=self.folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def files(self) -> set[str]:
        return {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")}


@pytest.fixture
def z() -> np.ndarray:
    """Observations (20, 2) that a Lorenz63 near the origin might give."""
    t = np.arange(1, 21) * 0.02
    return np.column_stack([np.exp(2 * t), 2 * np.exp(2 * t)])


@pytest.fixture
def site(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    z: np.ndarray,
) -> Site:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{a},{b}\n" for a, b in z)
    (tmp_path / "z.csv").write_text("z1,z2\n" + rows, encoding="utf-8")
    (tmp_path / "sensor.toml").write_text(SENSOR, encoding="utf-8")
    return Site(tmp_path, capsys)
