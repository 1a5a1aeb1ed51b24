"""Live samples from an MQTT broker, at a site's agent: durable before they are acknowledged.

A thread of the agent connects with MQTT 5 and a session that never expires, and asks for QoS 1: the
broker keeps a message until it is acknowledged, which it is only after `mqtt_journal` has it on the
disk. One transaction keeps all messages that have come by then. QoS 2 would be worse: paho answers
its first step, after which a broker forgets the message, before anybody has seen it, and keeps it
in memory only.

A broker that is away is tried again, ever more slowly. A disk that is full delays: nothing is
acknowledged, and the broker sends no more than so many unacknowledged messages.
"""

import logging
import ssl
import threading
import time
from typing import Any

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.site.mqtt_client import BATCH, FOR_EVER, new_client
from fedkoopman.deploy.site.mqtt_journal import Arrived, Journal
from fedkoopman.deploy.site.mqtt_messages import Layout
from fedkoopman.deploy.site.store import Store

LOG = logging.getLogger("fedkoopman.agent")
TICK = 0.2
"""Seconds between two looks at silent topics."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before the broker is tried again."""
LASTING = 10.0
"""Seconds after which a connection counts as a good one."""
AFTER_FAILURE = 1.0
"""Seconds before the disk is tried again."""


class Receiver:
    """Takes messages from a broker to files; made without connecting, used by one thread."""

    def __init__(self, site: SiteFile, store: Store, dt: float) -> None:
        """Arguments:

        store: of the site.
        dt: the study's, by which gaps are measured.
        """
        self._settings = site.mqtt
        self._name = site.mqtt.client_id or f"fedkoopman-{site.name}"
        layout = Layout.of(site)
        gap = (site.mqtt.gap + 1.5) * dt
        folder = site.folder / site.mqtt.folder
        self._journal = Journal(store, layout, folder, site.mqtt.samples, gap)
        self._client = new_client(site.mqtt, self._name, site.folder)
        self._client.on_connect, self._client.on_disconnect = self._on_connect, self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _client, _data, message: self._came.append(message)
        self._came: list[Any] = []
        """Messages that are not kept yet, in order."""
        self._heard: dict[str, float] = {}
        """By topic with an open segment, when the last message came."""
        self._open = self._connected = False
        """Whether there is a connection, and whether the broker has accepted it."""
        self._try_at, self._wait = 0.0, FIRST_WAIT
        self._since, self._trouble, self._failed = 0.0, "", ""
        self._to_write, self._known, self._unsafe = True, 0, False

    def run(self, stop: threading.Event) -> None:
        """Receive until `stop` is set; whatever fails is told, and tried again."""
        began = False
        while not stop.is_set():
            try:
                if not began:  # segments that a kill has left open
                    self._heard = dict.fromkeys(self._journal.open_topics(), time.monotonic())
                    began = True
                self._turn(stop)
                if self._failed:
                    LOG.info("MQTT: it works again")
                self._failed = ""
            except Exception as error:  # a full disk, for example, may pass
                if stop.is_set():
                    break
                if str(error) != self._failed:
                    known = isinstance(error, RuntimeError | ValueError)
                    LOG.warning(
                        "MQTT: %s; what is not kept is not acknowledged", error, exc_info=not known
                    )
                self._failed = str(error)
                stop.wait(AFTER_FAILURE)
        if self._connected:
            self._client.on_disconnect = None
            self._client.disconnect()

    def status(self) -> dict[str, Any]:
        """What a person wants to know of it."""
        where = f"{self._settings.host}:{self._settings.port}"
        state = f"connected to {where}" if self._connected else f"no connection to {where}"
        return {
            "mqtt": ": ".join(filter(None, (state, self._trouble, self._failed))),
            **self._journal.counts(),
            "mqtt_known": self._known,
            "messages_set_aside": self._journal.aside(),
        }

    def _turn(self, stop: threading.Event) -> None:
        """Receive what there is, keep and acknowledge it, and write what is complete."""
        lost = False
        try:
            if self._open:
                lost = True  # also where something is raised
                lost = self._received()
            elif time.monotonic() >= self._try_at:
                self._connect()
            else:
                stop.wait(TICK)
            self._keep()
            self._end_silent()
            self._write()
        finally:
            if lost:
                self._came.clear()  # what was not kept is not acknowledged, and comes again
                self._later()

    def _received(self) -> bool:
        """Receive what there is, and tell whether the connection is lost."""
        lost, seen = self._client.loop(TICK) != 0, 0
        while not lost and seen < len(self._came) < BATCH:  # more of them for one transaction
            seen = len(self._came)
            lost = self._client.loop(0.0) != 0
        return lost

    def _keep(self) -> None:
        """Keep what came; then, and only then, acknowledge it."""
        if not self._came:
            return
        messages = [Arrived(_topic(m), bytes(m.payload), bool(m.dup)) for m in self._came]
        results = self._journal.keep(messages)
        for message in self._came:
            if message.qos:
                self._client.ack(message.mid, message.qos)
            elif not self._unsafe:
                self._unsafe = True
                LOG.warning(
                    "MQTT: %s is published with QoS 0, so that messages may be lost on their way: "
                    "publish with QoS 1", _topic(message),
                )  # fmt: skip
        self._came.clear()
        for message, result in zip(messages, results, strict=True):
            self._heard[message.topic] = time.monotonic()
            self._known += result.known
            if result.reason:
                LOG.warning("a message of %s is set aside: %s", message.topic, result.reason)
        self._to_write = True
        self._wait = FIRST_WAIT

    def _end_silent(self) -> None:
        """End the segments of topics of which nothing was heard for long."""
        last = time.monotonic() - self._settings.silence
        silent = [topic for topic, heard in self._heard.items() if heard < last]
        if silent:
            self._journal.close(silent)
            for topic in silent:
                del self._heard[topic]
            self._to_write = True

    def _write(self) -> None:
        """Write the files of complete segments, unless there can be none."""
        if self._to_write:
            for path in self._journal.write():
                LOG.info("MQTT: %s is complete", path.name)
            self._to_write = False

    def _connect(self) -> None:
        try:
            self._client.reconnect()
            self._open = True
        except OSError as error:
            certificate = isinstance(error, ssl.SSLCertVerificationError)
            remedy = "see mqtt.ca" if certificate else "trying again"
            self._tell(f"{error.strerror or error}: {remedy}")
            self._later()

    def _later(self) -> None:
        """Try again after a while; longer each time, unless a connection lasted."""
        if self._connected and time.monotonic() - self._since > LASTING:
            self._wait = FIRST_WAIT
        self._open = self._connected = False
        self._try_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _tell(self, trouble: str) -> None:
        """Log what is new."""
        if trouble and trouble != self._trouble:
            where = f"{self._settings.host}:{self._settings.port}"
            LOG.warning("MQTT: %s: %s", where, trouble)
        self._trouble = trouble

    def _on_connect(
        self, client: Any, _data: object, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            self._tell(f"the broker refuses us: {reason}: see mqtt.username and mqtt.certificate")
            return
        from paho.mqtt.subscribeoptions import SubscribeOptions

        self._connected, self._since = True, time.monotonic()
        LOG.info("MQTT: connected to %s:%d", self._settings.host, self._settings.port)
        before, wanted = self._journal.subscribed(), self._settings.topics
        trouble = ""
        if before and not flags.session_present:
            LOG.warning(
                "MQTT: the broker has forgotten this site's session: messages since the last "
                "connection may be lost; have the broker keep sessions on its disk"
            )
        expires = getattr(properties, "SessionExpiryInterval", FOR_EVER)
        if expires != FOR_EVER:
            trouble = f"the broker keeps messages for {expires} s only while this site is away"
        self._tell(trouble)
        old = [topic for topic in before if topic not in wanted]
        if old and flags.session_present:
            client.unsubscribe(old)
        # Retained messages are old ones, and would come again with every connection.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe([(topic, options) for topic in wanted])

    def _on_subscribe(
        self, _client: Any, _data: object, _mid: int, reasons: Any, _properties: Any
    ) -> None:
        for topic, reason in zip(self._settings.topics, reasons, strict=False):
            if reason.is_failure:
                self._tell(f"the broker refuses {topic}: {reason}: ask who runs it for access")
            elif reason.value == 0:
                self._tell(f"the broker delivers {topic} with QoS 0 only: messages may be lost")
        self._journal.remember_subscribed(self._settings.topics)

    def _on_disconnect(
        self, _client: Any, _data: object, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        words = {
            "Session taken over": f"another client calls itself {self._name}: change mqtt.client_id"
        }
        if not self._trouble or str(reason) in words:
            self._tell(words.get(str(reason), f"the connection ended: {reason}"))


def _topic(message: Any) -> str:
    try:
        return str(message.topic)
    except UnicodeDecodeError:
        return "a topic that is no UTF-8"
