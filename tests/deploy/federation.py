"""A whole federation on loopback: the real programs, as their users start them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reference.examples import write_example

from fedkoopman.config.study import Study
from fedkoopman.deploy.site.buffer import account_of, trained_by_slot
from fedkoopman.deploy.site.site_socket import socket_path
from fedkoopman.deploy.site.store import reading

LABS = ("lab-a", "lab-b", "lab-c")
SMALL = {
    "slots": 5,
    "training.epochs": 2,
    "network.components": 4,
    "network.width": 8,
    "policy.segments": 1,
    "evaluation.trajectories": 2,
    "evaluation.tail_slots": 5,
    # Its books are compared with a plain mean, and a slot has an exchange less.
    "aggregation.guard": "off",
}
PROGRAM = [sys.executable, "-m", "fedkoopman.cli"]
ROLES = {
    "loop": "fedkoopman.deploy.server.loop",
    "proxy": "nginx",
    "agent": "fedkoopman.deploy.site.agent_process",
    "worker": "fedkoopman.deploy.site.worker_process",
    "node": "fedkoopman.deploy.flower.node",
}
"""What a program's children do, and what stands in their command lines."""
COMPILER = shutil.which("cc")
"""Makes a clock of its own for a program."""
MARK = "FEDKOOPMAN_FEDERATION"
"""An environment variable by which all processes of a federation are found again."""


def small_study(folder: Path, **values: Any) -> Path:
    """The pendulum of `fedkoopman init --example pendulum`, made small; the path of its study."""
    write_example(folder)
    dotted = {name.replace("__", "."): value for name, value in values.items()}
    study = Study.load(folder / "study.toml", {**SMALL, **dotted})
    (folder / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    return folder / "study.toml"


def own_clock(folder: Path, off: float = 0) -> tuple[Path, dict[str, str]]:
    """A file that says by how many seconds a program's clock is off, and its environment."""
    clock, shim, source = folder / "clock", folder / "clock.so", Path(__file__).with_name("clock.c")
    clock.write_text(str(off))
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-o", str(shim), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return clock, {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(clock)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(
    what: Callable[[], Any], seconds: float, said: str | Callable[[], str], pause: float = 0.05
) -> Any:
    """Look again and again until something is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(pause)
    told = said if isinstance(said, str) else said()
    raise AssertionError(f"not within {seconds:g} s: {told}")


class Federation:
    """A coordinator and its sites, each program a process of its own.

    Arguments:
        study: its file.
        secure: with TLS and keys, and with nginx in front.
        env: further variables for all programs.
    """

    def __init__(
        self,
        study: Path,
        secure: bool = True,
        labs: tuple[str, ...] = LABS,
        env: dict[str, str] | None = None,
    ) -> None:
        self.study, self.secure, self.labs = study, secure, labs
        self.folder, self.out, self.fleet = (
            study.parent,
            study.parent / "out",
            study.parent / "fleet",
        )
        self.port = free_port()
        self.mark = uuid.uuid4().hex
        self.env = {**os.environ, MARK: self.mark, **(env or {})}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.options: list[str] = []
        """Further ones for `serve`."""
        flags = [] if secure else ["--insecure"]
        self.run("provision", str(study), "--sites", ",".join(labs), *flags)

    def run(self, *words: str, code: int = 0) -> str:
        """A verb that ends by itself; its output."""
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, text=True, env=self.env, timeout=120
        )
        assert done.returncode == code, (
            f"{words} gave {done.returncode}: {done.stderr}{done.stdout}"
        )
        return done.stdout + done.stderr

    def serve(self, env: dict[str, str] | None = None) -> None:
        flags = [] if self.secure else ["--insecure"]
        command = ["serve", str(self.study), "--out", str(self.out), "--port", str(self.port)]
        self._start("serve", [*command, *flags, *self.options], env)

    def join(
        self,
        lab: str,
        env: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        within: Iterable[str] = (),
    ) -> None:
        """Start a site.

        Arguments:
            env: further variables.
            host: where it finds the server.
            within: a command that runs it, as `ip netns exec NAME`.
        """
        command = ["join", str(self.site(lab)), "--server", f"{host}:{self.port}", "--yes"]
        command += ["--kit", str(self.fleet / "kits" / f"{lab}.kit")]
        if self.secure:
            code = self.folder / f"{lab}.code"
            lines = dict(
                line.split() for line in (self.fleet / "codes.txt").read_text().splitlines()
            )
            code.write_text(lines[lab])
            command += ["--code-file", str(code)]
        else:
            command += ["--insecure"]
        self._start(lab, command, env, within)

    def site(self, lab: str) -> Path:
        return self.folder / lab / "site.toml"

    def state(self, lab: str) -> Path:
        return self.folder / lab / ".fedkoopman" / lab

    def __enter__(self) -> "Federation":
        return self

    def start(self) -> "Federation":
        """Everybody."""
        self.serve()
        for lab in self.labs:
            self.join(lab)
        return self

    def __exit__(self, *cause: object) -> None:
        """End everything; what does not end, or leaves something behind, is a failure."""
        if cause[0] is not None:
            print(self.logs())
        try:
            self.end()
        finally:
            left = self.leftovers()
            for pid in left:
                _signal(pid, signal.SIGKILL)
        if cause[0] is None:
            assert not left, f"still running after the end: {left}"

    def end(self) -> None:
        """Ask all programs to end, and wait."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for pid in self.leftovers():
            _signal(pid, signal.SIGCONT)
        heedless = []
        for name, process in self.processes.items():
            try:
                process.wait(45)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                heedless.append(name)
        end = time.monotonic() + 20  # what lost its parent ends too, but not at once
        while self.leftovers() and time.monotonic() < end:
            time.sleep(0.05)
        assert not heedless, f"{heedless} did not end when asked"

    def leftovers(self) -> dict[int, str]:
        """All processes that belong to the federation, with their command lines.

        They are known by the mark in their environments, or by the files that they have open.
        """
        found = {}
        for pid in _processes():
            if pid != os.getpid() and self._ours(pid) and not is_dead(pid):
                found[pid] = command_line(pid)
        return found

    def _ours(self, pid: int) -> bool:
        place = Path(f"/proc/{pid}")
        try:
            if f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes():
                return True
            opened = [os.readlink(link) for link in (place / "fd").iterdir()]
        except OSError:
            return False
        return any(path.startswith(f"{self.folder.resolve()}/") for path in opened)

    def _start(
        self,
        name: str,
        words: list[str],
        env: dict[str, str] | None = None,
        within: Iterable[str] = (),
    ) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*within, *PROGRAM, *words], stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env={**self.env, **(env or {})}, start_new_session=True,
            )  # fmt: skip

    def stop(self, name: str) -> int:
        """Ask a program to end, and wait."""
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(45)

    def said(self, name: str) -> str:
        """What a program has said so far."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """Everything that was said, for a failed test."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*/.fedkoopman/*/logs/*.log")]
        files += self.out.glob("server/logs/*.log")
        return "\n".join(
            f"--- {f.relative_to(self.folder)}\n{f.read_text(errors='replace')[-3000:]}"
            for f in files
        )

    def finish(self, seconds: float = 240) -> None:
        """Wait for the end of the run."""
        process = self.processes["serve"]
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not finished within {seconds:g} s\n{self.logs()}") from None
        assert code == 0, f"serve ended with {code}\n{self.logs()}"

    def slot(self) -> int:
        """The last finished slot."""
        return int(self.status().get("slot", 0))

    def reach(self, slot: int, seconds: float = 180) -> None:
        """Wait until a slot is finished."""
        wait_until(lambda: self.slot() >= slot, seconds, lambda: f"slot {slot}\n{self.logs()}")

    def status(self) -> dict[str, Any]:
        """What the server says of itself; empty before it has."""
        try:
            return dict(json.loads((self.out / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def records(self) -> list[dict[str, Any]]:
        """What is recorded; a line that is being written is left out."""
        try:
            content = (self.out / "records.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in content[: content.rfind("\n") + 1].splitlines()]

    def await_all(self, labs: Iterable[str] = (), seconds: float = 240) -> None:
        """Wait until sites have all answered something that they were asked from now on.

        Arguments:
            labs: their names; everybody if empty.
        """
        names = tuple(labs) or self.labs
        now = datetime.now(UTC).isoformat(timespec="seconds")

        def found() -> bool:
            sites = self.status().get("sites", {})
            return all(
                sites.get(name, {}).get("answered", "") > now and not sites[name]["trouble"]
                for name in names
            )

        wait_until(found, seconds, lambda: f"answers of all of {names}\n{self.logs()}")

    def pid(self, owner: str, part: str) -> int:
        """The process of a program's child, by a part of its command line.

        Arguments:
            owner: "serve" or a lab.
            part: one of `ROLES`, or as "deploy.agent".
        """
        wanted = ROLES.get(part, part)

        def found() -> int | None:
            for child in children(self.processes[owner].pid):
                line = command_line(child)
                if wanted in line and "prctl" not in line:  # which is about to become it
                    return child
            return None

        return int(wait_until(found, 60, f"a child {part} of {owner}"))

    def kill(self, owner: str, part: str = "") -> int:
        """Kill a program's child without a farewell, or the program itself; which it was."""
        pid = self.pid(owner, part) if part else self.processes[owner].pid
        os.kill(pid, signal.SIGKILL)
        if not part:
            self.processes[owner].wait()
        wait_until(lambda: is_dead(pid), 30, f"the death of {part or owner}")
        return pid

    def tree(self, owner: str) -> list[int]:
        """A program's process, and all that descend from it."""
        return [self.processes[owner].pid, *children(self.processes[owner].pid)]

    def pause(self, owner: str) -> None:
        """Stop a program and all its children, as if its machine stood still."""
        for pid in self.tree(owner):
            _signal(pid, signal.SIGSTOP)

    def resume(self, owner: str) -> None:
        """Let them go on."""
        for pid in reversed(self.tree(owner)):
            _signal(pid, signal.SIGCONT)

    def answering(self, lab: str) -> bool:
        """Whether a site's agent is answering something at this moment."""
        path = str(socket_path(self.state(lab)))
        lines = Path("/proc/net/unix").read_text().splitlines()
        return any(line.endswith(path) and line.split()[5] == "03" for line in lines)

    def catch(self, lab: str, step: str = "training", seconds: float = 120) -> int:
        """Wait for a moment at which an agent is at work in a step of a slot; that slot."""

        def found() -> int:
            status = self.status()
            asked = status.get("asked", [lab])
            if status.get("step") == step and lab in asked and self.answering(lab):
                return int(status["slot"]) + 1
            return 0

        told = f"{lab} at work while {step}"
        return int(wait_until(found, seconds, lambda: f"{told}\n{self.logs()}", pause=0.003))

    def accounts(self, lab: str) -> dict[str, int]:
        """What a site's store says of its samples."""
        with reading(self.state(lab)) as store:
            return asdict(account_of(store))

    def trained(self, lab: str) -> dict[int, int]:
        """Samples by the slot whose saved model holds them, as a site's store has it."""
        with reading(self.state(lab)) as store:
            return trained_by_slot(store)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """State, parent, and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def is_dead(pid: int) -> bool:
    """Whether a process is gone, or only waits to be buried."""
    return _stat(pid)[0] in "ZX"


def children(pid: int) -> Iterator[int]:
    """All processes that descend from one, the nearest first."""
    parents = {child: int(_stat(child)[1]) for child in _processes()}
    above = [pid]
    while above:
        above = [child for child, parent in parents.items() if parent in above]
        yield from above


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _signal(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, sign)
