"""A site file's section [mqtt]: samples that come live from a broker, and when they are a segment.

What the fields of a message mean stands in [data], as for files: `data.columns`, `data.inputs`,
`data.time` and `data.segment` name them.
"""

import glob
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedkoopman.config.loader import Section, key
from fedkoopman.config.tables import OptionalName
from fedkoopman.errors import InputError, short
from fedkoopman.rules import Choice, Flag, Names, Real, Whole

if TYPE_CHECKING:
    from fedkoopman.config.site_file import DataSection

LONGEST_TOPIC = 65_535
"""Bytes, as the protocol has it."""
TOPIC_COLUMN = "mqtt_topic"
"""A column that segments' files have beside those of [data]: where the samples came from."""


@dataclass(frozen=True)
class MqttSection(Section):
    """Live samples from an MQTT broker, where the study has sites.arrivals = "live"."""

    section: ClassVar[str] = "mqtt"

    host: str = key(
        "", OptionalName('a name or an address, or "" for no broker'), "The broker, of MQTT 5"
    )
    port: int = key(1883, Whole(1, 65_535), "Its port, with TLS usually 8883")
    topics: tuple[str, ...] = key(
        (),
        Names("a topic or a filter such as lab/+/pendulum, or a list of them", single=True),
        "Whose messages are samples, each with all of a sample's fields; every topic makes "
        "segments of its own",
    )
    client_id: str = key(
        "",
        OptionalName('a name that no other client of the broker has, or "" for fedkoopman-NAME'),
        "Under this name the broker keeps what is not delivered yet; never change it lightly",
    )
    payload: str = key(
        "json",
        Choice(("json", "csv")),
        "What a message holds: an object, or a list of objects, of numbers by name; or lines of "
        "numbers",
    )
    fields: tuple[str, ...] = key(
        (), Names("a list of names"), "What the cells of a line are, in order, where payload is csv"
    )
    sequence: str = key(
        "",
        OptionalName('a field\'s name, or "" for the time'),
        "Field that counts the samples of a topic (and segment) and never starts again, by which "
        "a sample that comes twice is known",
    )
    samples: int = key(1000, Whole(2), "A segment ends after so many samples")
    silence: float = key(
        60.0, Real(0.0, above=True), "It also ends after so many seconds without a message"
    )
    gap: int = key(
        100,
        Whole(1),
        "And where more samples than that are missing by their time; without time, where any is",
    )
    folder: str = key(
        "data",
        OptionalName('a directory relative to this file, or "" for its own'),
        "Where segments are written as CSV files; data.files must name FOLDER/*.csv",
    )
    tls: bool = key(False, Flag(), "Whether to connect with TLS")
    ca: str = key(
        "", OptionalName('a file, or "" for those of the system'), "Authorities that are trusted"
    )
    certificate: str = key(
        "", OptionalName('a file, or "" for none'), "The site's own certificate, in PEM"
    )
    private_key: str = key("", OptionalName('a file, or "" for none'), "Its key, in PEM")
    username: str = key("", OptionalName('a name, or "" for none'), "Name to log in with")
    password_file: str = key(
        "", OptionalName('a file, or "" for none'), "File whose first line is the password"
    )
    password_variable: str = key(
        "",
        OptionalName('a name, or "" for none'),
        "Environment variable that holds the password, in place of a file",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.host:
            given = [name for name in ("topics", "username", "sequence") if getattr(self, name)]
            if given:
                raise InputError(f"mqtt.{given[0]} is given but mqtt.host is not: name the broker")
            return
        if any(c.isspace() or c in "/@?#" for c in self.host):
            raise InputError(
                f"mqtt.host is {short(self.host)}: give a name or an address alone; the port is "
                "mqtt.port, and TLS is mqtt.tls"
            )
        if not self.topics:
            raise InputError('mqtt.topics is missing: name one, as topics = "lab/pendulum"')
        for topic in self.topics:
            _check_topic(topic)
        self._check_secrets()

    def _check_secrets(self) -> None:
        """Refuse what cannot be used to prove who we are."""
        for name in ("ca", "certificate", "private_key"):
            if getattr(self, name) and not self.tls:
                raise InputError(f"mqtt.{name} is given but mqtt.tls is false: set tls = true")
        if bool(self.certificate) != bool(self.private_key):
            missing = "private_key" if self.certificate else "certificate"
            raise InputError(f"mqtt.{missing} is missing: a certificate and its key go together")
        if self.password_file and self.password_variable:
            raise InputError(
                "mqtt.password_file and mqtt.password_variable are both given: give one of them"
            )
        if (self.password_file or self.password_variable) and not self.username:
            raise InputError("mqtt.username is missing: whose password is it")

    def time_and_segment(self, data: "DataSection") -> tuple[str, str]:
        """The fields of a message that have these meanings, with "auto" settled; "" for none."""
        taken = (*data.columns, *data.inputs, self.sequence)
        usual = {"time": data.time, "segment": data.segment}
        time, segment = (
            given if given != "auto" else name * (name not in taken)
            for name, given in usual.items()
        )
        return time, segment

    def check_data(self, data: "DataSection") -> None:
        """Refuse what does not fit what [data] says of the samples."""
        if not self.host:
            return
        if not data.columns:
            raise InputError(
                "data.columns is missing: with mqtt.host, name the fields of a message that are "
                "observed"
            )
        if glob.has_magic(self.folder):
            raise InputError(f"mqtt.folder is {short(self.folder)}: give one directory's name")
        pattern = f"{self.folder}/*.csv" if self.folder else "*.csv"
        if pattern not in data.files:
            raise InputError(
                f"data.files is {short(list(data.files))}, but MQTT's segments are written as "
                f"{pattern}: add {pattern!r}, or name another mqtt.folder"
            )
        time, label = self.time_and_segment(data)
        if not self.sequence and not time:
            raise InputError(
                'mqtt.sequence is "" and there is no time, so that a message that a broker sends '
                "twice would count twice: name a field that counts, or data.time"
            )
        taken = {*data.columns, *data.inputs, data.time, data.segment}
        for name in (self.sequence, TOPIC_COLUMN):
            if name in taken and name:
                raise InputError(f"[data] names {name!r}, which has another meaning: rename it")
        if self.payload == "json" and self.fields:
            raise InputError('mqtt.fields is given, but mqtt.payload is "json", which has names')
        if self.payload == "csv":
            time = "" if data.time == "auto" and self.sequence else time
            label = "" if data.segment == "auto" else label
            for name in (*data.columns, *data.inputs, time, label, self.sequence):
                if name and name not in self.fields:
                    raise InputError(
                        f"mqtt.fields is {short(list(self.fields))}, without {name!r}: name the "
                        "cells of a line in order"
                    )


def _check_topic(topic: str) -> None:
    """Refuse a filter that no broker takes, or that shares messages with other clients."""
    levels = topic.split("/")
    wrong = (
        "#" in levels[:-1]
        or any(level != wild and wild in level for level in levels for wild in "+#")
        or len(topic.encode()) > LONGEST_TOPIC
    )
    if wrong:
        raise InputError(
            f"mqtt.topics names {short(topic)}: give topics as lab/pendulum, with + for any one "
            "level, or # as the last for all below"
        )
    if levels[0] == "$share":
        raise InputError(
            f"mqtt.topics names {short(topic)}, of which other clients get a part of the messages: "
            "name the topic itself"
        )
