"""A run directory that was damaged by hand: `--resume` mends it or refuses it in one line.

Every file of a finished and of an interrupted run is damaged in many ways. The gate tries a sample
that changes with nothing but this file; `make test-slow` tries all.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fedkoopman as fk
from fedkoopman.cli import main

STUDY = """
name = "tiny"
slots = 3
[segments]
steps = 20
[clients]
count = 2
[training]
epochs = 1
[policy]
name = "own.py:everyone"
[evaluation]
trajectories = 1
"""
POLICY = "def everyone(situation):\n    return range(len(situation.buffered))\n"
FILES = (
    "run.json", "study.toml", "own.py", "records.jsonl", "untrained.json", "rollout.json",
    "evidence.json", "summary.json", "model.safetensors", "model.md", "report.html",
    "checkpoint/state.safetensors", ".lock",
)  # fmt: skip
AT_THE_END = (
    "rollout.json", "evidence.json", "summary.json", "model.safetensors", "model.md", "report.html",
)  # fmt: skip
SAMPLE = 40

Damage = Callable[[Path], None]


def rewritten(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def replaced_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def folder_replaced_by_file(path: Path) -> None:
    if path.parent.name == "checkpoint":
        shutil.rmtree(path.parent)
        path.parent.write_bytes(b"")


def _flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    for place in random.Random(0).sample(range(len(content)), min(5, len(content))):
        changed[place] ^= 1 << (place % 8)
    return bytes(changed)


WAYS: dict[str, Damage] = {
    "removed": Path.unlink,
    "emptied": rewritten(lambda _: b""),
    "half": rewritten(lambda content: content[: len(content) // 2]),
    "last byte gone": rewritten(lambda content: content[:-1]),
    "flipped": rewritten(_flipped),
    "zeros": rewritten(lambda content: bytes(len(content))),
    "longer": rewritten(lambda content: content + b"\n{}\n[1]\n\xff"),
    "twice": rewritten(lambda content: content * 2),
    "utf-16": rewritten(lambda content: content.decode("latin-1").encode("utf-16")),
    "byte order mark": rewritten(lambda content: b"\xef\xbb\xbf" + content),
    "crlf": rewritten(lambda content: content.replace(b"\n", b"\r\n")),
    "nested": rewritten(lambda _: b"[" * 100_000),
    "many digits": rewritten(lambda _: b'{"slot": ' + b"9" * 5000 + b"}\n"),
    "directory": replaced_by_directory,
    "loop": replaced_by_loop,
    "no folder": folder_replaced_by_file,
    **{
        f"is {value!r}"[:20]: rewritten(lambda _, value=value: json.dumps(value).encode())
        for value in (None, [], {}, [1], "text", 3, True, [[]], {"slot": "x"})
    },
}
STRANGE = (None, True, -1, 2**70, 10**400, 1e308, float("nan"), float("inf"), "", "x" * 10_000,
           "\0", "\ud800", [], {}, [None], {"a": None}, [[1]], "1")  # fmt: skip


def with_value(place: int, value: object) -> Damage:
    """Replace one value within the JSON of a file, or within its first line."""

    def damage(path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = path.suffix == ".json"
        table = json.loads("".join(lines) if whole else lines[0])
        name = list(table)[place % len(table)]
        table[name] = value
        changed = json.dumps(table)
        path.write_text(changed if whole else changed + "\n" + "".join(lines[1:]))

    return damage


def in_header(name: str, value: object) -> Damage:
    """Replace a value of the checkpoint's header, whose digest does not fit then."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        about = json.loads(header["__metadata__"]["state"])
        about[name] = value
        header["__metadata__"]["state"] = json.dumps(about)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])

    return damage


def cases() -> Iterator[tuple[str, str, Damage]]:
    for file in FILES:
        for way, damage in WAYS.items():
            yield file, way, damage
    for file, keys in (("run.json", 7), ("records.jsonl", 12), ("summary.json", 12),
                       ("untrained.json", 5), ("rollout.json", 7)):  # fmt: skip
        for place in range(keys):
            for value in STRANGE:
                yield file, f"{place}={value!r}"[:24], with_value(place, value)
    for name in ("slot", "buffers", "mark", "untrained", "records"):
        for value in STRANGE:
            yield "checkpoint/state.safetensors", f"{name}={value!r}"[:24], in_header(name, value)


ALL = [
    *(("finished", *case) for case in cases()),
    *(("interrupted", *case) for case in cases() if case[0] not in AT_THE_END),
]
NAMED = [pytest.param(*case, id="-".join(case[:3])) for case in ALL]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished and an interrupted run."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "study.toml").write_text(STUDY)
    (folder / "own.py").write_text(POLICY)
    study = str(folder / "study.toml")
    assert main(["run", study, "--no-progress", "--out", str(folder / "finished")]) == 0

    def stop(event: object) -> None:
        if event.slot == 2:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fk.run(study, out=folder / "interrupted", progress=stop)
    return folder


def resumed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, file: str,
    damage: Damage,
) -> None:  # fmt: skip
    out = tmp_path / "out"
    shutil.copytree(runs / state, out)
    damage(out / file)
    capsys.readouterr()
    code = main(["run", "--resume", "--no-progress", "--out", str(out)])
    said = capsys.readouterr().err
    assert code in (0, 1, 2), said
    assert "bug of fedkoopman" not in said and "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code != 0), said
    assert re.fullmatch(r"(note: .*\n|error: .*\n)*", said), said


@pytest.mark.parametrize(
    ("state", "file", "way", "damage"), random.Random(13).sample(NAMED, SAMPLE)
)
def test_a_damaged_run_is_mended_or_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, file: str,
    way: str, damage: Damage,
) -> None:  # fmt: skip
    resumed(runs, tmp_path, capsys, state, file, damage)


@pytest.mark.slow
@pytest.mark.parametrize(("state", "file", "way", "damage"), NAMED)
def test_every_damaged_run_is_mended_or_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, file: str,
    way: str, damage: Damage,
) -> None:  # fmt: skip
    resumed(runs, tmp_path, capsys, state, file, damage)
