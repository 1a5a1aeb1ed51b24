"""Imports go one way, and nothing heavy is loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedkoopman

ROOT = Path(fedkoopman.__file__).parent
ORDER = (
    "version",
    "errors",
    "paths",
    "user_code",
    "registry",
    "durable",
    "covariance",
    "systems",
    "sensors",
    "estimation",
    "koopman",
    "evaluation",
    "federation",
    "theory",
    "config",
    "data",
    "survey",
    "runs",
    "reports",
    "paper",
    "deploy",
    "cli",
)
HEAVY = (
    "jax",
    "numpy",
    "equinox",
    "diffrax",
    "pyarrow",
    "matplotlib",
    "plotly",
    "optax",
    "safetensors",
)
FILES = sorted(ROOT.rglob("*.py"))


def part_of(file: Path) -> str:
    """The part of the package that a file belongs to: a module, or a directory."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(file: Path) -> set[str]:
    """The parts of the package that a file imports, wherever in the file it does so."""
    parts = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide the direction"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "fedkoopman":
                parts.add(rest.partition(".")[0])
    return parts


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_a_part_imports_only_from_those_before_it(file: Path) -> None:
    own = part_of(file)
    if own == "__init__":
        return
    assert own in ORDER, f"{own} has no place in the order of imports"
    for part in imported_parts(file):
        if part == "":  # the package itself: public names, which reach every part
            assert own == "cli", f"{file} imports fedkoopman itself"
        else:
            assert ORDER.index(part) <= ORDER.index(own), f"{own} imports {part}"


def loaded_by(code: str) -> list[str]:
    """Heavy packages that a fresh interpreter has loaded after running some code."""
    code += f"\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1].split()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import fedkoopman; fedkoopman.__version__; dir(fedkoopman)") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["run", "--help"],
        ["sweep", "--help"],
        ["config", "--help"],
        ["estimate", "--help"],
        ["reproduce", "--help"],
        ["reproduce", "--list"],
        ["init", "--help"],
        ["check", "--help"],
        ["predict", "--help"],
        ["inspect", "--help"],
        ["export", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(f"from fedkoopman.cli import main; assert main({arguments}) == 0") == []


def test_reading_a_sites_files_does_not_load_jax() -> None:
    modules = "data.observations", "config.sensor_file", "survey.survey", "durable", "reports.plots"
    assert "jax" not in loaded_by("\n".join(f"import fedkoopman.{name}" for name in modules))


@pytest.mark.parametrize("name", fedkoopman.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(fedkoopman, name) is not None
    assert name in dir(fedkoopman)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name for node in block.body for alias in node.names}  # type: ignore[attr-defined]
    assert seen | {"__version__"} == set(fedkoopman.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        _ = fedkoopman.estimat


def test_loading_everything_leaves_jax_settings_alone() -> None:
    code = """
import jax
before = dict(jax.config.values)
import fedkoopman
for name in fedkoopman.__all__:
    getattr(fedkoopman, name)
assert dict(jax.config.values) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)
