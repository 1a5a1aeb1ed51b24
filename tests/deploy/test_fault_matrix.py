"""The whole matrix of faults: every process, every step, the network, the disk and the clock.

`make test-deploy` runs it. Every test ends with the books of all sites, of the server and of the
model compared (`bookkeeping.check_books`).
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fedkoopman as fk
from fedkoopman.deploy.server.coordinator import CRASH, STEPS
from fedkoopman.deploy.site.store import reading

from .bookkeeping import check_books, check_live
from .federation import COMPILER, Federation, own_clock, small_study, wait_until

pytestmark = pytest.mark.deploy

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
HASTE = ["--deadline", "10"]
"""How long a site may take, where one is missing on purpose."""


def field(tmp_path: Path, **values: Any) -> Path:
    return small_study(tmp_path / "field", **{"training__epochs": 1500, **values})


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loop_killed_at_each_step_learns_the_same(tmp_path: Path, seed: int) -> None:
    study = field(
        tmp_path, seed=seed, slots=9, training__epochs=5, clients__probability=[0.9, 0.7, 0.8]
    )
    slots = random.Random(seed).sample(range(1, 9), len(STEPS))
    crashes = ",".join(f"{step}:{slot}" for step, slot in zip(STEPS, slots, strict=True))
    with Federation(study, env={CRASH: crashes}).start() as federation:
        federation.finish(600)
    assert federation.said("serve").count("server loop was ended by SIGKILL") == len(STEPS)
    check_books(federation)
    local = fk.run(study, out=tmp_path / "local")
    served = (federation.out / "model.safetensors").read_bytes()
    assert served == (tmp_path / "local" / "model.safetensors").read_bytes()
    timeless = [{**record, "seconds": 0} for record in federation.records()]
    assert timeless == [{**record, "seconds": 0} for record in local.records]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_agents_and_workers_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with Federation(field(tmp_path, slots=40)) as federation:
        federation.options = ["--period", "1", "--deadline", "60"]
        federation.start()
        federation.reach(1)
        for _ in range(6):
            time.sleep(draw.uniform(0, 2))  # a moment, not a wait
            federation.kill(draw.choice(federation.labs), draw.choice(["agent", "worker"]))
        federation.await_all()
        federation.finish(600)
    check_books(federation)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_agent_killed_while_it_reads_its_data_reads_the_rest(tmp_path: Path, seed: int) -> None:
    """It is killed again and again from its very beginning on, while it fills the store."""
    draw = random.Random(seed)
    with Federation(field(tmp_path, slots=5)).start() as federation:
        for _ in range(4):
            federation.pid("lab-a", "agent")
            time.sleep(draw.uniform(0, 4))
            federation.kill("lab-a", draw.choice(["agent", "worker"]))
        federation.finish(600)
    check_books(federation)


def test_nodes_killed_while_they_wait_for_the_agent_and_while_they_send(tmp_path: Path) -> None:
    with Federation(field(tmp_path, slots=24)) as federation:
        federation.options = ["--period", "2", "--deadline", "60"]
        federation.start()
        federation.reach(1)
        for lab in federation.labs:
            federation.catch(lab)
            federation.kill(lab, "node")
            federation.await_all()
            sending(federation, lab)
            federation.kill(lab, "node")
            federation.await_all()
        federation.finish(600)
    check_books(federation)


def test_the_server_loop_and_the_proxy_killed_in_each_phase(tmp_path: Path) -> None:
    """The last of them lies between two slots. With the loop go all messages that are under way."""
    with Federation(field(tmp_path, slots=16)) as federation:
        federation.options = ["--period", "3", "--deadline", "60"]
        federation.start()
        federation.reach(1)
        for step in ("polling", "training", "waiting"):
            for part in ("loop", "proxy"):
                wait_until(
                    lambda step=step: federation.status().get("step") == step, 120, step, 0.003
                )
                federation.kill("serve", part)
                federation.await_all()
        federation.finish(600)
    check_books(federation)


PAIRS = [
    (("serve", "proxy"), ("serve", "loop")),
    (("lab-a", "agent"), ("serve", "loop")),
    (("lab-a", "node"), ("serve", "loop")),
    (("lab-b", "node"), ("serve", "proxy")),
    (("lab-a", "worker"), ("serve", "loop")),
    (("lab-c", "agent"), ("lab-c", "node")),
    (("lab-b", "worker"), ("lab-b", "agent")),
]


def test_two_killed_at_once(tmp_path: Path) -> None:
    with Federation(field(tmp_path, slots=30)) as federation:
        federation.options = ["--period", "3", "--deadline", "60"]
        federation.start()
        federation.reach(1)
        for pair in PAIRS:
            federation.catch("lab-a")
            victims = [federation.pid(*one) for one in pair]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            federation.await_all()
        federation.catch("lab-b")
        for name in ("serve", "lab-b"):
            federation.kill(name)
        federation.options = ["--deadline", "60"]
        federation.serve()
        federation.join("lab-b")
        federation.finish(600)
    check_books(federation)


def test_all_killed_at_once(tmp_path: Path) -> None:
    """As when the power of a building fails, several times."""
    with Federation(field(tmp_path, slots=12)) as federation:
        federation.options = ["--period", "1"]
        federation.start()
        for slot in (2, 5, 8):
            federation.reach(slot)
            federation.catch("lab-a")
            for pid in federation.leftovers():
                os.kill(pid, signal.SIGKILL)
            for process in federation.processes.values():
                process.wait()
            wait_until(lambda: not federation.leftovers(), 30, "the end of everything")
            federation.start()
        federation.finish(600)
    check_books(federation)


def test_a_site_that_stands_still_for_several_slots(tmp_path: Path) -> None:
    with Federation(field(tmp_path, slots=24)) as federation:
        federation.options = ["--period", "2", *HASTE]
        federation.start()
        federation.reach(1)
        federation.catch("lab-b")
        federation.pause("lab-b")
        goes_on_without(federation, "lab-b", 4)
        federation.resume("lab-b")
        federation.await_all()
        federation.finish(600)
    check_books(federation)


@pytest.mark.skipif(not ROOT or not shutil.which("ip"), reason="needs root and ip")
def test_a_site_that_is_unplugged_for_several_slots(tmp_path: Path) -> None:
    with network() as (space, here, link):
        study = field(tmp_path, slots=24)
        federation = Federation(study)
        federation.run("provision", str(study), "--host", here, "--renew")
        with federation:
            federation.options = ["--period", "2", *HASTE]
            federation.serve()
            federation.join("lab-a")
            federation.join("lab-b", host=here, within=["ip", "netns", "exec", space])
            federation.join("lab-c")
            federation.reach(2)
            command("ip", "link", "set", link, "down")
            goes_on_without(federation, "lab-b", 4)
            command("ip", "link", "set", link, "up")
            federation.await_all()
            federation.finish(600)
        check_books(federation)


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_a_site_whose_disk_is_full(tmp_path: Path) -> None:
    study = field(tmp_path, slots=24)
    with disk(tmp_path / "field" / "lab-b" / ".fedkoopman", "8m") as state:
        with Federation(study) as federation:
            federation.options = ["--period", "2", "--deadline", "60"]
            federation.start()
            federation.reach(2)
            fill(state)
            wait_until(
                lambda: "site lab-b: cannot use" in federation.said("serve"), 120, federation.logs
            )
            goes_on_without(federation, "lab-b", 2)
            federation.kill("lab-b", "agent")  # and cannot even start again
            goes_on_without(federation, "lab-b", 2)
            (state / "filler").unlink()
            federation.await_all()
            federation.finish(600)
        check_books(federation)


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_a_server_whose_disk_is_full(tmp_path: Path) -> None:
    """It stays up and says why; with room, it goes on."""
    study = field(tmp_path, slots=10)
    with disk(tmp_path / "field" / "out", "40m") as out:
        with Federation(study) as federation:
            federation.options = ["--period", "1"]
            federation.start()
            federation.reach(2)
            fill(out)
            wait_until(lambda: "No space left" in federation.said("serve"), 240, federation.logs)
            wait_until(
                lambda: "server loop ended with status 1" in federation.said("serve"),
                240, federation.logs,
            )  # fmt: skip
            assert federation.processes["serve"].poll() is None
            (out / "filler").unlink()
            federation.finish(600)
        check_books(federation)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, for a clock of its own")
def test_a_site_whose_clock_jumps(tmp_path: Path) -> None:
    """It goes on, as it learns the server's time anew; it is told of each jump."""
    with Federation(field(tmp_path, slots=40)) as federation:
        clock, env = own_clock(tmp_path, -18_000)
        federation.options = ["--period", "1", "--deadline", "60"]
        federation.serve()
        federation.join("lab-a")
        federation.join("lab-b", env=env)
        federation.join("lab-c")
        federation.reach(2)
        for jump in ("3600", "-3600", "0", "-30"):
            clock.write_text(jump)
            federation.await_all()
        federation.stop("serve")
        federation.options = ["--deadline", "60"]
        federation.serve()
        federation.finish(600)
    log = (federation.state("lab-b") / "logs" / "node.log").read_text()
    for told in ("18000 s behind", "3600 s ahead of", "3600 s behind"):
        assert log.count(f"this machine's clock is {told} the server's") == 1, told
    check_books(federation)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, for a clock of its own")
def test_a_server_whose_clock_jumps(tmp_path: Path) -> None:
    """By less than its certificate allows: no site is turned away, and none is asked in vain."""
    with Federation(field(tmp_path, slots=24)) as federation:
        clock, env = own_clock(tmp_path)
        federation.options = ["--period", "2", "--deadline", "30"]
        federation.serve(env=env)
        for lab in federation.labs:
            federation.join(lab)
        federation.reach(2)
        for jump in ("3600", "-3600", "0"):
            clock.write_text(jump)
            done = federation.slot()
            federation.reach(done + 3, 400)
        federation.finish(900)
    check_books(federation)


@pytest.mark.parametrize("seed", [0, 1])
def test_files_that_come_while_everything_is_killed(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    study = field(tmp_path, slots=45, sites__arrivals="live")
    folders = {lab: tmp_path / "field" / lab / "data" for lab in ("lab-a", "lab-c")}
    waiting = [(lab, file) for lab, data in folders.items() for file in set_apart(data, keep=5)]
    draw.shuffle(waiting)
    with Federation(study) as federation:
        federation.options = ["--period", "2", "--deadline", "60"]
        federation.start()
        federation.reach(1)
        victims = [("lab-a", "agent"), ("lab-c", "agent"), ("serve", "loop"), ("lab-a", "node"),
                   ("lab-c", "worker"), ("lab-c", "node")]  # fmt: skip
        for (lab, file), victim in zip(
            waiting, draw.sample(victims * 2, len(waiting)), strict=True
        ):
            part = folders[lab] / f"{file.name}.part"
            shutil.copy(file, part)
            part.rename(folders[lab] / file.name)
            time.sleep(draw.uniform(0, 3))  # a moment, not a wait
            federation.kill(*victim)
        everything = {lab: len(list(data.glob("*.csv"))) for lab, data in folders.items()}
        for lab, files in everything.items():
            wait_until(
                lambda lab=lab, files=files: taken(federation, lab) == files, 240, federation.logs
            )
        federation.await_all()
        federation.finish(900)
    check_books(federation)
    check_live(federation)
    for lab in folders:
        assert federation.accounts(lab)["buffered"] == 0, "all that came was trained on"


def test_a_site_that_is_set_back_to_an_older_backup(tmp_path: Path) -> None:
    """What it has trained on since is not trained on again."""
    with Federation(field(tmp_path, slots=14, training__epochs=5)) as federation:
        federation.options = ["--period", "1", "--deadline", "60"]
        federation.start()
        federation.reach(3)
        saved, state = tmp_path / "lab-b.backup", federation.state("lab-b")
        federation.run("backup", str(state), "--to", str(saved))
        federation.reach(federation.slot() + 3)
        federation.stop("lab-b")
        shutil.rmtree(state)
        federation.run("restore", str(saved), "--to", str(state.parent))
        federation.join("lab-b")
        federation.await_all()
        federation.finish(600)
    check_books(federation, restored=("lab-b",))


def sending(federation: Federation, lab: str) -> None:
    """Wait for a moment at which a site's node begins to send its agent's answer."""
    log = federation.state(lab) / "logs" / "node.log"
    begun = log.stat().st_size

    def found() -> bool:
        with log.open(errors="replace") as file:
            file.seek(begun)
            return "bytes from it" in file.read()

    wait_until(found, 120, f"{lab} sends", pause=0.003)


def goes_on_without(federation: Federation, lab: str, slots: int) -> None:
    """So many slots go by in which a site has no part, though the others have."""
    place = federation.labs.index(lab)
    first = federation.slot() + 1

    def found() -> bool:
        without = [
            record for record in federation.records()
            if record["slot"] >= first and place not in record["active"] and record["active"]
        ]  # fmt: skip
        return len(without) >= slots

    wait_until(found, 300, lambda: f"{slots} slots without {lab}\n{federation.logs()}")


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def network() -> Iterator[tuple[str, str, str]]:
    """A network namespace that is linked to this one: its name, our address and our end."""
    number = os.getpid() % 10_000
    space, here, there = f"fk{number}", f"fk{number}a", f"fk{number}b"
    low = number % 250
    command("ip", "netns", "add", space)
    try:
        command("ip", "link", "add", here, "type", "veth", "peer", "name", there)
        command("ip", "link", "set", there, "netns", space)
        command("ip", "addr", "add", f"10.254.{low}.1/24", "dev", here)
        command("ip", "link", "set", here, "up")
        command("ip", "-n", space, "addr", "add", f"10.254.{low}.2/24", "dev", there)
        command("ip", "-n", space, "link", "set", there, "up")
        command("ip", "-n", space, "link", "set", "lo", "up")
        yield space, f"10.254.{low}.1", here
    finally:
        subprocess.run(["ip", "link", "del", here], capture_output=True)
        command("ip", "netns", "del", space)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A small disk of its own."""
    folder.mkdir(parents=True)
    command("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        # Kept for the books, and for whoever looks at a failure.
        kept = folder.with_name(f"{folder.name}-kept")
        shutil.copytree(folder, kept, symlinks=True)
        command("umount", str(folder))
        shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)


def fill(folder: Path) -> None:
    """Leave no room on a disk."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def set_apart(data: Path, keep: int) -> list[Path]:
    """Move all but the first recordings out of a site's folder; where they are."""
    apart = data.with_name("later")
    apart.mkdir()
    return [file.rename(apart / file.name) for file in sorted(data.glob("*.csv"))[keep:]]


def taken(federation: Federation, lab: str) -> int:
    """How many files a site has taken in."""
    with reading(federation.state(lab)) as store:
        ((files,),) = store.execute("SELECT count(*) FROM files WHERE state = 'taken'")
    return int(files)
