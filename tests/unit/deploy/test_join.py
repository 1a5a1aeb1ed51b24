"""Before a site joins: the right kit, the right server, and somebody's consent."""

import json
from pathlib import Path

import pytest
from reference.examples import write_example

from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.deploy.site.join import Joining, agreed, asked_for, check_server, consent, prepare
from fedkoopman.errors import InputError

SERVER = "127.0.0.1:8443"


def no_code(path: Path) -> str:
    raise AssertionError("no code is needed")


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three laboratories with kits, all in one place."""
    folder = tmp_path_factory.mktemp("field") / "swings"
    write_example(folder)
    provision(folder / "study.toml", None)
    return folder


@pytest.fixture
def codes(field: Path) -> dict[str, str]:
    lines = (field / "fleet" / "codes.txt").read_text().splitlines()
    return dict(line.split() for line in lines)


def ready(field: Path, state: Path, codes: dict[str, str], lab: str = "lab-a") -> Joining:
    return prepare(
        field / lab / "site.toml", SERVER, kit=field / "fleet" / "kits" / f"{lab}.kit",
        state=state, insecure=False, code=lambda _: codes[lab],
    )  # fmt: skip


def test_a_kit_is_opened_once_and_its_code_not_asked_for_again(
    field: Path, tmp_path: Path, codes: dict[str, str]
) -> None:
    first = ready(field, tmp_path / "state", codes)
    assert (first.kit.site, first.kit.identity, first.kit.clients) == ("lab-a", 0, 3)
    again = prepare(
        field / "lab-a" / "site.toml", SERVER, kit=field / "fleet" / "kits" / "lab-a.kit",
        state=tmp_path / "state", insecure=False, code=no_code,
    )  # fmt: skip
    without = prepare(
        field / "lab-a" / "site.toml", SERVER, kit=None, state=tmp_path / "state", insecure=False,
        code=no_code,
    )  # fmt: skip
    assert first.kit == again.kit == without.kit
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "kit" / "node.key").stat().st_mode & 0o777 == 0o600


def test_consent_is_to_exactly_what_the_kit_says(
    field: Path, tmp_path: Path, codes: dict[str, str]
) -> None:
    site = ready(field, tmp_path / "state", codes)
    assert not agreed(site)
    consent(site)
    assert agreed(site)
    kept = json.loads((tmp_path / "state" / "consent.json").read_text())
    assert kept["fingerprint"] == site.kit.fingerprint
    (tmp_path / "state" / "consent.json").write_text("{")
    assert not agreed(site)


@pytest.mark.parametrize("change", ["study", "code"])
def test_after_a_change_consent_is_asked_anew(tmp_path: Path, change: str) -> None:
    """A kit of a changed study, or of changed dynamics, is another one."""
    folder = tmp_path / "swings"
    write_example(folder)
    codes = provision(folder / "study.toml", None).codes
    first = ready(folder, tmp_path / "state", codes)
    consent(first)
    file = folder / ("study.toml" if change == "study" else "dynamics.py")
    text = file.read_text()
    file.write_text(
        text.replace("epochs = 10", "epochs = 11") if change == "study" else text + "#\n"
    )
    assert not provision(folder / "study.toml", None).codes
    second = ready(folder, tmp_path / "state", codes)
    assert second.kit.fingerprint != first.kit.fingerprint
    assert not agreed(second)


def test_it_is_told_what_is_asked_for(field: Path, tmp_path: Path, codes: dict[str, str]) -> None:
    said = "\n".join(asked_for(ready(field, tmp_path / "state", codes, "lab-c")))
    for words in ("lab-c, place 3 of 3", "dynamics.py", "sensor.py", "150 slots", SERVER, "never"):
        assert words in said


@pytest.mark.parametrize(
    "server", ["", "host", "host:", ":8443", "host:0", "host:70000", "host:x", "https://host:8443",
               "user@host:8443", "ho st:8443", "host:8443/v1"],
)  # fmt: skip
def test_a_server_is_a_host_and_a_port(server: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        check_server(server)


@pytest.mark.parametrize(
    ("server", "host"),
    [("a.example.org:1", "a.example.org"), ("[::1]:8443", "::1"), ("10.0.0.1:65535", "10.0.0.1")],
)
def test_the_host_of_a_server(server: str, host: str) -> None:
    assert check_server(server) == host


class TestRefusals:
    def test_of_another_sites_kit(self, field: Path, tmp_path: Path, codes: dict[str, str]) -> None:
        with pytest.raises(InputError, match=r"for lab-b and .* is called lab-a"):
            prepare(
                field / "lab-a" / "site.toml", SERVER, kit=field / "fleet" / "kits" / "lab-b.kit",
                state=tmp_path, insecure=False, code=lambda _: codes["lab-b"],
            )  # fmt: skip

    def test_of_a_missing_kit(self, field: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no kit for lab-a: put lab-a\.kit"):
            prepare(
                field / "lab-a" / "site.toml", SERVER, kit=None, state=tmp_path / "none",
                insecure=False, code=no_code,
            )  # fmt: skip

    def test_of_going_without_the_key(
        self, field: Path, tmp_path: Path, codes: dict[str, str]
    ) -> None:
        ready(field, tmp_path, codes)
        with pytest.raises(InputError, match="leave out --insecure"):
            prepare(
                field / "lab-a" / "site.toml", SERVER, kit=None, state=tmp_path, insecure=True,
                code=no_code,
            )  # fmt: skip

    @pytest.mark.parametrize(
        ("server", "insecure", "cause"),
        [
            ("127.0.0.1:8443", False, "add --insecure"),
            ("learn.example.org:8443", True, "this machine only"),
            ("10.1.2.3:8443", True, "this machine only"),
        ],
    )
    def test_of_an_insecure_fleet_elsewhere(
        self, tmp_path: Path, server: str, insecure: bool, cause: str
    ) -> None:
        folder = tmp_path / "swings"
        write_example(folder)
        provision(folder / "study.toml", None, insecure=True)
        site, kit = folder / "lab-a" / "site.toml", folder / "fleet" / "kits" / "lab-a.kit"
        prepare(site, SERVER, kit=kit, state=tmp_path / "s", insecure=True, code=no_code)
        with pytest.raises(InputError, match=cause):
            prepare(site, server, kit=None, state=tmp_path / "s", insecure=insecure, code=no_code)

    def test_of_another_version(self, field: Path, tmp_path: Path, codes: dict[str, str]) -> None:
        site = ready(field, tmp_path, codes)
        manifest = site.kit.folder / "manifest.json"
        about = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**about, "version": "9.9.9"}))
        with pytest.raises(InputError, match=r"fedkoopman\[deploy\]==9\.9\.9"):
            prepare(
                field / "lab-a" / "site.toml", SERVER, kit=None, state=tmp_path, insecure=False,
                code=no_code,
            )  # fmt: skip
