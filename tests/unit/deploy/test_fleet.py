"""One exchange at a time: every site speaks for itself, in time, once, or is not heard."""

import json
import threading
from collections.abc import Iterator

import pytest
from unit.deploy.lab import Intruder, Lab, laboratory, status, until

from fedkoopman.deploy.flower import fleet as fleets
from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.fleet import FlowerFleet
from fedkoopman.deploy.flower.parcels import body_of
from fedkoopman.deploy.wire import Failure


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory(["a", "b", "c"], idle=["c"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet(lab: Lab) -> FlowerFleet:
    made = lab.fleet()
    until(lambda: {"a", "b"} <= set(made.online()))
    return made


@pytest.fixture(autouse=True)
def calm(lab: Lab) -> Iterator[None]:
    yield
    for site in lab.sites.values():
        site.agent.calm()


@pytest.fixture(scope="module")
def intruder(lab: Lab, fleet: FlowerFleet) -> Intruder:
    made = Intruder(lab, "c")
    made.activate()
    return made


def ask(
    fleet: FlowerFleet, sites: str, body: bytes = b"hi", deadline: float = 30
) -> dict[str, object]:
    return dict(fleet.exchange(dict.fromkeys(sites, body), deadline))


class Asking(threading.Thread):
    """An exchange in the background."""

    def __init__(self, fleet: FlowerFleet, sites: str, body: bytes, deadline: float = 30) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, object] = {}
        self._ask = lambda: self.found.update(ask(fleet, sites, body, deadline))
        self.start()

    def run(self) -> None:
        self._ask()


def test_answers_come_as_they_are_given(lab: Lab, fleet: FlowerFleet) -> None:
    assert "c" not in fleet.online(), "enrolled, and not there"
    lab.sites["a"].agent.gate.clear()
    exchange = fleet.exchange({"a": b"1", "b": b"2"}, 60)
    assert next(exchange) == ("b", lab.sites["b"].agent.echo(b"2"))
    lab.sites["a"].agent.gate.set()
    assert list(exchange) == [("a", lab.sites["a"].agent.echo(b"1"))]


def test_who_misses_the_deadline_is_not_given_and_its_reply_is_late(
    lab: Lab, fleet: FlowerFleet
) -> None:
    late, duplicates = fleet.late, fleet.duplicates
    lab.sites["a"].agent.gate.clear()
    assert ask(fleet, "a", b"slot 1", deadline=0.3) == {}
    lab.sites["a"].agent.gate.set()
    found = ask(fleet, "ab", b"slot 2")
    assert found == {name: lab.sites[name].agent.echo(b"slot 2") for name in "ab"}
    assert (fleet.late, fleet.duplicates) == (late + 1, duplicates)


def test_a_site_that_stays_silent_is_asked_again_and_answers_once(
    lab: Lab, fleet: FlowerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may be lost between the server, which hands it out once, and the site."""
    monkeypatch.setattr(fleets, "SILENT", 0.4)
    monkeypatch.setattr(fleets, "LOOK", 0.05)
    agent, before = lab.sites["a"].agent, fleet.duplicates + fleet.late
    agent.asked.clear()
    agent.gate.clear()
    exchange = fleet.exchange({"a": b"long work", "b": b"2"}, 60)
    assert next(exchange)[0] == "b"
    threading.Timer(1.0, agent.gate.set).start()
    assert list(exchange) == [("a", agent.echo(b"long work"))]
    assert ask(fleet, "a", b"next") == {"a": agent.echo(b"next")}
    assert agent.asked.count(b"long work") > 1
    assert fleet.duplicates + fleet.late > before


def test_a_site_cannot_speak_for_another(lab: Lab, fleet: FlowerFleet) -> None:
    lab.sites["a"].agent.answer = lab.sites["b"].agent.echo
    lab.sites["b"].agent.answer = lambda body: b"\x00 nonsense"
    found = ask(fleet, "ab")
    assert found["a"] == Failure("speaks for 'b'", broken=True)
    assert isinstance(found["b"], Failure) and found["b"].broken
    assert found["b"].reason.startswith("sends a malformed reply")


def test_an_agent_that_does_not_answer_is_a_failure_at_once(lab: Lab, fleet: FlowerFleet) -> None:
    def away(body: bytes) -> bytes:
        raise ConnectionRefusedError(111, "Connection refused")

    lab.sites["a"].agent.answer = away
    found = ask(fleet, "a")["a"]
    assert found == Failure("the site agent does not answer: Connection refused")


def test_a_reply_that_is_sent_twice_counts_once(fleet: FlowerFleet, intruder: Intruder) -> None:
    """Sent again as it was, given again in other words, and given once its time is over."""
    asking = Asking(fleet, "c", b"once")
    message = intruder.receive()
    reply = intruder.echo(message)
    intruder.send(reply)
    asking.join(30)
    assert json.loads(asking.found["c"]) == {"site": "c", "echo": "once"}  # type: ignore[arg-type]
    assert status(lambda: intruder.send(reply)) == 410, "nobody waits for it"
    assert status(lambda: intruder.send(intruder.echo(message))) == 410
    again = Asking(fleet, "c", b"twice")
    second = intruder.receive()
    assert body_of(second.content) == b"twice"
    assert status(lambda: intruder.send(reply)) == 410, "nor as an answer to the next request"
    intruder.send(intruder.echo(second))
    again.join(30)
    assert json.loads(again.found["c"])["echo"] == "twice"  # type: ignore[arg-type]


def test_a_node_that_started_anew_is_asked_again_and_answers_once(
    fleet: FlowerFleet, intruder: Intruder
) -> None:
    duplicates, late = fleet.duplicates, fleet.late
    exchange = fleet.exchange({"b": b"", "c": b"work"}, 60)
    assert next(exchange)[0] == "b"
    first = intruder.receive()
    intruder.activate()
    rest: list[tuple[str, bytes | Failure]] = []
    asking = threading.Thread(target=lambda: rest.extend(exchange), daemon=True)
    asking.start()
    second = intruder.receive()
    assert body_of(second.content) == body_of(first.content)
    intruder.send(intruder.echo(second))
    asking.join(60)
    assert [site for site, _ in rest] == ["c"]
    intruder.send(intruder.echo(first))
    ask(fleet, "a")
    assert (fleet.duplicates, fleet.late) == (duplicates + 1, late)


def test_replies_of_another_form_are_refused_and_hold_nobody_up(
    lab: Lab, fleet: FlowerFleet, intruder: Intruder
) -> None:
    many = flower.RecordDict({str(n): flower.ConfigRecord({"x": n}) for n in range(5)})
    other = flower.RecordDict({"weights": flower.ConfigRecord({"body": b""})})
    for content, reason in (
        (many, "sends a reply of other parts"), (other, "not one of fedkoopman's"),
    ):  # fmt: skip
        asking = Asking(fleet, "c", b"")
        intruder.send(intruder.echo(intruder.receive(), content=content))
        asking.join(30)
        assert reason in str(asking.found["c"])
    # One that is announced and never sent.
    exchange = fleet.exchange({"a": b"hi", "c": b""}, 60)
    lab.sites["a"].agent.gate.clear()
    announced = threading.Thread(
        target=lambda: (
            intruder.announce(intruder.echo(intruder.receive())), lab.sites["a"].agent.gate.set()
        )
    )  # fmt: skip
    announced.start()
    assert next(exchange) == ("a", lab.sites["a"].agent.echo(b"hi"))
    exchange.close()
    announced.join()
    assert ask(fleet, "ab") == {name: lab.sites[name].agent.echo(b"hi") for name in "ab"}


def test_a_reply_that_stops_halfway_is_asked_for_again(
    fleet: FlowerFleet, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "STALLED", 0.2)
    monkeypatch.setattr(fleets, "LOOK", 0.05)
    asking = Asking(fleet, "c", b"halfway")
    intruder.announce(intruder.echo(intruder.receive()))
    intruder.send(intruder.echo(intruder.receive()))
    asking.join(30)
    assert json.loads(asking.found["c"])["echo"] == "halfway"  # type: ignore[arg-type]


def test_a_revoked_site_is_neither_listed_nor_heard(lab: Lab, fleet: FlowerFleet) -> None:
    lab.sites["b"].agent.gate.clear()
    exchange = fleet.exchange({"a": b"", "b": b""}, 60)
    assert next(exchange)[0] == "a"
    lab.revoked.add("b")
    assert next(exchange) == ("b", Failure("it may no longer take part"))
    assert "b" not in fleet.online()
    assert lab.said[-1] == "shut out b"
    lab.sites["b"].agent.gate.set()
    until(lambda: any("no site that may take part has this key" in s for s in lab.sites["b"].said))
    lab.sites["b"].stop.set()


def test_nothing_is_kept_of_what_was_exchanged(lab: Lab, fleet: FlowerFleet) -> None:
    for n in range(50):
        assert len(ask(fleet, "a", b"%d" % n)) == 1
    fleet._link.forget(list(fleet._sent))
    state = lab.link._state
    assert len(state.object_store) == 0
    assert state.message_ins_store == {} and state.message_res_store == {}
    assert state.message_ins_id_to_message_res_id == {}
    assert state._object_push_sessions == {} and state._object_push_session_by_root == {}
