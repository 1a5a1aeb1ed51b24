"""A client of an MQTT broker as a site needs it: how it connects, and how it proves itself.

The session never expires, and no message is acknowledged by itself. Passwords come from a file or
the environment; they stand in no message and no log.
"""

import logging
import os
from pathlib import Path
from typing import Any

from fedkoopman.config.mqtt_section import MqttSection
from fedkoopman.errors import InputError, system_error

LOG = logging.getLogger("fedkoopman.agent")
BATCH = 500
"""Messages that the broker may send before the first of them is acknowledged."""
KEEPALIVE = 30
"""Seconds after which a silent connection is checked."""
FOR_EVER = 0xFFFFFFFF
"""Of MQTT: a session that does not expire."""


def new_client(settings: MqttSection, name: str, folder: Path) -> Any:
    """A client that acknowledges when it is told to; it does not connect yet.

    Arguments:
        name: under which the broker knows it.
        folder: to which the settings' files are relative.
    """
    mqtt = need_paho()
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        name,
        protocol=mqtt.MQTTv5,
        manual_ack=True,
        reconnect_on_failure=False,
    )
    if settings.tls:
        _set_tls(client, settings, folder)
    if settings.username:
        client.username_pw_set(settings.username, _password(settings, folder))
        if not settings.tls:
            LOG.warning("MQTT: the password is sent without TLS: set mqtt.tls = true")
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval, properties.ReceiveMaximum = FOR_EVER, BATCH
    client.connect_async(
        settings.host, settings.port, KEEPALIVE, clean_start=False, properties=properties
    )
    return client


def need_paho() -> Any:
    """The client library."""
    try:
        import paho.mqtt.client as mqtt
    except ImportError as error:
        raise InputError(
            "site.toml has [mqtt], for which paho-mqtt is not installed: "
            "pip install 'fedkoopman[mqtt]'"
        ) from error
    return mqtt


def _set_tls(client: Any, settings: MqttSection, folder: Path) -> None:
    given = [settings.ca, settings.certificate, settings.private_key]
    paths = [str(folder / name) if name else None for name in given]
    try:
        client.tls_set(*paths)
    except (OSError, ValueError) as error:
        raise InputError(
            f"mqtt.ca, mqtt.certificate or mqtt.private_key cannot be used: {error}: give files "
            "in PEM"
        ) from error


def _password(settings: MqttSection, folder: Path) -> str | None:
    """The password; None where there is none."""
    if settings.password_variable:
        found = os.environ.get(settings.password_variable)
        if found is None:
            raise InputError(
                f"mqtt.password_variable names {settings.password_variable}, which is not set: set "
                "it in the environment of fedkoopman join"
            )
        return found
    if not settings.password_file:
        return None
    path = folder / settings.password_file
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise system_error("cannot read mqtt.password_file", error, "check its path") from error
    except UnicodeDecodeError:
        lines = []
    if not lines:
        raise InputError("mqtt.password_file holds no line of text: write the password into it")
    return lines[0]
