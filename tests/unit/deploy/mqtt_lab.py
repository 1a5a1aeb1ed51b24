"""A real broker on loopback, which may be killed, and somebody who publishes to it."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.config.site_file import SiteFile

SEARCHED = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
MOSQUITTO = shutil.which("mosquitto", path=SEARCHED)
needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
SETTINGS = """
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
log_dest stderr
"""
"""Those that docs/deployment.md asks for."""


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


class Broker:
    """mosquitto, on a port of its own."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """Arguments:

        more: settings, beside the usual ones or in their place.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        text = SETTINGS.format(port=self.port, folder=folder) + more
        if os.getuid() == 0:
            text += "user root\n"
        (folder / "broker.conf").write_text(text)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        command = [MOSQUITTO, "-c", str(self.folder / "broker.conf")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        until(self._listens)

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def log(self) -> str:
        return (self.folder / "log").read_text()


class Publisher:
    """Publishes with QoS 1, and keeps every sample until the broker has safely got it.

    mosquitto acknowledges a message before it is on its disk, and loses it if it is killed then. So
    what was acknowledged in the seconds before a connection breaks is sent again too.
    """

    def __init__(self, port: int, topic: str, name: str = "sender", again: float = 3.0) -> None:
        self._port, self.topic, self._name, self._again = port, topic, name, again
        self._waiting: dict[int, tuple[int, bytes]] = {}
        self._recent: list[tuple[float, int, bytes]] = []
        self.sent_again = 0
        self.connect()

    def connect(self) -> None:
        """Connect, and send again what may be lost."""
        until(self._connected)
        lost = {n: content for _, n, content in self._recent} | dict(self._waiting.values())
        self._waiting.clear()
        self._recent.clear()
        self.sent_again += len(lost)
        for number, content in sorted(lost.items()):
            self._publish(number, content)

    def _connected(self) -> bool:
        import paho.mqtt.client as mqtt

        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, self._name, protocol=mqtt.MQTTv5
        )
        self.client.on_publish = self._published
        try:
            self.client.connect("127.0.0.1", self._port, 5)
        except OSError:
            return False
        for _ in range(100):
            if self.client.loop(0.05) or self.client.is_connected():
                break
        return self.client.is_connected()

    def send(self, number: int, payload: bytes) -> None:
        """Publish a sample; a connection that is lost is made again."""
        self._publish(number, payload)
        self.work(0.0)

    def work(self, seconds: float = 0.05) -> None:
        if self.client.loop(seconds):
            self.connect()
        since = time.monotonic() - self._again
        self._recent = [entry for entry in self._recent if entry[0] > since]

    def finish(self, safely: bool = False) -> None:
        """Wait until all is acknowledged; `safely`: and none of it recently."""
        end = time.monotonic() + 60
        while self._waiting or (safely and self._recent):
            assert time.monotonic() < end, "it took too long"
            self.work()

    def _publish(self, number: int, payload: bytes) -> None:
        info = self.client.publish(self.topic, payload, qos=1)
        self._waiting[info.mid] = number, payload

    def _published(self, _client: Any, _data: Any, mid: int, *_: Any) -> None:
        found = self._waiting.pop(mid, None)
        if found is not None:
            self._recent.append((time.monotonic(), *found))


def mqtt_site(folder: Path, port: int, data: str = "", **mqtt: Any) -> SiteFile:
    """A site file with a section [mqtt]."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {"host": "127.0.0.1", "port": port, "topics": "lab/pendulum", "samples": 40} | mqtt
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (folder / "site.toml").write_text(
        'name = "lab-a"\n[data]\nfiles = "data/*.csv"\ncolumns = ["x", "v"]\n'
        f'{data}\n[sensor]\nkind = "identity"\n[noise]\nobservation = 1e-4\nprocess = 1e-6\n'
        "[initial]\nmean = 0.0\ncov = 1.0\n[mqtt]\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )
    return SiteFile.load(folder / "site.toml")


def payload(number: int, **more: Any) -> bytes:
    """A sample's message; times are 0.05 apart."""
    sample = {"time": round(0.05 * number, 10), "x": number / 1000, "v": -number / 1000}
    return json.dumps(sample | more).encode()
