"""What README and documentation show is what happens: `tests/reference/pages.py` says how.

Every block of Python and commands is run, or says why not; options, names, keys, files and links
that pages mention exist. `make test` runs what is quick, `make test-slow` all of it.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from reference.pages import NOT_RUN, PAGES, REPOSITORY, SLOW, TUTORIALS, Block, blocks, commands
from reference.pages import prose as prose_of
from typer.main import get_command

import fedkoopman
from fedkoopman.cli import main
from fedkoopman.cli.app import app
from fedkoopman.config.sensor_file import KEYS as SENSOR_FILE_KEYS
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study

VERBS: Mapping[str, Any] = get_command(app).commands
SHOWN = [block for page in PAGES for block in blocks(page)]
MADE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
LANGUAGES = {"python", "sh", "toml", "text", "json", "bibtex"}
SHELL = re.compile(r"[|&;<>$*]|^(?!fedkoopman|cd )")
EXTRAS = tomllib.loads(
    (REPOSITORY / "examples" / "extension" / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
ENTRY_POINTS = set(EXTRAS["entry-points"])
FILE = re.compile(r"\.(toml|py|md|csv|json|key|secret|crt)$")
GENERATED = "docs/cli.md"  # its sections are each for themselves


class Reader:
    """Somebody who does what a page says, in an empty directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.names: dict[str, Any] = {"__name__": "__main__", "beginning": folder}
        monkeypatch.chdir(folder)
        monkeypatch.setenv("MPLBACKEND", "Agg")
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in ("examples", "benchmarks"):
            (folder / name).symlink_to(REPOSITORY / name)

    def follow(self, block: Block) -> None:
        if "file" in block.marks:
            path = Path(block.marks["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            code = "\n" * (block.line - 1) + block.text  # so that a failure tells the page's line
            exec(compile(code, block.page, "exec"), self.names)
        else:
            for line in commands(block.text):
                self.said = io.StringIO()
                with redirect_stderr(self.said):
                    self.run(line, block)

    def expect(self, block: Block) -> None:
        """What the command before has said, wherever lines are broken."""
        assert block.text.split() == self.said.getvalue().split(), block.name

    def run(self, line: str, block: Block) -> None:
        """A command: ours in this process, which saves loading JAX, others by a shell."""
        more = shlex.split(block.marks.get("small", ""))
        if SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line)):
            done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True)
            assert done.returncode == 0, f"{block.name}: {line}\n{done.stdout}{done.stderr}"
            return
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            self.monkeypatch.chdir(words[1])
        else:
            takes = {option for p in VERBS[words[1]].params for option in p.opts}
            more = more if more and more[0] in takes else []
            code = 2 if "fails" in block.marks else 0
            assert main([*words[1:], *more]) == code, (
                f"{block.name}: {line}\n{self.said.getvalue()}"
            )


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


def quick(page: str) -> list[Block]:
    return [b for b in blocks(page) if (b.runs or "file" in b.marks) and SLOW not in b.marks]


def followed(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.runs or "file" in block.marks]


def go_through(page: str, reader: Reader, chosen: list[Block]) -> None:
    before = None
    for block in blocks(page):
        if block in chosen:
            reader.follow(block)
        elif before in chosen and block.language == "text" and "fails" in before.marks:
            reader.expect(block)
        before = block


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.runs for b in quick(p))])
def test_the_quick_blocks_of_a_page_run(page: str, reader: Reader) -> None:
    go_through(page, reader, quick(page))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p != GENERATED and any(SLOW in b.marks for b in blocks(p))]
)
def test_all_blocks_of_a_page_run(page: str, reader: Reader) -> None:
    go_through(page, reader, followed(page))


@pytest.mark.slow
@pytest.mark.parametrize("block", followed(GENERATED), ids=lambda block: block.name)
def test_the_examples_of_the_verbs_run(block: Block, reader: Reader) -> None:
    reader.follow(block)


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(script: Path, reader: Reader) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.name)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.language in LANGUAGES, "name the block's language; `text` is for output"
    if NOT_RUN in block.marks:
        assert len(block.marks[NOT_RUN]) > 5, "say why it is not run"
        for test in re.findall(r"tests/\S+\.py", block.marks[NOT_RUN]):
            assert (REPOSITORY / test).is_file(), test


@pytest.mark.parametrize(
    "block", [b for b in SHOWN if b.language == "sh"], ids=lambda block: block.name
)
def test_commands_and_options_exist(block: Block) -> None:
    for line in commands(block.text):
        check_command(line)


def check_command(line: str) -> None:
    """Verb and options of a command, without running it."""
    for part in re.findall(r"(?:^|[|&;] *)((?:fedkoopman|make|pip install) ?[^|&>;]*)", line):
        word, *rest = shlex.split(part, comments=True)
        if word == "make":
            assert rest[0] in TARGETS, line
        elif word == "pip":
            for extra in re.findall(r"\[([\w,]+)\]", part):
                assert set(extra.split(",")) <= set(MADE["optional-dependencies"]), line
        elif rest and not rest[0].startswith("-"):
            assert rest[0] in VERBS, line
            known = {name for p in VERBS[rest[0]].params for name in (*p.opts, *p.secondary_opts)}
            for option in rest[1:]:
                if re.match(r"--\w|-[a-z]$", option):
                    assert option.partition("=")[0] in known | {"--help"}, f"{option} in {line}"


@pytest.mark.parametrize(
    "block", [b for b in SHOWN if b.language == "python"], ids=lambda block: block.name
)
def test_names_in_python_exist(block: Block) -> None:
    """Also of what is run by `make test-slow` only, or not at all."""
    compile(block.text, block.name, "exec")
    for name in re.findall(r"\bfk((?:\.\w+)+)", block.text):
        check_name("fk" + name)


def check_name(name: str) -> None:
    found: Any = fedkoopman
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            assert hasattr(found, "__path__"), f"{name} does not exist"
            found = import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)
        if not isinstance(found, type(fedkoopman) | type):
            return  # attributes of values are not looked up


@pytest.mark.parametrize(
    "block",
    [b for b in SHOWN if b.language == "toml" and NOT_RUN not in b.marks],
    ids=lambda block: block.name,
)
def test_keys_in_toml_exist(block: Block) -> None:
    """A part of a study, of a site file, or of a sensor file."""
    table = tomllib.loads(block.text)
    if "kind" in table:
        assert set(table) <= SENSOR_FILE_KEYS
        return
    given = set(keys_of(table))
    unknown = min((given - STUDY_KEYS, given - SITE_KEYS), key=len)
    assert not unknown, f"no key of a study or a site file: {', '.join(sorted(unknown))}"


def keys_of(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict) and name not in ("sensor", "bounds"):
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


STUDY_KEYS = set(Study.known())
SITE_KEYS = set(SiteFile.known()) | {"sensor", "bounds"}


@pytest.mark.parametrize("page", PAGES)
def test_what_the_prose_names_exists(page: str) -> None:
    text = prose_of(page)
    if page == "CHANGELOG.md":
        text = text.partition("\n## [0.3.0]")[0]  # what older versions had may be gone
    for said in re.findall(r"`([^`\n]+)`", text):
        if name := re.match(r"(fk|fedkoopman)((?:\.\w+)+)(?!-)", said):
            if name[0] not in ENTRY_POINTS and not FILE.search(said):
                check_name("fk" + name[2])
        elif re.match(r"(fedkoopman [a-z]|make [a-z]|pip install)", said) and "…" not in said:
            check_command(said)
        elif file := re.fullmatch(r"(?:tests|benchmarks|docs|examples)/[\w./-]+\.\w+", said):
            assert (REPOSITORY / file[0]).exists(), said
        elif key := re.match(r"([a-z]+)\.([a-z_]+)\b(?![.(/])", said):
            sections = {name.partition(".")[0] for name in STUDY_KEYS | SITE_KEYS if "." in name}
            if key[1] in sections and not FILE.search(said):
                module = REPOSITORY / "src" / "fedkoopman" / key[1] / f"{key[2]}"
                known = module.exists() or module.with_suffix(".py").exists()
                assert known or key[0] in STUDY_KEYS | SITE_KEYS | SENSOR_KEYS, said


SENSOR_KEYS = {
    f"sensor.{key}"
    for key in ("kind", "matrix", "offset", "angles", "function", "observed", "spread", "seed")
}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (REPOSITORY / page).parent / file if file else REPOSITORY / page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            there = path.read_text(encoding="utf-8")
            assert anchor in anchors(there) or f'id="{anchor}"' in there, target


def anchors(text: str) -> set[str]:
    """Headings as a code host spells them in an address."""
    titles = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", t.strip().lower()).replace(" ", "-") for t in titles}


def test_all_public_names_are_in_the_reference() -> None:
    shown = set(re.findall(r"^::: fedkoopman\.(\w+)", "".join(PAGES.values()), re.M))
    packages = {"control", "estimation", "plot", "systems", "theory"}
    assert set(fedkoopman.__all__) - {"__version__"} - packages <= shown
    assert packages <= shown  # a package by what it has


def test_every_key_of_a_sensor_file_is_documented() -> None:
    page = PAGES["docs/sensor-files.md"]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == SENSOR_FILE_KEYS


def test_marks_and_commands_are_read() -> None:
    text = "<!-- slow, small: --set slots=4 -->\n```sh\na 'b\nc' # d\ne \\\n  f\n```\n"
    text += "<!-- python\n1\n-->\n"
    shown, unseen = blocks("x.md", text)
    assert shown.marks == {"slow": "", "small": "--set slots=4"} and shown.line == 3
    assert commands(shown.text) == ["a 'b\nc' # d", "e \\\n  f"]
    assert (unseen.language, unseen.text, unseen.line) == ("python", "1\n", 9)
