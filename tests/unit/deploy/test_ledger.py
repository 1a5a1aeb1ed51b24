"""The ledger: everything that left, before it left; readable while the agent runs."""

import csv
import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedkoopman.cli import main
from fedkoopman.cli.status import instant, ledger
from fedkoopman.deploy.site.ledger import REMEMBERED, Ledger, ledger_entries, ledger_totals
from fedkoopman.deploy.site.store import Store, StoreError
from fedkoopman.deploy.wire import Acknowledged, Answered, Evaluated, Polled, Refused
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message

MODEL = {"operator": np.zeros((3, 3)), "encoder.0": np.zeros((3, 2))}
ACKNOWLEDGED = Acknowledged("lab", 3)
POLLED = Polled("lab", 4, 1200, 3)
TRAINED = Answered("lab", 4, "abc", 1200, Message("update", MODEL))
EVALUATED = Evaluated("lab", 3, "abd", 7, {"l1": 1.0, "l2": 2.0}, {"states": np.zeros(2)}, {"a": 1})
REFUSED = Refused("lab", "no")


def test_a_row_says_what_left_to_whom_and_how_much(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        Ledger(store).write("server:1", [ACKNOWLEDGED, EVALUATED, POLLED], b"bytes")
        Ledger(store).write("server:1", [TRAINED], b"many bytes")
        first, second = ledger_entries(tmp_path)  # while the store is open
    assert first.kinds == "acknowledged + evaluated + polled"
    assert first.words == (
        "slot 3 is heard of; 2 mean scores over 7 held-out windows, sums of errors, 2 numbers, "
        "tables of errors by steps ahead; 1,200 samples in 3 segments wait"
    )
    assert (first.peer, first.slot, first.base, first.bytes) == ("server:1", 4, "abd", 5)
    assert first.digest == hashlib.sha256(b"bytes").hexdigest()
    assert abs(datetime.now(UTC) - datetime.fromisoformat(first.time)) < timedelta(minutes=1)
    assert second.words == "update of 15 numbers, from 1,200 samples"
    assert ledger_totals([first, second, second]) == {
        "acknowledged + evaluated + polled": (1, 5),
        "update": (2, 20),
    }


def test_what_cannot_be_written_must_not_leave(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        book = Ledger(store)
        book.write("s", [POLLED], b"1")
        with store.looking() as c:
            ((used,),) = c.execute("PRAGMA page_count")
            c.execute(f"PRAGMA max_page_count = {used}")
        with pytest.raises(StoreError, match="full"):
            for _ in range(200):
                book.write("s" * 1000, [POLLED], b"2")
        written = len(ledger_entries(tmp_path))
        book.write("s" * 3000, [REFUSED], b"3")  # a refusal may go, and is remembered
        assert len(ledger_entries(tmp_path)) == written
        with store.looking() as c:
            c.execute("PRAGMA max_page_count = 100000")
        book.write("s", [POLLED], b"4")
        kinds = [entry.kinds for entry in ledger_entries(tmp_path)[written:]]
    assert kinds == ["refused", "polled"]
    assert REMEMBERED >= 100


def test_a_flood_is_one_row(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        book = Ledger(store)
        for _ in range(1234):
            book.count_refusal()
        book.write("s", [REFUSED], b"1")
        book.write("s", [REFUSED], b"1")
    words = [entry.words for entry in ledger_entries(tmp_path)]
    assert words == ["refused 1,234 messages that came too fast", "refused: no", "refused: no"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with Store(tmp_path / "state") as store:
        Ledger(store).write("10.0.0.1:8443", [ACKNOWLEDGED, POLLED], b"x" * 1234)
        Ledger(store).write("10.0.0.1:8443", [TRAINED], b"y" * 5678)
    return tmp_path / "state"


def test_the_table_and_its_totals(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger(state=state)
    told = capsys.readouterr().out
    for part in ("10.0.0.1:8443", "5,678", "update of 15 numbers", "acknowledged + polled"):
        assert part in told
    ledger(state=state, since="2100-01-01")
    assert capsys.readouterr().out == "nothing has left this site since then\n"


def test_the_verb_of_the_program(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "--state", str(state), "--since", "1d", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2
    assert main(["ledger", "--state", str(state / "no")]) == 2
    assert capsys.readouterr().err.startswith("error: there is no ")


def test_all_columns_as_json_and_csv(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "--state", str(state), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["entries"]
    ledger(state=state, as_csv=True)
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["bytes"] for row in rows] == [1234, 5678]
    assert [line["bytes"] for line in lines] == ["1234", "5678"]
    assert list(lines[0]) == list(rows[0])
    with pytest.raises(InputError, match="both --json and --csv"):
        ledger(state=state, as_csv=True, as_json=True)


def test_an_empty_or_missing_ledger_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(tmp_path / "s").close()
    ledger(state=tmp_path / "s")
    assert capsys.readouterr().out == "nothing has left this site yet\n"
    with pytest.raises(InputError, match=r"there is no .*store.sqlite: name the site's state"):
        ledger(state=tmp_path / "nowhere")
    with pytest.raises(InputError, match="does not exist"):
        ledger(site=tmp_path / "site.toml")


def test_the_state_is_found_beside_the_site_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text(
        'name = "lab"\n[data]\nfiles = "*.csv"\n[sensor]\nkind = "identity"\n'
    )
    with Store(tmp_path / ".fedkoopman" / "lab") as store:
        Ledger(store).write("s", [POLLED], b"1")
        ledger(site=tmp_path / "site.toml")
    assert "1,200 samples" in capsys.readouterr().out


NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T12:30", datetime(2026, 5, 1, 12, 30, tzinfo=UTC)),
        ("2026-05-01T12:30+02:00", datetime(2026, 5, 1, 10, 30, tzinfo=UTC)),
        ("90m", NOW - timedelta(minutes=90)),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(weeks=2)),
    ],
)
def test_since_when(text: str, expected: datetime) -> None:
    assert instant(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "7x", "-1d", "2026-13-01", "999999w"])
def test_since_what_is_no_instant(text: str) -> None:
    with pytest.raises(InputError, match=r"--since is .*: give a date as"):
        instant(text, NOW)
