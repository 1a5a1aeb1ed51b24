"""Samples through a real broker: none is lost or counted twice, whoever is killed."""

import json
import logging
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from unit.deploy.mqtt_lab import (
    SETTINGS,
    Broker,
    Publisher,
    free_port,
    mqtt_site,
    needs_broker,
    payload,
    until,
)
from unit.deploy.site_lab import Process, make_study, recording

from fedkoopman.cli import main
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.segments import segments
from fedkoopman.deploy.provisioning.certificates import authority, server_certificate
from fedkoopman.deploy.site import mqtt as receiving_module
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.estimating import Estimating
from fedkoopman.deploy.site.live import Live
from fedkoopman.deploy.site.mqtt import Receiver
from fedkoopman.deploy.site.mqtt_journal import Arrived
from fedkoopman.deploy.site.store import Store, StoreError, reading
from fedkoopman.deploy.wire import Acknowledge, Poll, Polled
from fedkoopman.errors import InputError

TOPIC = "lab/pendulum"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker")
    yield made
    made.kill()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as store:
        yield store


@contextmanager
def receiving(site: SiteFile, store: Store) -> Iterator[Receiver]:
    """A receiver in a thread, as an agent has it, which the broker knows."""
    receiver, stop = Receiver(site, store, 0.05), threading.Event()
    thread = threading.Thread(target=receiver.run, args=(stop,))
    thread.start()
    try:
        yield receiver
    finally:
        stop.set()
        thread.join(30)


def subscribed(store: Store) -> Callable[[], bool]:
    def done() -> bool:
        with store.looking() as c:
            return bool(c.execute("SELECT count(*) FROM mqtt_session").fetchone()[0])

    return done


def samples(site: SiteFile) -> list[int]:
    """The numbers of all samples in files, by their times."""
    lines = [
        line
        for path in sorted((site.folder / "data").glob("*.csv"))
        for line in path.read_text().splitlines()[1:]
    ]
    return [round(float(line.split(",")[0]) / 0.05) for line in lines]


@needs_broker
def test_what_is_published_is_taken_and_what_is_bad_is_told(
    tmp_path: Path, broker: Broker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fedkoopman.agent")
    site = mqtt_site(tmp_path / "lab-a", broker.port, silence=0.5)
    bad = [b"no JSON", b"[]", b"7", b'{"time": 99}', b'{"time": 99, "x": NaN, "v": 0}',
           b'{"time": null, "x": 1, "v": 0}', b'{"time": 99, "x": "1", "v": 0}',
           payload(1, x=5.0), b'{"time": 99, "x": 1e300, "v": 0}', b"\xff"]  # fmt: skip
    with receiving(site, store) as receiver:
        until(subscribed(store))
        sender = Publisher(broker.port, TOPIC)
        swing = recording(3, 60)
        for n, (x, v) in enumerate(swing):
            sender.send(n, payload(n, x=x, v=v))
        for n, content in enumerate(bad):
            sender.send(1000 + n, content)
        sender.finish()
        until(lambda: receiver.status()["mqtt_set_aside"] == len(bad))
        until(lambda: len(samples(site)) == 60)
        status = receiver.status()
    assert (status["mqtt"], status["mqtt_samples"]) == (f"connected to 127.0.0.1:{broker.port}", 60)
    lines = [r.getMessage() for r in caplog.records if "set aside" in r.getMessage()]
    assert len(lines) == len(bad) and not any("\n" in line for line in lines)
    assert [line.partition(": ")[2] for line in status["messages_set_aside"]] == [
        line.partition("set aside: ")[2] for line in lines
    ]
    study = make_study(tmp_path, sites__arrivals="live")
    intake = Live(site, study, store, Estimating(site, study), 0.0)
    assert intake.scan()
    assert Buffer(store).account().delivered == 60
    assert intake.aside() == {}


@needs_broker
def test_nothing_is_acknowledged_before_it_is_on_the_disk(
    tmp_path: Path, broker: Broker, store: Store,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A disk that is full: the broker keeps the messages, and delivers them to the next one."""
    site = mqtt_site(tmp_path / "lab-a", broker.port, silence=0.3)
    with receiving(site, store) as receiver:
        until(subscribed(store))
        tried = threading.Event()

        def full(messages: Any) -> Any:
            tried.set()
            raise StoreError("cannot use the store: database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(receiver._journal, "keep", full)
            sender = Publisher(broker.port, TOPIC)
            for n in range(5):
                sender.send(n, payload(n))
            sender.finish()
            assert tried.wait(30)
            until(lambda: "disk is full; what is not kept is not acknowledged" in caplog.text)
            assert receiver.status()["mqtt_samples"] == 0
        until(lambda: receiver.status()["mqtt_samples"] == 5)  # the same one goes on
        monkeypatch.setattr(receiver._journal, "keep", full)  # until its end
        tried.clear()
        sender.send(5, payload(5))
        sender.finish()
        assert tried.wait(30)
    until(lambda: "Client fedkoopman-lab-a disconnected" in broker.log())  # it has heard all
    with receiving(site, store) as receiver:
        until(lambda: len(samples(site)) == 6)
    assert samples(site) == [0, 1, 2, 3, 4, 5]


@needs_broker
def test_a_broker_that_is_away_or_forgetful_is_told(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "fedkoopman.agent")
    monkeypatch.setattr(receiving_module, "LONGEST_WAIT", 0.2)
    monkeypatch.setattr(receiving_module, "FIRST_WAIT", 0.1)
    port = free_port()
    with receiving(mqtt_site(tmp_path / "lab-a", port), store) as receiver:
        until(lambda: "refused" in receiver.status()["mqtt"])
        monkeypatch.setattr("unit.deploy.mqtt_lab.free_port", lambda: port)
        broker = Broker(tmp_path / "broker", "persistence false\n")
        until(subscribed(store))
        broker.kill()
        until(lambda: "no connection" in receiver.status()["mqtt"])
        broker.start()
        until(lambda: "the broker has forgotten this site's session" in caplog.text)
        sender = Publisher(port, TOPIC)
        until(lambda: receiver.status()["mqtt"].startswith("connected"))
        sender.send(0, payload(0))
        until(lambda: receiver.status()["mqtt_samples"] == 1)
        sender.client.publish(TOPIC, payload(1), qos=0)
        until(lambda: "is published with QoS 0" in caplog.text)
        broker.kill()


@needs_broker
def test_a_topic_that_is_no_longer_wanted_is_unsubscribed(
    tmp_path: Path, broker: Broker, store: Store
) -> None:
    with receiving(mqtt_site(tmp_path / "lab-a", broker.port, topics=["lab/#"]), store):
        until(subscribed(store))
    site = mqtt_site(tmp_path / "lab-a", broker.port, topics=[TOPIC])
    with receiving(site, store) as receiver:
        until(lambda: receiver._journal.subscribed() == [TOPIC])
        other = Publisher(broker.port, "lab/other", "other")
        other.send(0, payload(0))
        other.finish()
        sender = Publisher(broker.port, TOPIC)
        sender.send(1, payload(1))
        until(lambda: receiver.status()["mqtt_samples"] == 1)
        sender.finish()
        assert receiver._journal.open_topics() == [TOPIC]


@needs_broker
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's socket
def test_with_tls_and_a_password_which_stands_in_no_log(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(receiving_module, "LONGEST_WAIT", 0.2)
    monkeypatch.setenv("LAB_PASSWORD", "open sesame")
    folder, site_folder = tmp_path / "broker", tmp_path / "lab-a"
    folder.mkdir()
    site_folder.mkdir()
    now = datetime.now(UTC)
    key, certificate = authority("lab", now)
    server_key, server = server_certificate(key, certificate, ["127.0.0.1"], now)
    (folder / "key.pem").write_bytes(server_key)
    (folder / "server.pem").write_bytes(server)
    (site_folder / "ca.pem").write_bytes(certificate)
    passwords = folder / "passwords"
    passwords.write_text("lab-a:open sesame\n")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True, timeout=30)
    broker = Broker(
        folder,
        f"certfile {folder}/server.pem\nkeyfile {folder}/key.pem\n"
        f"allow_anonymous false\npassword_file {passwords}\n",
    )
    try:
        (site_folder / "secret").write_text("let me in\n")
        secret = {"tls": True, "ca": "ca.pem", "username": "lab-a"}
        wrong = mqtt_site(site_folder, broker.port, password_file="secret", **secret)
        with receiving(wrong, store) as receiver:
            until(lambda: "the broker refuses us: Not authorized" in receiver.status()["mqtt"])
        right = mqtt_site(site_folder, broker.port, password_variable="LAB_PASSWORD", **secret)
        with receiving(right, store) as receiver:
            until(lambda: receiver.status()["mqtt"] == f"connected to 127.0.0.1:{broker.port}")
        distrusted = mqtt_site(site_folder, broker.port, **secret | {"ca": ""})
        with receiving(distrusted, store) as receiver:
            until(lambda: "CERTIFICATE_VERIFY_FAILED" in receiver.status()["mqtt"])
    finally:
        broker.kill()
    assert "let me in" not in caplog.text and "sesame" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"username": "a", "password_variable": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE, which is"),
        ({"username": "a", "password_file": "nowhere"}, "cannot read mqtt.password_file: No such"),
        ({"username": "a", "password_file": "empty"}, "holds no line of text"),
        ({"tls": True, "ca": "nowhere"}, "cannot be used: "),
        ({"tls": True, "ca": "empty"}, "cannot be used: "),
    ],
)
def test_secrets_that_cannot_be_read_are_told_before_anything_begins(
    tmp_path: Path, store: Store, settings: dict[str, Any], said: str
) -> None:
    site = mqtt_site(tmp_path / "lab-a", 1, **settings)
    (tmp_path / "lab-a" / "empty").write_text("")
    with pytest.raises(InputError, match=re.escape(said)):
        Receiver(site, store, 0.05)


@pytest.mark.deploy
@needs_broker
def test_an_agent_takes_what_is_published_and_its_status_tells(
    tmp_path: Path, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: published, kept by an agent that is killed, taken, counted, trained on."""
    site = mqtt_site(tmp_path / "lab-a", broker.port, "held_out = 0.0", silence=0.5)
    study = make_study(tmp_path, sites__arrivals="live")
    agent = Process(tmp_path, site, study, tmp_path / "compiled")
    try:
        agent.start()
        assert agent.ask(Poll(1))[0] == Polled("lab-a", 1, 0, 0)
        until(lambda: "MQTT: connected" in agent.log())
        sender = Publisher(broker.port, TOPIC)
        for n, (x, v) in enumerate(recording(3, 80)):
            sender.send(n, payload(n, x=x, v=v))
            if n == 50:
                agent.end(signal.SIGKILL)
                agent.start()
        sender.send(1000, b"nonsense")
        sender.finish()

        def told() -> dict[str, Any]:
            found: dict[str, Any] = json.loads((agent.state / "status.json").read_text())
            return found

        until(lambda: told().get("delivered") == 80, 60)
        polled = agent.ask(Acknowledge(1, 0), Poll(2))[1]
        assert isinstance(polled, Polled) and polled.buffered == 80
        assert (told()["mqtt_samples"], told()["mqtt_set_aside"]) == (80, 1)
        assert main(["status", str(agent.state)]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"samples from MQTT +80", shown)
        assert "message set aside: 1 of lab/pendulum: begins b'nonsense' and is no JSON" in shown
        assert agent.end() == 0
    finally:
        agent.remove()


def test_a_file_that_cannot_be_written_is_told_and_written_later(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving_module, "AFTER_FAILURE", 0.02)
    site = mqtt_site(tmp_path / "lab-a", free_port())  # nobody listens there
    (site.folder / "data").write_text("in the way")
    with receiving(site, store) as receiver:
        receiver._journal.keep([Arrived(TOPIC, payload(n)) for n in range(40)])
        receiver._to_write = True
        until(lambda: "cannot write" in receiver.status()["mqtt"])
        (site.folder / "data").unlink()
        until(lambda: len(list(site.folder.glob("data/*.csv"))) == 1)
        until(lambda: "cannot write" not in receiver.status()["mqtt"])
    assert samples(site) == list(range(40))
    told = [line for line in caplog.messages if "cannot write" in line]
    assert len(told) == 1  # not again and again


def test_a_study_that_takes_recordings_only_refuses_the_section(tmp_path: Path) -> None:
    site = mqtt_site(tmp_path / "lab-a", 1)
    with pytest.raises(InputError, match=r'has sites\.arrivals = "drawn"'):
        Agent(site, make_study(tmp_path), 0, 1, tmp_path / "state")


@needs_broker
@pytest.mark.deploy
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kills_of_receiver_and_broker_neither_lose_nor_double(
    tmp_path: Path, broker: Broker, seed: int
) -> None:
    """First the receiver alone is killed, and nobody sends anything twice; then both are. In the
    end every sample that was published stands in the files once, and is taken once."""
    luck, kills = random.Random(seed), 3 if seed == 0 else 12
    site = mqtt_site(tmp_path / "lab-a", broker.port, samples=16, silence=1.0)
    state, log = tmp_path / "state", tmp_path / "log"
    script = Path(__file__).with_name("mqtt_process.py")

    def begin() -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            command = [sys.executable, str(script), str(site.path), str(state)]
            return subprocess.Popen(command, stderr=file)

    def greeted() -> int:
        return log.read_text().count("connected to")

    def until_greeted(known: int) -> None:
        until(lambda: greeted() > known)

    def until_kept(count: int) -> None:
        with reading(state) as c:
            until(lambda: c.execute("SELECT total(came) FROM mqtt_marks").fetchone()[0] >= count)

    receiver, known, sent = begin(), 0, 0
    try:
        until(lambda: log.exists() and greeted())
        time.sleep(0.3)  # the broker has saved the session
        sender = Publisher(broker.port, TOPIC)
        for place in range(2 * kills):
            until_greeted(known)
            burst = luck.randrange(5, 25)
            for n in range(sent, sent + burst):
                sender.send(n, payload(n))
            sent += burst
            time.sleep(luck.random() * 0.03)  # they are on their way
            known = greeted()
            if place >= kills and place % 2:
                broker.kill()
                broker.start()
            else:
                receiver.kill()
                receiver.wait(30)
                receiver = begin()
            if place == kills - 1:
                sender.finish()
                assert not sender.sent_again
                until_kept(sent)
        sender.finish(safely=True)
        until(lambda: len(samples(site)) >= sent, 60)
        time.sleep(0.2)  # for those that would come twice
    finally:
        receiver.kill()
        receiver.wait(30)
    assert sorted(samples(site)) == list(range(sent)), log.read_text()
    with Store(state) as store:
        study = make_study(tmp_path, sites__arrivals="live")
        Live(site, study, store, Estimating(site, study), 0.0).scan()
        with store.looking() as c:
            kinds = dict(c.execute("SELECT kind, total(samples) FROM segments GROUP BY kind"))
            assert c.execute("SELECT reason FROM mqtt_aside").fetchall() == []
    assert sum(kinds.values()) == sent
    print(f"{sent} samples, {2 * kills} kills, {sender.sent_again} sent again", kinds)


@needs_broker
def test_the_page_shows_what_works(tmp_path: Path, broker: Broker, store: Store) -> None:
    """The site file, the sender and the broker's settings of docs/deployment.md."""
    page = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text(encoding="utf-8")
    section = page.partition("## Live from MQTT\n")[2].partition("\n## ")[0]
    (toml,), (python,), (settings,) = (
        re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)
        for kind in ("toml", "python", "text")
    )
    assert set(settings.split("\n")) <= set(SETTINGS.split("\n"))
    port = f'host = "localhost"\nport = {broker.port}'
    (tmp_path / "site.toml").write_text(toml.replace('host = "localhost"', port))
    site = SiteFile.load(tmp_path / "site.toml")
    with receiving(site, store) as receiver:
        until(subscribed(store))
        sender: dict[str, Any] = {}
        few = python.replace("1883", str(broker.port)).replace("range(400)", "range(210)")
        exec(compile(few, "deployment.md", "exec"), sender)
        until(lambda: receiver.status()["mqtt_open"] == 10)
        sender["sender"].disconnect()
        sender["sender"].loop_stop()
    (segment,) = segments(site, 0.05)
    assert segment.observations.shape == (200, 2)
