"""[mqtt] in a site file: what could lose samples or count them twice is refused when it is read."""

from typing import Any

import pytest

from fedkoopman.config.site_file import SiteFile
from fedkoopman.errors import InputError


def site(mqtt: dict[str, Any], **data: Any) -> SiteFile:
    return SiteFile.from_dict(
        {
            "name": "lab-a",
            "data": {"files": "data/*.csv", "columns": ["x", "v"]} | data,
            "sensor": {"kind": "identity"},
            "mqtt": {"host": "broker.lab", "topics": "lab/pendulum"} | mqtt,
        }
    )


def test_a_section_is_read_and_written() -> None:
    made = site({"topics": ["lab/+/pendulum", "lab/b/#"], "sequence": "n", "samples": 500})
    assert made.mqtt.topics == ("lab/+/pendulum", "lab/b/#")
    assert (made.mqtt.port, made.mqtt.payload, made.mqtt.folder) == (1883, "json", "data")
    assert SiteFile.from_dict(made.to_dict()) == made


def test_without_a_broker_nothing_is_asked_of_the_rest() -> None:
    assert site({"host": "", "topics": []}, columns=[], files="z.npy", time="").mqtt.host == ""


@pytest.mark.parametrize(
    ("mqtt", "data", "said"),
    [
        ({"host": ""}, {}, "mqtt.topics is given but mqtt.host is not"),
        ({"host": "mqtts://broker.lab"}, {}, "give a name or an address alone"),
        ({"topics": []}, {}, "mqtt.topics is missing"),
        ({"topics": "lab/#/x"}, {}, "with + for any one level"),
        ({"topics": "lab/a+"}, {}, "with + for any one level"),
        ({"topics": "$share/us/lab"}, {}, "other clients get a part"),
        ({"qos": 0}, {}, "unknown key 'mqtt.qos'"),
        ({"clean_session": True}, {}, "unknown key 'mqtt.clean_session'"),
        ({}, {"time": ""}, "would count twice: name a field that counts"),
        ({}, {"columns": ["x", "time"]}, "would count twice"),
        ({}, {"columns": []}, "data.columns is missing"),
        ({}, {"files": "*.csv"}, "add 'data/*.csv'"),
        ({"folder": "d*"}, {}, "give one directory's name"),
        ({"sequence": "x"}, {}, "names 'x', which has another meaning"),
        ({"fields": ["x"]}, {}, 'mqtt.payload is "json"'),
        ({"payload": "csv", "fields": ["time", "x"]}, {}, "without 'v'"),
        ({"payload": "csv", "fields": ["x", "v"]}, {}, "without 'time'"),
        ({"payload": "csv", "fields": ["x", "v"], "sequence": "n"}, {}, "without 'n'"),
        ({"ca": "ca.pem"}, {}, "set tls = true"),
        ({"tls": True, "certificate": "a.pem"}, {}, "mqtt.private_key is missing"),
        ({"username": "a", "password_file": "p", "password_variable": "P"}, {}, "give one of them"),
        ({"password_file": "p"}, {}, "mqtt.username is missing"),
    ],
)
def test_what_cannot_hold_is_refused(mqtt: dict[str, Any], data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refusal:
        site(mqtt, **data)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)
