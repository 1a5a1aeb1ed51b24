"""What people and monitors are shown of a served run."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.cli import main
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.server.metrics import CONTENT_TYPE, metrics_text, serve_metrics
from fedkoopman.deploy.server.server_state import ServerState, Standing
from fedkoopman.deploy.server.status import (
    StatusFile,
    alive,
    days_left,
    read_status,
    readmission_requests,
)
from fedkoopman.errors import InputError

WHEN = "2031-01-02T03:04:05+00:00"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with a status."""
    sites = [Enrolled("lab-a", 0, "", ""), Enrolled("lab-b", 1, "", ""),
             Enrolled("lab-c", 2, "", "", WHEN)]  # fmt: skip
    standings = {
        "lab-a": Standing(included=6, buffered=300, trained=1200, updates=4, last_seen=WHEN),
        "lab-b": Standing(rejected=3, last_rejection="sends a model that is not finite",
                          strikes=3, set_aside=5),
    }  # fmt: skip
    state = ServerState(7, None, standings)  # type: ignore[arg-type]
    seen = {"lab-a": {"online": True, "missed": 0, "trouble": ""}}
    about = {"study": "pendulum", "slots": 150}
    more = {"late": 2, "duplicates": 1, "certificate_expires": WHEN}
    StatusFile(tmp_path, about).write("polling", state, Roster("", False, tuple(sites)), seen, more)
    return tmp_path


def test_the_status_tells_of_every_site(run: Path) -> None:
    found = read_status(run)
    assert (found["slot"], found["slots"], found["step"]) == (7, 150, "polling")
    assert list(found["sites"]) == ["lab-a", "lab-b", "lab-c"]
    assert found["sites"]["lab-a"]["online"] and not found["sites"]["lab-b"]["online"]
    assert found["sites"]["lab-a"]["trained_samples"] == 1200
    assert found["sites"]["lab-c"]["revoked"] == WHEN
    assert [path.name for path in run.iterdir()] == ["status.json"]
    assert alive(found)
    assert not alive(found | {"step": "finished"})
    assert not alive(found | {"pid": 2**22 + os.getpid()})


def test_it_is_shown_as_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "pendulum: slot 7 of 150, polling" in shown
    assert "SET ASIDE" in shown and "revoked" in shown and "1,200" in shown
    assert "last rejection: lab-b sends a model that is not finite" in shown
    assert "--readmit lab-b" in shown
    assert "replies too late: 2, duplicate: 1" in shown
    assert "warning" not in shown  # the certificate holds for long


def test_a_certificate_that_ends_soon_is_warned_about(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "status.json"
    text = path.read_text()
    for when, words in (("2001-01-01T00:00:00+00:00", "HAS EXPIRED"), (_in_days(3), "expires in")):
        path.write_text(text.replace(f'"certificate_expires": "{WHEN}"',
                                     f'"certificate_expires": "{when}"'))  # fmt: skip
        assert main(["status", str(run)]) == 0
        assert words in capsys.readouterr().out
    assert days_left("") is None


def _in_days(days: float) -> str:
    from datetime import UTC, datetime, timedelta

    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def test_json_has_all_of_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run), "--json"]) == 0
    told, found = json.loads(capsys.readouterr().out), read_status(run)
    assert told["directory"] == str(run) and isinstance(told["running"], bool)
    assert {**told["sites"]["lab-b"], "state": 0} == {**found["sites"]["lab-b"], "state": 0}
    assert told["sites"]["lab-b"]["state"] == "set aside"


def test_a_wish_to_take_a_site_back_is_left_for_the_server(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(run), "--readmit", "lab-b"]) == 0
    assert list(readmission_requests(run)) == ["lab-b"]
    assert main(["status", str(run), "--readmit", "../lab-b"]) == 2
    assert "unknown site" in capsys.readouterr().err
    (run / "readmit" / "junk.json").write_text("{")
    assert (
        list(readmission_requests(run)) == ["lab-b"]
        and not (run / "readmit" / "junk.json").exists()
    )


def test_a_site_shows_its_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / ".fedkoopman" / "lab-a"
    (state / "kit").mkdir(parents=True)
    about: dict[str, Any] = {"site": "lab-a", "buffered": 1500, "segments": 5, "trained": 300,
                             "last_request": WHEN, "dropped": ["swing 3: too short"]}  # fmt: skip
    (state / "status.json").write_text(json.dumps(about))
    assert main(["status", str(state)]) == 0
    shown = capsys.readouterr().out
    assert "samples that wait" in shown and "1,500" in shown and "swing 3: too short" in shown
    assert main(["status", str(state), "--readmit", "lab-a"]) == 2
    assert "run directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, message",
    [(None, "there is no"), ("{", "is damaged"), ("[]", "is damaged"), ("{}", "another version")],
)
def test_what_is_no_status_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "status.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_status(tmp_path)


def test_metrics_are_in_prometheus_format(run: Path) -> None:
    lines = metrics_text(read_status(run)).splitlines()
    assert "fedkoopman_slot 7" in lines
    assert "fedkoopman_late_total 2" in lines
    assert 'fedkoopman_site_trained_samples_total{site="lab-a"} 1200' in lines
    assert 'fedkoopman_site_set_aside{site="lab-b"} 1' in lines
    assert 'fedkoopman_site_online{site="lab-b"} 0' in lines
    assert 'fedkoopman_site_last_seen_seconds{site="lab-a"} 1925089445' in lines
    assert not any("last_seen_seconds{" in line and "lab-b" in line for line in lines)
    for line in lines:
        assert line.startswith("# ") or len(line.split(" ")) == 2, line
    assert len({line for line in lines if line.startswith("# TYPE")}) == sum(
        line.startswith("# HELP") for line in lines
    )
    odd = metrics_text({"sites": {'a"\\\n': {"online": True}}})
    assert 'site="a\\"\\\\\\n"' in odd


def test_metrics_are_served_on_loopback_and_nothing_else(run: Path) -> None:
    server = serve_metrics(run / "status.json", 0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        root = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{root}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == metrics_text(read_status(run))
        asked = [f"{root}/", f"{root}/metrics/../status.json", f"{root}/metrics?x=1",
                 urllib.request.Request(f"{root}/metrics", data=b"x")]  # fmt: skip
        for one in asked:
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(one)
            assert refusal.value.code in (404, 501)
            refusal.value.close()
        (run / "status.json").unlink()
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(f"{root}/metrics")
        assert refusal.value.code == 503
        refusal.value.close()
        with pytest.raises(InputError, match="choose another port"):
            serve_metrics(run / "status.json", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
