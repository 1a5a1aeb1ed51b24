"""Imports go one way, also inside packages, and nothing heavy is loaded before it is needed."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedkoopman

ROOT = Path(fedkoopman.__file__).parent
ORDER = (
    "version",
    "errors",
    "signals",
    "paths",
    "session_objects",
    "user_code",
    "registry",
    "lazy",
    "cell_output",
    "plot",
    "rules",
    "durable",
    "covariance",
    "compilation",
    "systems",
    "sensors",
    "estimation",
    "koopman",
    "control",
    "evaluation",
    "federation",
    "theory",
    "config",
    "data",
    "survey",
    "runs",
    "reports",
    "audit",
    "paper",
    "deploy",
    "cli",
)
DEPLOY = (
    "wire",
    "secure",
    "backup",
    "supervisor",
    "provisioning",
    "flower",
    "site",
    "server",
    "flower_apps",
)
"""Parts of deploy, from left to right."""
FACTORIES = {"fedkoopman.systems.base": "fedkoopman.systems.user"}
"""Imports against the direction, inside a method: `System.from_function` makes a subclass."""
HEAVY = (
    "jax",
    "numpy",
    "equinox",
    "diffrax",
    "pyarrow",
    "matplotlib",
    "optax",
    "safetensors",
)
FILES = sorted(ROOT.rglob("*.py"))


def part_of(file: Path) -> str:
    """The part of the package that a file belongs to: a module, or a directory."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Everything that some code imports of fedkoopman, wherever in the code it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "fedkoopman")


def imported_parts(file: Path) -> set[str]:
    """The parts of the package that a file imports."""
    names = imported_names(ast.parse(file.read_text(encoding="utf-8")))
    return {name.partition(".")[2].partition(".")[0] for name in names}


class WithoutTypeChecking(ast.NodeTransformer):
    """Removes what only type checkers import."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(one) for one in node.orelse]
        return self.generic_visit(node)


def module_graph(root: Path) -> dict[str, set[str]]:
    """Every module below a package, and the modules that it imports, at the top or later."""
    files = {
        ".".join((root.name, *file.relative_to(root).with_suffix("").parts)): file
        for file in root.rglob("*.py")
        if file.name != "__init__.py"
    }
    graph = {}
    for module, file in files.items():
        tree = WithoutTypeChecking().visit(ast.parse(file.read_text(encoding="utf-8")))
        names = set(imported_names(tree))
        # A name is a module, or something that is defined in one.
        found = {name if name in files else name.rpartition(".")[0] for name in names}
        graph[module] = (found & set(files)) - {module}
    return graph


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the one before it, and the first is also the last."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    graph = module_graph(ROOT)
    for module, imported in FACTORIES.items():
        graph[module].remove(imported)
    cycle = cycle_in(graph)
    assert not cycle, f"a cycle of imports, read from right to left: {' <- '.join(cycle)}"


def test_a_cycle_would_be_found(tmp_path: Path) -> None:
    """Also where an import is inside a function, but not where only type checkers see it."""
    package = tmp_path / "fedkoopman"
    (package / "sub").mkdir(parents=True)
    (package / "one.py").write_text("from fedkoopman.sub import two\n")
    two = package / "sub" / "two.py"
    two.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import fedkoopman.one\n")
    assert cycle_in(module_graph(package)) == []
    two.write_text("def late():\n    from fedkoopman.one import name\n")
    assert set(cycle_in(module_graph(package))) == {"fedkoopman.one", "fedkoopman.sub.two"}


def test_parts_of_deploy_import_only_from_those_before_them() -> None:
    for module, imported in module_graph(ROOT).items():
        parts = [name.split(".")[2] for name in (module, *imported) if ".deploy." in name]
        if ".deploy." not in module:
            continue
        own = parts.pop(0)
        assert own in DEPLOY, f"{own} has no place in the order of deploy"
        for part in parts:
            assert DEPLOY.index(part) <= DEPLOY.index(own), f"deploy.{own} imports deploy.{part}"


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
        ["tune", "--help"],
        ["audit", "--help"],
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
