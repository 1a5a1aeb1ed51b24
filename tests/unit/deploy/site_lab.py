"""A small site with data of its own, and a server that is played to its agent."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.kit import open_kit, seal
from fedkoopman.deploy.provisioning.kit_content import kit_content
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.site_socket import ask, socket_path
from fedkoopman.deploy.wire import (
    Envelope,
    Reply,
    Request,
    decode_replies,
    encode_requests,
)

DYNAMICS = """
import jax.numpy as jnp

def spring(x, stiffness=4.0):
    return jnp.array([x[1], -stiffness * x[0]])
"""
SPRING = {
    "system.name": "dynamics.py:spring",
    "system.states": ["x", "v"],
    "system.parameters": {"dt": 0.05},
}
"""A study whose system is a function in a file."""
DT = 0.05
SAMPLES = 40


def recording(number: int, samples: int = SAMPLES) -> np.ndarray:
    """What a site observed of small swings: angle and speed, with some noise."""
    random = np.random.default_rng([7, number])
    t = DT * np.arange(samples)
    phase, size = random.uniform(0, 6), random.uniform(0.1, 0.3)
    wave = np.stack([np.cos(2 * t + phase), -2 * np.sin(2 * t + phase)], axis=1)
    return size * wave + 0.01 * random.standard_normal((samples, 2))


def write_recording(path: Path, number: int, samples: int = SAMPLES) -> Path:
    """One file with one segment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, recording(number, samples), delimiter=",", header="x,v", comments="")
    return path


def make_site(
    folder: Path, count: int = 6, name: str = "lab-a", first: int = 0, **data: Any
) -> SiteFile:
    """A site whose every file is one segment.

    Arguments:
        first: the number of its first recording; others have others.
        data: keys of the section.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        write_recording(folder / "data" / f"r{number:03d}.csv", first + number)
    keys = {"files": "data/*.csv", "held_out": 0.34} | data
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (folder / "site.toml").write_text(
        f'name = "{name}"\n[data]\n' + "\n".join(lines) + '\n[sensor]\nkind = "identity"\n'
        "[noise]\nobservation = 1e-4\nprocess = 1e-6\n[initial]\nmean = 0.0\ncov = 1.0\n",
        encoding="utf-8",
    )
    return SiteFile.load(folder / "site.toml")


def make_study(folder: Path, sites: Sequence[str] = ("lab-a",), **changes: Any) -> Study:
    """A study that trains in milliseconds.

    Arguments:
        folder: of the study.
        changes: of keys, with two underscores for a dot.
    """
    table: dict[str, Any] = {
        "name": "swings",
        "slots": 12,
        "system": {"name": "pendulum", "parameters": {"dt": DT, "gravity": 4.0}},
        "sites": {"files": [f"{name}/site.toml" for name in sites]},
        "clients": {"count": len(sites), "probability": 0.7},
        "segments": {"steps": SAMPLES},
        "network": {"components": 3, "width": 5},
        "training": {"epochs": 2},
        "policy": {"name": "threshold", "segments": 1},
        "evaluation": {"trajectories": 4, "tail_slots": 5},
    }  # fmt: skip
    study = Study.from_dict(table, folder)
    return study.with_values({key.replace("__", "."): value for key, value in changes.items()})


def asked(agent: Agent, *requests: Request, envelope: Envelope | None = None) -> tuple[Reply, ...]:
    """What an agent says to a batch."""
    body = agent.exchange(encode_requests(envelope or agent.envelope, requests), "a test")
    return decode_replies(body)[1]


class Process:
    """An agent as a process, with a state directory and a kit that brings its own function."""

    def __init__(self, folder: Path, site: SiteFile, study: Study, cache: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        study = study.with_values(SPRING)
        files = {"study.toml": study.to_toml().encode(), "dynamics.py": DYNAMICS.encode()}
        seal(kit_content(files, site.name, 0, 1, study.digest(), {}), folder / "k.kit", None)
        self.kit = open_kit(folder / "k.kit", self.state / "kit", None)
        (self.state / "site.path").write_text(f"{site.path.absolute()}\n")
        (self.state / "server").write_text("127.0.0.1:21001\n")
        self.agree()
        self.envelope = Envelope(study.seeded_digest())
        self.socket = socket_path(self.state)
        self._env = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.01",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def agree(self) -> None:
        (self.state / "consent.json").write_text(json.dumps({"fingerprint": self.kit.fingerprint}))

    def start(self, *words: str) -> None:
        command = [
            sys.executable,
            "-m",
            "fedkoopman.deploy.site.agent_process",
            "--state",
            str(self.state),
        ]
        with (self.state / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--settle", "0.2", *words], stderr=log, env=self._env
            )

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(120)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.wait()

    def log(self) -> str:
        return (self.state / "log").read_text()

    def ask(self, *requests: Request, seconds: float = 300.0) -> tuple[Reply, ...]:
        """Ask, again and again until there is an answer."""
        body, end = encode_requests(self.envelope, requests), time.monotonic() + seconds
        while True:
            try:
                return decode_replies(ask(self.socket, body, 60.0))[1]
            except OSError:
                assert time.monotonic() < end, self.log()
                time.sleep(0.02)

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)
        shutil.rmtree(self.state, ignore_errors=True)
