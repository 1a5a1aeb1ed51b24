"""What `deployment.py` measures: our federation, Flower's alone, and a site's intake.

Everything runs on loopback, in processes that bear a mark by which they are found, and ended.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean, median

MARK = "FEDKOOPMAN_BENCHMARK"
PROGRAM = [sys.executable, "-m", "fedkoopman.cli"]
APP = Path(__file__).with_name("flower_peer")
SEGMENTS, STEPS, DT, NOISE = 8, 300, 0.02, 0.05
"""Of a site: segments, samples of each, seconds between them, and the sensor's standard deviation.
"""
ROLES = {
    "nginx": "nginx",
    "SuperLink": "flower-superlink",
    "SuperExec": "flower-superexec",
    "SuperNode": "flower-supernode",
    "ServerApp": "flwr-serverapp",
    "ClientApp": "flwr-clientapp",
    "server loop": "fedkoopman.deploy.server.loop",
    "agent": "fedkoopman.deploy.site.agent_process",
    "worker": "fedkoopman.deploy.site.worker_process",
    "node": "fedkoopman.deploy.flower.node",
    "light site": "light_site.py",
    "serve": "fedkoopman.cli serve",
    "join": "fedkoopman.cli join",
}
STUDY = """
name = "deployment"
slots = {slots}
[system]
name = "pendulum"
parameters = {{ dt = {dt} }}
[sites]
files = [{files}]
arrivals = "{arrivals}"
[clients]
count = {count}
probability = 1.0
[segments]
steps = {steps}
[policy]
name = "threshold"
segments = 1
"""
SITE = """
name = "{name}"
[data]
files = "data/*.csv"
columns = ["angle"]
time = "time"
held_out = 0.25
[sensor]
kind = "linear"
matrix = [[1.0, 0.0]]
[noise]
observation = {variance}
process = {{ diagonal = [1e-8, 1e-6] }}
[initial]
cov = 2.0
"""


class Programs:
    """Processes of one measurement, all of which end with it."""

    def __init__(self, folder: Path, **env: str) -> None:
        quiet = {
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        self.folder, self.mark = folder, uuid.uuid4().hex
        known = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FLWR_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), known.get("PATH", "")])
        self.env = {**known, **quiet, "PATH": path, MARK: self.mark, **env}
        self.started: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *cause: object) -> None:
        for process in self.started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 30
        while self.all() and time.monotonic() < end:
            time.sleep(0.2)
            for process in self.started.values():
                process.poll()
        for pid in self.all():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(self, name: str, command: list[str], **env: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**self.env, **env},
                start_new_session=True,
            )

    def run(self, command: list[str], **env: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**self.env, **env}, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"{command} gave {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def wait(self, what, seconds: float, said: str, pause: float = 0.1):
        """Look until something is true; a program that ends by itself meanwhile is a failure."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := what():
                return found
            if (failure := self.folder / "failed").exists():
                raise RuntimeError(failure.read_text())
            for name, process in self.started.items():
                if process.poll():
                    raise RuntimeError(f"{name} ended with {process.poll()}: {self.tail(name)}")
            time.sleep(pause)
        raise RuntimeError(f"not within {seconds:g} s: {said}")

    def tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def all(self) -> dict[int, str]:
        """Processes with the mark, what they started (nginx overwrites its environment), and what
        each of them does."""
        parents, marked = dict[int, int](), set[int]()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    told = (entry / "stat").read_text().rpartition(")")[2].split()
                    if told[0] not in "ZX":
                        parents[int(entry.name)] = int(told[1])
                        if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                            marked.add(int(entry.name))
        while more := {pid for pid, parent in parents.items() if parent in marked} - marked:
            marked |= more
        found = {}
        for pid in marked:
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[pid] = _role(line)
        return found

    def used(self) -> tuple[dict[str, float], dict[str, float], int]:
        """By role: seconds of processor (of children that ended too), and megabytes of memory; and
        the number of processes."""
        seconds: dict[str, float] = defaultdict(float)
        memory: dict[str, float] = defaultdict(float)
        tick, found = os.sysconf("SC_CLK_TCK"), self.all()
        for pid, role in found.items():
            with suppress(OSError):
                numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds[role] += sum(map(int, numbers[11:15])) / tick
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                memory[role] += int(re.search(r"^Pss:\s*(\d+)", text, re.M)[1]) / 1024
        return dict(seconds), dict(memory), len(found)


def _role(line: str) -> str:
    for role, words in ROLES.items():
        if any(word in line for word in ([words] if isinstance(words, str) else words)):
            return role
    return "others"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def names(sites: int) -> list[str]:
    return [f"site-{i:02}" for i in range(sites)]


def write_field(folder: Path, sites: int, slots: int, arrivals: str = "drawn") -> Path:
    """A pendulum, watched by many sites; the study's path."""
    import numpy as np

    import fedkoopman as fk

    random = np.random.default_rng(0)
    starts = random.uniform((-2.0, -1.0), (2.0, 1.0), (SEGMENTS, 2))
    system = fk.systems.Pendulum(dt=DT)
    swings = [fk.simulate(system, steps=STEPS, initial=x0)[1:, 0] for x0 in starts]
    for name in names(sites):
        (folder / name / "data").mkdir(parents=True)
        text = SITE.format(name=name, variance=NOISE**2)
        (folder / name / "site.toml").write_text(text, encoding="utf-8")
        if arrivals == "drawn":
            for i, swing in enumerate(swings):
                write_swing(folder / name / "data" / f"swing-{i}.csv", swing, random)
    files = ", ".join(f'"{name}/site.toml"' for name in names(sites))
    text = STUDY.format(
        slots=slots, dt=DT, files=files, arrivals=arrivals, count=sites, steps=STEPS
    )
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return folder / "study.toml"


def write_swing(path: Path, swing, random) -> None:
    noisy = swing + random.normal(0, NOISE, len(swing))
    rows = "".join(f"{(k + 1) * DT:.2f},{angle:.5f}\n" for k, angle in enumerate(noisy))
    path.write_text(f"time,angle\n{rows}", encoding="utf-8")


def ours(folder: Path, sites: int, slots: int, warm: int, secure: bool, period: float) -> dict:
    """Serve and join; where the time of a slot goes.

    Arguments:
        warm: slots that are not measured, at the beginning.
        period: seconds from slot to slot; 0 for as soon as possible.
    """
    study = write_field(folder, sites, slots)
    flags, port = ([] if secure else ["--insecure"]), free_port()
    with Programs(folder) as programs:
        programs.run([*PROGRAM, "provision", str(study), "--sites", ",".join(names(sites)), *flags])
        command = [*PROGRAM, "serve", str(study), "--out", str(folder / "out")]
        programs.start("serve", [*command, "--port", str(port), "--period", str(period), *flags])
        for name in names(sites):
            programs.start(name, _join(folder, name, port, secure))
        with _steps(folder / "out" / "status.json") as steps:
            reach(programs, steps, warm, 120 + 20 * sites)
            before = programs.used()
            reach(programs, steps, slots - 1, 60 + (slots - warm) * (20 + 4 * sites + period))
            after = programs.used()
            programs.wait(
                lambda: programs.started["serve"].poll() is not None, 120, "the end of the run"
            )
        if programs.started["serve"].poll():
            raise RuntimeError(programs.tail("serve"))
    return _told_by_ours(folder, sites, steps, warm, slots, before, after)


def light(folder: Path, sites: int, slots: int, warm: int) -> dict:
    """Sites without data or training, each a process: what messages alone cost."""
    study = write_field(folder, sites, slots)
    study.write_text(study.read_text() + '\n[aggregation]\nguard = "off"\n')
    port, seen = free_port(), names(sites)
    with Programs(folder) as programs:
        programs.run([*PROGRAM, "provision", str(study), "--sites", ",".join(seen)])
        command = [*PROGRAM, "serve", str(study), "--out", str(folder / "out")]
        programs.start("serve", [*command, "--port", str(port)])
        for name in seen:
            programs.start(name, light_command(folder, name, port))
        with _steps(folder / "out" / "status.json") as steps:
            reach(programs, steps, warm, 300 + 5 * sites)
            before = programs.used()
            reach(programs, steps, slots - 1, 60 + slots * (20 + sites))
            after = programs.used()
    return _told_by_ours(folder, sites, steps, warm, slots, before, after)


def light_command(folder: Path, name: str, port: int) -> list[str]:
    """The process of a light site, with its kit opened."""
    from fedkoopman.deploy.provisioning.kit import open_kit

    codes = (folder / "fleet" / "codes.txt").read_text().splitlines()
    code = dict(line.split() for line in codes)[name]
    kit = folder / "light" / name / "kit"
    open_kit(folder / "fleet" / "kits" / f"{name}.kit", kit, code)
    script = str(Path(__file__).with_name("light_site.py"))
    return [
        sys.executable, script, "--name", name, "--kit", str(kit),
        "--server", f"127.0.0.1:{port}", "--state", str(folder / "light" / name),
    ]  # fmt: skip


def _join(folder: Path, name: str, port: int, secure: bool) -> list[str]:
    command = [*PROGRAM, "join", str(folder / name / "site.toml"), "--yes"]
    command += ["--server", f"127.0.0.1:{port}"]
    command += ["--kit", str(folder / "fleet" / "kits" / f"{name}.kit")]
    if not secure:
        return [*command, "--insecure"]
    codes = (folder / "fleet" / "codes.txt").read_text().splitlines()
    (folder / f"{name}.code").write_text(dict(line.split() for line in codes)[name])
    return [*command, "--code-file", str(folder / f"{name}.code")]


def reach(programs: Programs, steps: list, slot: int, seconds: float) -> None:
    """Wait for the end of a slot."""
    programs.wait(lambda: steps and steps[-1][1] >= slot, seconds, f"slot {slot}", 0.02)


@contextmanager
def _steps(path: Path) -> Iterator[list[tuple[float, int, str]]]:
    """Note when the server goes from step to step: (time, finished slot, step).

    The file bears the instant of its writing; it is looked at more often than it is written.
    """
    found: list[tuple[float, int, str]] = []
    stop = threading.Event()

    def watch() -> None:
        last = 0
        while not stop.wait(0.004):
            with suppress(OSError, ValueError, KeyError):
                about = path.stat()
                if about.st_mtime_ns != last:
                    told = json.loads(path.read_text())
                    last = about.st_mtime_ns
                    found.append((about.st_mtime_ns / 1e9, told["slot"], told["step"]))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def _told_by_ours(folder, sites, steps, warm, slots, before, after) -> dict:
    """Means over the measured slots, in seconds."""
    began = {slot + 1: when for when, slot, step in steps if step == "polling"}
    measured = [m for m in range(warm + 1, slots) if m in began and m + 1 in began]
    agents = [_agent_seconds(folder / name / ".fedkoopman" / name) for name in names(sites)]
    rows = []
    for m in measured:
        marks = {step: when for when, slot, step in steps if _of(slot, step) == m}
        over = marks.get("waiting", began[m + 1])
        saved = marks.get("saving", over)  # steps of a few milliseconds may not have been seen
        judged = marks.get("validating", marks.get("aggregating", saved))
        sent = marks.get("training", judged)
        rows.append({
            "total": began[m + 1] - marks["polling"],
            "first round": sent - marks["polling"],
            "second round": judged - sent,
            "server": over - judged,
            "inside evaluation": max(_inside(a, m, "evaluate", m - 1) for a in agents),
            "inside polling": max(_inside(a, m, "poll", m) for a in agents),
            "inside acknowledgement": max(_inside(a, m, "acknowledge", m - 1) for a in agents),
            "inside training": max(_inside(a, m, "ask", m) for a in agents),
        })  # fmt: skip
    return {
        "slots": len(rows),
        "every": [round(row["total"], 3) for row in rows],
        **{key: mean(row[key] for row in rows) for key in rows[0]},
        **_used(before, after, slots - 1 - warm),
        "nginx": (folder / "out" / "server" / "nginx.conf").exists(),
    }


def _of(slot: int, step: str) -> int:
    """The slot that a step belongs to; the last steps come after it is finished."""
    return slot if step in ("saving", "waiting") else slot + 1


def _inside(agent: dict, slot: int, kind: str, about: int) -> float:
    return agent.get((kind, about), 0.0)


def _agent_seconds(state: Path) -> dict[tuple[str, int], float]:
    """What an agent's log says of each request's duration."""
    found = {}
    for path in sorted((state / "logs").glob("agent.log*"), reverse=True):
        for kind, slot, seconds in re.findall(
            r"INFO (\w+) of slot (\d+) in ([\d.]+) s", path.read_text(errors="replace")
        ):
            found[kind, int(slot)] = found.get((kind, int(slot)), 0.0) + float(seconds)
    return found


def _used(before: tuple, after: tuple, slots: int) -> dict:
    """Processor seconds per slot by role, and memory."""
    seconds = {
        role: round((after[0][role] - before[0].get(role, 0.0)) / slots, 4) for role in after[0]
    }
    return {
        "processor": {role: s for role, s in sorted(seconds.items(), key=lambda kv: -kv[1])},
        "memory_mb": {role: round(mb) for role, mb in after[1].items()},
        "processes": after[2],
    }


def peer(
    folder: Path, field: Path, sites: int, slots: int, warm: int, secure: bool, cached: bool
) -> dict:
    """FedAvg by Flower alone, on the states that our sites have estimated.

    Arguments:
        field: where ours ran.
        cached: whether JAX may keep compiled code on disk, as our agents do.
    """
    folder.mkdir(parents=True)
    about = _hand_over(folder, field, sites)
    port, fleet = free_port(), field / "fleet"
    address, ca = f"127.0.0.1:{port}", fleet / "ca.crt"
    cache = {
        "JAX_ENABLE_COMPILATION_CACHE": "true" if cached else "false",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with Programs(folder, FLWR_HOME=str(folder / "home"), **cache) as programs:
        link = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port)]
        link += ["--database", str(folder / "state.db")]
        tls = ["--ssl-ca-certfile", str(ca), "--ssl-certfile", str(fleet / "server.crt")]
        tls += ["--ssl-keyfile", str(fleet / "server.key"), "--enable-supernode-auth"]
        programs.start("superlink", [*link, *(tls if secure else ["--insecure"])])
        _wait_ready(programs, address, ca if secure else None)
        if secure:
            _enrol(address, ca, field, sites)
        for place, name in enumerate(names(sites)):
            node = ["flower-supernode", "--superlink", address, "--port", str(free_port())]
            config = f'site="{name}" place={place} folder="{folder}"'
            node += ["--host", "127.0.0.1", "--node-config", config]
            key = field / name / ".fedkoopman" / name / "kit" / "node.key"
            tls = ["--root-certificates", str(ca), "--auth-supernode-private-key", str(key)]
            programs.start(
                name,
                [*node, *(tls if secure else ["--insecure"])],
                JAX_COMPILATION_CACHE_DIR=str(folder / "cache" / name) if cached else "",
                FLWR_HOME=str(folder / "home" / name),
            )
        _configure(folder / "home", address, ca if secure else None)
        config = f'folder="{folder}" slots={slots} sites={sites}'
        programs.run(["flwr", "run", str(APP), "dep", "--run-config", config])
        rounds = folder / "rounds.jsonl"
        count = lambda: len(rounds.read_text().splitlines()) - 1 if rounds.exists() else -1  # noqa: E731
        programs.wait(lambda: count() >= warm, 300 + 120 * sites, f"slot {warm}")
        before = programs.used()
        patience = 60 + (slots - warm) * (60 + 20 * sites)
        programs.wait(lambda: count() >= slots, patience, f"slot {slots}")
        after = programs.used()
        programs.wait((folder / "learned.npz").exists, 60, "the last model")
    return _told_by_peer(folder, field, sites, slots, warm, before, after, about)


def _hand_over(folder: Path, field: Path, sites: int) -> dict:
    """Write what the peer needs: the study in numbers, the first model, and each site's states."""
    from dataclasses import asdict

    import numpy as np

    from fedkoopman.config.study import Study
    from fedkoopman.evaluation import windows_of_site
    from fedkoopman.runs.experiment import problem_of

    study = Study.load(field / "study.toml")
    parts = problem_of(study, study.seed, sites)
    for name in names(sites):
        kept = _states(field / name / ".fedkoopman" / name, parts.system.dim)
        windows = windows_of_site(kept["held-out"], parts.steps, parts.test_trajectories)
        train = {f"train{i}": states for i, states in enumerate(kept["train"])}
        np.savez(folder / f"{name}.npz", windows=windows, **train)
    np.savez(folder / "model.npz", **parts.algorithm.begin(parts))
    about = {
        "architecture": asdict(parts.architecture),
        "training": asdict(parts.training),
        "rate": parts.rates[0],
        "seed": study.seed,
        "segments": len(kept["train"]),
        "horizon": parts.horizon,
        "valid_error": parts.valid_error,
    }
    (folder / "about.json").write_text(json.dumps(about))
    return about


def _states(state: Path, dim: int) -> dict[str, list]:
    """A site's estimated states, as its store has them."""
    import numpy as np

    found: dict[str, list] = {"train": [], "held-out": []}
    with sqlite3.connect(f"file:{state / 'store.sqlite'}?mode=ro", uri=True) as store:
        for kind, states in store.execute(
            "SELECT kind, states FROM segments JOIN contents ON segment = number ORDER BY number"
        ):
            found[kind].append(np.frombuffer(states).reshape(-1, dim))
    store.close()
    return found


def _wait_ready(programs: Programs, address: str, certificates: Path | None) -> None:
    """Wait until the peer's SuperLink answers."""
    import httpx

    trusted = False if certificates is None else ssl.create_default_context(cafile=certificates)
    scheme = "http" if certificates is None else "https"

    def ready() -> bool:
        if programs.started["superlink"].poll() is not None:
            raise RuntimeError(programs.tail("superlink"))
        with suppress(httpx.HTTPError):
            return httpx.get(f"{scheme}://{address}/health", verify=trusted).is_success
        return False

    programs.wait(ready, 120, "the SuperLink")


def _enrol(address: str, ca: Path, field: Path, sites: int) -> None:
    """Register the sites' keys at the peer's SuperLink."""
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    from fedkoopman.deploy.flower.signing import key_bytes
    from fedkoopman.deploy.provisioning.roster import Roster

    with ControlHttpClient.from_server_address(
        address, False, ca.read_bytes(), [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    ) as client:
        for site in Roster.load(field / "fleet").active:
            key = key_bytes(site.public_key)
            client.RegisterNode(RegisterNodeRequest(public_key=key, name=site.name))


def _configure(home: Path, address: str, certificates: Path | None) -> None:
    home.mkdir(parents=True, exist_ok=True)
    trust = "insecure = true" if certificates is None else f'root-certificates = "{certificates}"'
    text = f'[superlink]\ndefault = "dep"\n[superlink.dep]\naddress = "{address}"\n{trust}\n'
    (home / "config.toml").write_text(text)


def _told_by_peer(folder, field, sites, slots, warm, before, after, about) -> dict:
    """Means over the measured slots, in seconds; those of a message are over all messages."""
    ended = {
        row["slot"]: row["time"]
        for row in map(json.loads, (folder / "rounds.jsonl").read_text().splitlines())
    }
    totals = [ended[m] - ended[m - 1] for m in range(warm + 1, slots + 1)]
    told = [
        json.loads(line)
        for name in names(sites)
        for line in (folder / f"{name}.jsonl").read_text().splitlines()
    ]
    told = [row for row in told if row["slot"] > warm]
    inside = {
        kind: mean(
            max(r["inside"] - r["compiling"] for r in told if (r["kind"], r["slot"]) == (kind, m))
            for m in range(warm + 1, slots + 1)
        )
        for kind in ("train", "evaluate")
    }
    parts = ("starting", "loading_jax", "loading_the_rest", "compiling")
    return {
        "slots": len(totals),
        "every": [round(total, 3) for total in totals],
        "total": mean(totals),
        "inside training": inside["train"],
        "inside evaluation": inside["evaluate"],
        "message": {part: mean(row[part] for row in told) for part in parts},
        "processor of a message": mean(row["processor"] for row in told),
        **_used(before, after, slots - warm),
        "difference": _difference(folder, field, sites),
    }


def _difference(folder: Path, field: Path, sites: int) -> float:
    """The largest difference between the two learned models, relative to the largest weight."""
    import numpy as np

    from fedkoopman.config.study import Study
    from fedkoopman.deploy.server.server_state import ServerDirectory
    from fedkoopman.runs.experiment import problem_of

    study = Study.load(field / "study.toml")
    parts = problem_of(study, study.seed, sites)
    with ServerDirectory.open(field / "out", study, parts, names(sites)) as directory:
        mine = directory.restore().arrays
    with np.load(folder / "learned.npz") as learned:
        theirs = dict(learned)
    if set(mine) != set(theirs):
        raise RuntimeError(f"the models have other tensors: {sorted(mine)} and {sorted(theirs)}")
    scale = max(float(np.abs(leaf).max()) for leaf in mine.values())
    return max(float(np.abs(mine[name] - theirs[name]).max()) for name in mine) / scale


def training_alone(about: dict, folder: Path) -> float:
    """Seconds of one warm training on one segment, with nothing else to do."""
    import numpy as np

    from fedkoopman.koopman.kinds.paper import PaperNetwork
    from fedkoopman.koopman.training import Training, client_update

    architecture = PaperNetwork(**about["architecture"])
    options = {**about["training"], "loss_weights": tuple(about["training"]["loss_weights"])}
    training = Training(**options)
    with np.load(folder / "model.npz") as model, np.load(folder / "site-00.npz") as site:
        weights = architecture.from_named(dict(model))
        states = site["train0"].astype(training.precision)
    found = []
    for _ in range(20):
        began = time.perf_counter()
        client_update(architecture, training, weights, [states], seed=0)
        found.append(time.perf_counter() - began)
    return median(found[1:])


def intake(folder: Path, segments: int, few: int) -> dict:
    """One agent, whose data come while it runs: memory, and rows per second.

    Arguments:
        segments: that come, a file each.
        few: after so many of them memory is looked at for the first time.
    """
    import numpy as np

    import fedkoopman as fk

    study = write_field(folder, 1, 10, "live")
    study.write_text(study.read_text() + '\n[aggregation]\nguard = "off"\n')
    random = np.random.default_rng(1)
    swing = fk.simulate(fk.systems.Pendulum(dt=DT), steps=STEPS, initial=(1.5, 0.0))[1:, 0]
    for i in range(segments):
        write_swing(folder / f"{i:05}.csv", swing, random)
    site, state = folder / "site-00" / "site.toml", folder / "state"
    with Programs(folder) as programs:
        programs.run([*PROGRAM, "provision", str(study), "--sites", "site-00", "--insecure"])
        _consent(site, folder / "fleet" / "kits" / "site-00.kit", state)
        agent = [
            sys.executable,
            "-m",
            "fedkoopman.deploy.site.agent_process",
            "--state",
            str(state),
        ]
        programs.start("agent", [*agent, "--settle", "0.2"])
        pid = programs.started["agent"].pid
        programs.wait((state / "status.json").exists, 120, "an agent that is ready")
        time.sleep(5)  # what it compiles ahead is compiled
        found = {"at rest": _memory(pid)}
        began = time.perf_counter()
        for upto in (few, segments):
            for i in range(0 if upto == few else few, upto):
                (folder / f"{i:05}.csv").rename(site.parent / "data" / f"{i:05}.csv")
            programs.wait(lambda n=upto: _taken(state) >= n, 600, f"{upto} segments", 0.05)
            found[f"{upto} segments"] = _memory(pid)
        seconds = time.perf_counter() - began
        asked = _train_on_all(state)
        found["trained on all of it"] = _memory(pid)
    return {
        "segments": segments,
        "rows": segments * STEPS,
        "seconds": seconds,
        "rows_per_second": segments * STEPS / seconds,
        "megabytes": found,
        "store_mb": (state / "store.sqlite").stat().st_size / 1e6,
        "trained on": asked,
    }


def _consent(site: Path, kit: Path, state: Path) -> None:
    """What `join` does before it starts an agent."""
    from fedkoopman.deploy.site.join import consent, prepare

    joining = prepare(site, "127.0.0.1:1", kit=kit, state=state, insecure=True, code=lambda _: "")
    consent(joining)
    (state / "site.path").write_text(f"{site}\n")


def _memory(pid: int) -> dict[str, float]:
    """Megabytes of a process: now, and at most so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB", text, re.M))
    return {"now": int(found["VmRSS"]) / 1024, "peak": int(found["VmHWM"]) / 1024}


def _taken(state: Path) -> int:
    with sqlite3.connect(f"file:{state / 'store.sqlite'}?mode=ro", uri=True, timeout=30) as store:
        ((count,),) = store.execute(
            "SELECT count(*) FROM segments JOIN files ON file = path WHERE state = 'taken'"
        )
    store.close()
    return int(count)


def _train_on_all(state: Path) -> int:
    """Have the agent train on everything that waits; how many samples that were."""
    from fedkoopman.deploy.flower.node import ask_agent
    from fedkoopman.deploy.provisioning.kit import Kit
    from fedkoopman.deploy.site.site_socket import socket_path
    from fedkoopman.deploy.wire import (
        Answered,
        Ask,
        Envelope,
        Poll,
        decode_replies,
        encode_requests,
    )
    from fedkoopman.federation.messages import Message
    from fedkoopman.runs.experiment import problem_of

    study = Kit.load(state / "kit").study
    parts = problem_of(study, study.seed, 1)
    requests = [Poll(1), Ask(1, Message("train", parts.algorithm.begin(parts)))]
    body = encode_requests(Envelope(study.seeded_digest()), requests)
    replies = decode_replies(ask_agent(socket_path(state), body))[1]
    if not isinstance(replies[-1], Answered):
        raise RuntimeError(f"the agent answers {replies}")
    return replies[-1].samples
