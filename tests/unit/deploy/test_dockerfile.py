"""The Dockerfile, read as text, as there is no engine to build it: what it names exists, and it
runs as an unprivileged user."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KNOWN = {
    "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT",
    "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """Instructions with their arguments, in order."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    pairs = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in pairs]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def test_every_instruction_is_known() -> None:
    assert {word for word, _ in instructions()} <= KNOWN
    assert instructions()[0][0] == "FROM"


def test_bases_are_pinned_by_version() -> None:
    for stage in stages():
        image = stage[0][1].split()[0]
        assert re.fullmatch(r"python:3\.\d+(\.\d+)?-slim-[a-z]+", image), image
        minor = int(re.findall(r"3\.(\d+)", image)[0])
        about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert minor >= int(about["requires-python"].removeprefix(">=3."))
    assert len({stage[0][1].split()[0] for stage in stages()}) == 1


def ignored(name: str) -> bool:
    """Whether .dockerignore keeps a top-level name from the build; the last rule counts."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    answer = False
    for line in lines:
        rule = line.strip().removeprefix("!")
        if line.strip() and not line.startswith("#") and rule in ("*", name):
            answer = not line.startswith("!")
    return answer


def test_what_is_copied_exists_and_reaches_the_build() -> None:
    copied = []
    for word, rest in instructions():
        if word == "COPY" and "--from=" not in rest:
            *sources, _ = shlex.split(rest)
            copied += sources
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source
    assert ignored("tests") and ignored(".git") and ignored("fleet")


def test_the_package_finds_all_it_needs_among_what_is_copied() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = " ".join(rest for word, rest in instructions() if word == "COPY").split()
    assert about["project"]["readme"] in copied
    assert set(about["project"]["license-files"]) <= set(copied)
    assert about["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/fedkoopman"]
    assert {"deploy", "mqtt"} <= set(about["project"]["optional-dependencies"])


def test_it_is_installed_with_the_pinned_versions() -> None:
    [install] = [rest for word, rest in instructions() if word == "RUN" and " install " in rest
                 and "pip" in rest]  # fmt: skip
    words = shlex.split(install)
    assert words[-1] == ".[deploy,mqtt]"
    assert words[words.index("-c") + 1] == "constraints.txt"


def test_stages_are_two_and_the_last_one_takes_from_the_first() -> None:
    first, last = stages()
    name = first[0][1].split(" AS ")[1]
    [copy] = [rest for word, rest in last if word == "COPY"]
    assert f"--from={name}" in copy
    made = [rest for word, rest in first if word == "RUN" and "venv" in rest]
    assert copy.split()[-1] in made[0]


def test_it_runs_fedkoopman_and_not_as_root() -> None:
    last = stages()[-1]
    users = [rest for word, rest in last if word == "USER"]
    assert users and users[-1].split(":")[0] not in ("root", "0")
    made = next(rest for word, rest in last if word == "RUN" and "useradd" in rest)
    assert f"--uid {users[-1].split(':')[0]} " in made
    order = [word for word, _ in last]
    assert order.index("USER") > max(i for i, word in enumerate(order) if word == "RUN")
    [entry] = [rest for word, rest in last if word == "ENTRYPOINT"]
    assert json.loads(entry) == ["fedkoopman"]
    path = next(rest for word, rest in last if word == "ENV")
    assert "PATH=/opt/fedkoopman/bin:$PATH" in path
    assert "FLWR_TELEMETRY_ENABLED=0" in path


@pytest.mark.parametrize("word", ["ADD", "ARG", "http://", "https://", "latest", "sudo", "curl"])
def test_nothing_is_fetched_by_other_ways(word: str) -> None:
    assert not [rest for name, rest in instructions() if word in (name, *rest.split())]


def test_no_secret_is_in_it() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").lower()
    assert not re.search(r"password|token|secret|\.key", text)
