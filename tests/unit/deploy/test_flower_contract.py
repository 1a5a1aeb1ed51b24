"""What fedkoopman relies on in Flower: where names are, and how they behave.

The behaviour as a whole is tested by `test_link` and `test_fleet`, which run on Flower's own state,
handlers and client. Here is what would fail first when Flower changes, told by name.
"""

import ast
import inspect
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fedkoopman
from fedkoopman.deploy.flower import internals, programs
from fedkoopman.deploy.flower.link import Letter, Link
from fedkoopman.deploy.flower.parcels import body_of, content_of, part_names, unpacked
from fedkoopman.errors import InputError


@pytest.mark.parametrize("name", internals.NAMES)
def test_every_name_is_where_it_is_said_to_be(name: str) -> None:
    assert getattr(internals, name) is not None


def test_no_other_module_imports_flower() -> None:
    root = Path(fedkoopman.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.split(".")[0] == "flwr" for n in names), path


def test_the_installed_release_is_a_tested_one() -> None:
    assert internals.check_version() == version("flwr")


@pytest.mark.parametrize(("found", "told"), [("1.999.0", "1.999.0 is"), ("1.2", "1.2 is")])
def test_another_release_is_refused_with_the_remedy(
    found: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "version", lambda name: found)
    with pytest.raises(InputError, match=f"{told}.*pip install 'flwr=="):
        internals.check_version()
    with pytest.raises(InputError, match="was tested with"):
        Link(signed=True)


def test_without_flower_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise internals.PackageNotFoundError(name)

    monkeypatch.setattr(internals, "version", missing)
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[deploy\]'"):
        internals.check_version()


def test_the_state_has_what_is_called_on_it() -> None:
    state = internals.InMemoryLinkState
    for name, words in {
        "create_run": {"federation_id", "primary_task_type", "flwr_aid", "fab_hash"},
        "create_node": {"owner_aid", "public_key", "heartbeat_interval", "name"},
        "delete_node": {"owner_aid", "node_id"},
        "deactivate_node": {"node_id"},
        "get_node_info": {"node_ids", "statuses"},
        "store_message_and_object_tree": {"message", "object_tree", "session_id"},
        "store_object": {"run_id", "session_id", "object_id", "object_content"},
        "start_session": {"run_id"},
        "delete_messages": {"message_ins_ids"},
        "_cleanup_push_session": {"session_id", "cleanup_messages"},
    }.items():
        assert words <= set(inspect.signature(getattr(state, name)).parameters), name
    handlers = internals.fleet_handlers
    paths = (path.replace("-", "_") for path in Link(signed=True).paths)
    assert all(callable(getattr(handlers, path)) for path in paths)


def test_a_message_is_three_parts_with_their_hashes_as_names() -> None:
    link = Link(signed=True)
    link.enrol({"a": b"key"})
    [node] = link._ids.values()
    link._state.activate_node(node, 30.0)
    [name] = link.send([Letter(node, b"body", 30.0)])
    store = link._state.object_store
    names = part_names(store.get_object_tree(name))
    assert names is not None and names[-1] == name
    assert body_of(unpacked(str(name), {n: store.get(n) for n in names}).content) == b"body"


def test_bodies_of_other_forms_are_refused() -> None:
    one = content_of(b"x")
    assert body_of(one) == b"x"
    for record in ({"fedkoopman": internals.ConfigRecord({"body": "text"})},
                   {"fedkoopman": internals.ConfigRecord({"body": b"x", "more": 1})},
                   {"other": internals.ConfigRecord({"body": b"x"})}, {}):  # fmt: skip
        with pytest.raises(InputError, match="not one of fedkoopman's"):
            body_of(internals.RecordDict(dict(record)))
    with pytest.raises(InputError, match="cannot be read"):
        unpacked("f" * 64, {"f" * 64: b"nonsense"})


def test_importing_fedkoopman_does_not_import_flower() -> None:
    script = (
        "import sys; import fedkoopman.deploy.flower.link, fedkoopman.deploy.server.serve, "
        "fedkoopman.deploy.site.join; "
        "print([m for m in sys.modules if m.split('.')[0] in ('flwr', 'jax')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_environment_is_quiet_and_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_SOMETHING", "else")
    monkeypatch.setenv("NO_PROXY", "intranet")
    env = programs.environment()
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert "FLWR_SOMETHING" not in env
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["NO_PROXY"] == env["no_proxy"] == "intranet,127.0.0.1,localhost"
