"""A kit opens with its code to what went in, and with anything changed it does not open at all."""

import base64
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning import kit as kits
from fedkoopman.deploy.provisioning.kit import (
    Kit,
    check_name,
    new_code,
    normal_code,
    open_kit,
    read_kit,
    seal,
    sealed,
    unsealed,
)
from fedkoopman.deploy.provisioning.kit_content import MANIFEST, kit_content, shared_files
from fedkoopman.errors import InputError
from fedkoopman.version import NUMERICS

KEYS = {"ca.crt": b"authority", "node.key": b"secret", "node.pub": b"public"}
CODE = "0123A-BCDEF-GHJKM-NPQRS-TVWXY"
DYNAMICS = "import optics\nfrom lenses.thin import f\n\n\ndef rhs(x):\n    return f(x)\n"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study of three sites whose files are elsewhere, with code beside it."""
    folder = tmp_path / "study"
    (folder / "lenses").mkdir(parents=True)
    (folder / "dynamics.py").write_text(DYNAMICS)
    (folder / "optics.py").write_text("import numpy\nimport json\n")
    (folder / "lenses" / "__init__.py").write_text("")
    (folder / "lenses" / "thin.py").write_text("def f(x):\n    return -x\n")
    (folder / "unrelated.py").write_text("private = True\n")
    files = [f"{name}/site.toml" for name in "abc"]
    return Study.from_dict(
        {
            "seed": 7,
            "sites": {"files": files},
            "clients": {"count": 3},
            "system": {"name": "dynamics.py:rhs", "states": ["x"], "parameters": {"dt": 0.1}},
        },
        folder,
    )


def content_of(study: Study, keys: dict[str, bytes] | None = None) -> dict[str, bytes]:
    given = KEYS if keys is None else keys
    return kit_content(shared_files(study), "b", 1, 3, study.digest(), given)


@pytest.fixture
def kit_file(study: Study, tmp_path: Path) -> Path:
    path = tmp_path / "b.kit"
    seal(content_of(study), path, CODE)
    return path


def test_a_kit_opens_to_what_went_in(study: Study, kit_file: Path, tmp_path: Path) -> None:
    kit = open_kit(kit_file, tmp_path / "state" / "kit", CODE)
    assert (kit.site, kit.identity, kit.clients) == ("b", 1, 3)
    assert (kit.digest, kit.version, kit.secure) == (study.digest(), NUMERICS, True)
    assert kit.study.digest() == study.digest()
    assert kit.study.seed == 7 and kit.study.root == kit.folder
    assert kit.node_key.read_bytes() == b"secret" and kit.ca.read_bytes() == b"authority"
    assert Kit.load(kit.folder) == kit
    kit.check_version()


def test_a_kit_carries_the_code_that_is_named_and_imported_and_no_other(
    study: Study, kit_file: Path, tmp_path: Path
) -> None:
    kit = open_kit(kit_file, tmp_path / "state" / "kit", CODE)
    assert set(kit.code) == {"dynamics.py", "optics.py", "lenses/__init__.py", "lenses/thin.py"}
    for name, path in kit.code.items():
        assert path.read_bytes() == (study.root / name).read_bytes()


def test_a_kit_carries_every_member_of_the_users_own(study: Study, tmp_path: Path) -> None:
    keys = {
        "algorithm.name": "sums.py:ALGORITHM",
        "aggregation.rule": "median.py:AGGREGATOR",
        "policy.name": "turns.py:POLICY",
        "network.kind": "kind.py:KIND",
        "estimation.method": "filter.py:ESTIMATOR",
    }
    names = [value.partition(":")[0] for value in keys.values()]
    for name in names:
        (study.root / name).write_text(f"import optics\n# {name}\n")
    seal(content_of(study.with_values(keys)), tmp_path / "b.kit", CODE)
    kit = open_kit(tmp_path / "b.kit", tmp_path / "state" / "kit", CODE)
    assert {"dynamics.py", "optics.py", *names} <= set(kit.code)
    for name in names:
        assert kit.code[name].read_bytes() == (study.root / name).read_bytes()


def test_the_code_in_a_kit_runs_from_there(kit_file: Path, tmp_path: Path) -> None:
    from fedkoopman.user_code import load_object

    kit = open_kit(kit_file, tmp_path / "state" / "kit", CODE)
    assert load_object(kit.study.system.name, kit.folder)(2.0) == -2.0  # type: ignore[operator]
    assert Kit.load(kit.folder) == kit  # running it has left nothing there


def test_what_is_opened_is_private(kit_file: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(kit_file.stat().st_mode) == 0o600
    state = tmp_path / "state"
    open_kit(kit_file, state / "kit", CODE)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [state, *state.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert modes[state] == modes[state / "kit"] == 0o700
    assert [path.name for path in state.iterdir()] == ["kit"]


def test_no_secret_can_be_read_in_a_sealed_kit(kit_file: Path) -> None:
    data = kit_file.read_bytes()
    for secret in (b"secret", b"rhs", b"study.toml", base64.b64encode(b"secret")):
        assert secret not in data


@pytest.mark.parametrize(
    "typed", [CODE.lower(), CODE.replace("-", ""), f" {CODE} \n", "O" + CODE[1:]]
)
def test_a_code_may_be_typed_in_many_ways(kit_file: Path, typed: str) -> None:
    assert read_kit(kit_file, typed)["node.key"] == b"secret"


def test_codes_are_random_and_normal() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    assert all(normal_code(code) == code and len(code) == 29 for code in codes)


@pytest.mark.parametrize("code", ["", "0123", CODE + "A", CODE[:-1] + "U", CODE[:-1] + "é"])
def test_what_is_no_code_is_told(kit_file: Path, code: str) -> None:
    with pytest.raises(InputError, match="5 groups of 5"):
        read_kit(kit_file, code)


def test_another_code_does_not_open_it(kit_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not open: the unlock code"):
        open_kit(kit_file, tmp_path / "kit", new_code())
    assert not (tmp_path / "kit").exists()
    with pytest.raises(InputError, match="is sealed: give the unlock code"):
        read_kit(kit_file, None)


@pytest.mark.parametrize("code", [CODE, None], ids=["sealed", "unsealed"])
def test_a_change_of_any_byte_is_refused(
    study: Study, tmp_path: Path, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One derivation of the key for all: scrypt is meant to be slow.
    known: dict[tuple[str, bytes], bytes] = {}
    slow = kits._key

    def quick(code: str, salt: bytes) -> bytes:
        if (code, salt) not in known:
            known[code, salt] = slow(code, salt)
        return known[code, salt]

    monkeypatch.setattr(kits, "_key", quick)
    small = {"a": b"x" * 20, "b": b""}
    data = sealed(small, code)
    assert unsealed(data, code, "kit") == small
    places = range(len(data))
    for i in places:
        if code is not None and 17 <= i < 33 and i > 18:
            continue  # further bytes of the salt, each a new derivation
        changed = bytearray(data)
        changed[i] ^= 1
        with pytest.raises(InputError) as told:
            unsealed(bytes(changed), code, "kit")
        assert "\n" not in str(told.value)
    for end in (0, 1, 15, 16, 17, 20, 40, len(data) // 2, len(data) - 1):
        with pytest.raises(InputError):
            unsealed(data[:end], code, "kit")
    with pytest.raises(InputError):
        unsealed(data + b"x", code, "kit")


def test_another_format_is_told(kit_file: Path) -> None:
    data = bytearray(kit_file.read_bytes())
    data[len(kits.MAGIC)] = 9
    kit_file.write_bytes(data)
    with pytest.raises(InputError, match="made in format 9, this is format 1"):
        read_kit(kit_file, CODE)


def test_what_is_no_kit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.kit"
    for content in (b"", b"PK\x03\x04 a zip", kits.MAGIC):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is no kit: give the file"):
            read_kit(path, CODE)
    with pytest.raises(InputError, match="does not exist: check the path"):
        read_kit(tmp_path / "none.kit", CODE)
    with pytest.raises(InputError, match="is a directory"):
        read_kit(tmp_path, CODE)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.kit"
    with path.open("wb") as file:
        file.truncate(10**12)  # sparse: it takes no room
    with pytest.raises(InputError, match="larger than"):
        read_kit(path, CODE)


def test_an_archive_is_as_large_as_its_content() -> None:
    """Nothing is compressed, so that nothing can swell."""
    assert len(sealed({"zeros": bytes(10**6)}, None)) > 10**6
    with pytest.raises(InputError, match="a kit of"):
        sealed({"zeros": bytes(kits.LARGEST)}, None)
    with pytest.raises(InputError, match="a kit of 101 files"):
        sealed({f"f{i}": b"" for i in range(101)}, None)


TRAVERSALS = (
    "../x", "a/../../x", "/etc/passwd", "a//b", "./a", ".hidden", "a/.b", "a\\b", "C:x", "a\0b",
    "a\nb", "", "x" * 101, "/".join("abcdefghi"),
)  # fmt: skip


@pytest.mark.parametrize("name", TRAVERSALS)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot name a file of a kit"):
        check_name(name)
    archive = json.dumps({name: ""}).encode()
    data = kits._head(kits.PLAIN) + hashlib.sha256(archive).digest() + archive
    (tmp_path / "x.kit").write_bytes(data)
    with pytest.raises(InputError, match="cannot name a file of a kit"):
        open_kit(tmp_path / "x.kit", tmp_path / "state" / "kit", None)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "archive", [b"[]", b"{}", b'{"a": 1}', b'{"a": "?"}', b"nope", b"[" * 10**5, b'{"a": null}']
)
def test_an_archive_of_something_else_is_refused(archive: bytes) -> None:
    data = kits._head(kits.PLAIN) + hashlib.sha256(archive).digest() + archive
    with pytest.raises(InputError, match="no files of a kit"):
        unsealed(data, None, "kit")


def test_an_unsealed_kit_has_no_keys_and_a_sealed_one_has(study: Study, tmp_path: Path) -> None:
    """A sealed kit cannot be replaced on its way by one that anybody could make."""
    path = tmp_path / "b.kit"
    seal(content_of(study, {}), path, None)
    assert not open_kit(path, tmp_path / "kit", None).secure
    with pytest.raises(InputError, match="is not sealed but an unlock code was given"):
        read_kit(path, CODE)
    seal(content_of(study), path, None)
    with pytest.raises(InputError, match="is not sealed, which contradicts"):
        read_kit(path, None)
    seal(content_of(study, {}), path, CODE)
    with pytest.raises(InputError, match="is sealed, which contradicts"):
        read_kit(path, CODE)


def test_the_same_kit_may_be_opened_again(kit_file: Path, tmp_path: Path) -> None:
    into = tmp_path / "kit"
    open_kit(kit_file, into, CODE)
    before = (into / "node.key").stat()
    assert open_kit(kit_file, into, CODE).site == "b"
    assert (into / "node.key").stat().st_ino == before.st_ino


def test_another_kit_takes_its_place_whole(study: Study, kit_file: Path, tmp_path: Path) -> None:
    into = tmp_path / "kit"
    old = open_kit(kit_file, into, CODE)
    (study.root / "dynamics.py").write_text("def rhs(x):\n    return x\n")
    seal(content_of(study), kit_file, CODE)
    new = open_kit(kit_file, into, CODE)
    assert set(new.code) == {"dynamics.py"} and not (into / "optics.py").exists()
    assert new.digest == old.digest and new.fingerprint != old.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.kit", "kit", "study"]


def test_a_damaged_opened_kit_is_mended_by_opening_it_again(kit_file: Path, tmp_path: Path) -> None:
    into = tmp_path / "kit"
    open_kit(kit_file, into, CODE)
    (into / "dynamics.py").write_text("evil = True\n")
    assert open_kit(kit_file, into, CODE) == Kit.load(into)


def test_fingerprints_tell_studies_seeds_and_code_apart(study: Study, tmp_path: Path) -> None:
    def of(changed: Study, keys: dict[str, bytes], identity: int = 1) -> str:
        path = tmp_path / "x.kit"
        content = kit_content(shared_files(changed), "b", identity, 3, changed.digest(), keys)
        seal(content, path, CODE)
        return open_kit(path, tmp_path / "kit", CODE).fingerprint

    first = of(study, KEYS)
    assert of(study, KEYS | {"node.key": b"other"}, identity=2) == first
    assert of(study.with_values({"seed": 8}), KEYS) != first
    assert of(study.with_values({"slots": 3}), KEYS) != first
    (study.root / "lenses" / "thin.py").write_text("def f(x):\n    return -2 * x\n")
    assert of(study, KEYS) != first


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda kit: (kit / "dynamics.py").write_text("evil"), "has a changed dynamics.py"),
        (lambda kit: (kit / "numpy.py").write_text("evil"), "has an added numpy.py"),
        (lambda kit: (kit / "node.key").unlink(), "lacks node.key"),
        (lambda kit: (kit / "study.toml").write_text("slots = 3"), "has a changed study.toml"),
        (lambda kit: (kit / MANIFEST).write_text("{}"), "no readable manifest"),
        (lambda kit: (kit / MANIFEST).write_text("[" * 10**5), "no readable manifest"),
        (lambda kit: (kit / MANIFEST).unlink(), "there is no kit in"),
        (lambda kit: (kit / "link.py").symlink_to("/etc/hostname"), "holds links or devices"),
        (lambda kit: os.mkfifo(kit / "pipe"), "holds links or devices"),
    ],
)
def test_a_change_in_an_opened_kit_is_noticed(
    kit_file: Path, tmp_path: Path, change: object, told: str
) -> None:
    kit = open_kit(kit_file, tmp_path / "kit", CODE)
    change(kit.folder)  # type: ignore[operator]
    with pytest.raises(InputError, match=told):
        Kit.load(kit.folder)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("format", 2, "made in format 2, this is format 1"),
        ("site", "../x", "the site's name in"),
        ("identity", -1, "no readable manifest"),
        ("identity", 3, "no readable manifest"),
        ("identity", True, "no readable manifest"),
        ("secure", 1, "no readable manifest"),
        ("secure", False, "does not have the files of a kit"),
        ("study", "0" * 64, "another study than its manifest says"),
        ("files", [], "no readable manifest"),
        ("files", {"../x": "0"}, "cannot name a file"),
        ("files", {"study.toml": 1}, "no readable manifest"),
        ("extra", 1, "no readable manifest"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    kit_file: Path, tmp_path: Path, key: str, value: object, told: str
) -> None:
    kit = open_kit(kit_file, tmp_path / "kit", CODE)
    made = json.loads((kit.folder / MANIFEST).read_text())
    (kit.folder / MANIFEST).write_text(json.dumps(made | {key: value}))
    with pytest.raises(InputError, match=told):
        Kit.load(kit.folder)


def test_another_version_is_refused_with_the_remedy(kit_file: Path, tmp_path: Path) -> None:
    kit = open_kit(kit_file, tmp_path / "kit", CODE)
    made = json.loads((kit.folder / MANIFEST).read_text())
    (kit.folder / MANIFEST).write_text(json.dumps(made | {"version": "9.9"}))
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[deploy\]==9.9'"):
        Kit.load(kit.folder).check_version()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/abs/dynamics.py:rhs", "not below its directory"),
        ("../dynamics.py:rhs", "not below its directory"),
        ("missing.py:rhs", "cannot read .*missing.py"),
        ("broken.py:rhs", "not valid Python"),
    ],
)
def test_code_that_cannot_go_along_is_told(study: Study, name: str, told: str) -> None:
    (study.root / "broken.py").write_text("def (:\n")
    with pytest.raises(InputError, match=told):
        shared_files(study.with_values({"system.name": name}))
