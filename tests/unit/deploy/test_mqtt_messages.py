"""Payloads of MQTT messages become samples, or are refused in one line."""

import json
from typing import Any

import pytest

from fedkoopman.deploy.site.mqtt_messages import LARGEST, Layout
from fedkoopman.errors import InputError

PLAIN = Layout(("x", "v"))
TOPIC = "lab/a"


def read(layout: Layout, content: Any) -> list[Any]:
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    return layout.read(payload, TOPIC)


def test_an_object_is_a_sample_and_a_list_is_several() -> None:
    one = {"time": 0.1, "x": 1, "v": 2.5e-3, "battery": "low"}
    (sample,) = read(PLAIN, one)
    assert (sample.segment, sample.number, sample.time) == ("", 0.1, 0.1)
    assert (sample.header, sample.row) == ("time,x,v,mqtt_topic\n", "0.1,1.0,0.0025,lab/a\n")
    assert read(PLAIN, [one, one | {"time": 0.2}])[1].number == 0.2


def test_every_double_is_written_as_it_came() -> None:
    (sample,) = read(PLAIN, b'{"time": 1763471234.123457, "x": 0.1e-7, "v": 0.30000000000000004}')
    assert [float(cell) for cell in sample.row.split(",")[:3]] == [
        1763471234.123457, 1e-8, 0.30000000000000004
    ]  # fmt: skip


def test_a_missing_observation_is_null_and_stays_missing() -> None:
    assert read(PLAIN, {"time": 0, "x": None, "v": 1})[0].row == "0.0,,1.0,lab/a\n"


def test_inputs_and_the_segments_name_go_with_it() -> None:
    layout = Layout(("x",), ("u",), segment="swing", needs_segment=True)
    (sample,) = read(layout, {"time": 0, "x": 1, "u": 2, "swing": "first, high"})
    assert sample.segment == "first, high"
    assert sample.header == "time,x,u,swing,mqtt_topic\n"
    assert sample.row == '0.0,1.0,2.0,"first, high",lab/a\n'
    assert read(layout, {"time": 0, "x": 1, "u": 2, "swing": 7})[0].segment == "7"


def test_a_sequence_tells_samples_apart_with_or_without_time() -> None:
    layout = Layout(("x",), sequence="n", needs_time=False)
    (sample,) = read(layout, {"n": 12, "x": 1})
    assert (sample.number, sample.time, sample.header) == (12.0, None, "n,x,mqtt_topic\n")
    (sample,) = read(layout, {"n": 12, "x": 1, "time": 0.5})
    assert (sample.number, sample.time, sample.header) == (12.0, 0.5, "n,time,x,mqtt_topic\n")


def test_lines_of_csv() -> None:
    layout = Layout(("x", "v"), cells=("time", "v", "x", "segment"))
    first, second = read(layout, b"0.0,1,2,a\n0.1, 3 ,,b\n")
    assert (first.segment, first.row) == ("a", "0.0,2.0,1.0,a,lab/a\n")
    assert (second.segment, second.row) == ("b", "0.1,,3.0,b,lab/a\n")


BAD: list[tuple[Any, str]] = [
    (b"theta=3", "is no JSON in UTF-8"),
    (b"\xff\xfe\x00", "is no JSON in UTF-8"),
    (b"", "is no JSON in UTF-8"),
    (b"[" * 100_000, "is no JSON in UTF-8"),
    (b"3.5", "holds 3.5: send an object"),
    (b"[]", "holds no sample"),
    ({"time": 0, "y": 1}, "has no 'x' but 'time, y'"),
    ({"x": 1, "v": 2}, "has no 'time'"),
    (b'{"time": 0, "x": NaN, "v": 1}', "'x' is nan, which is no measurement"),
    (b'{"time": 0, "x": 1e999, "v": 1}', "'x' is inf"),
    (b'{"time": NaN, "x": 1, "v": 1}', "'time' is nan"),
    ({"time": 0, "x": 1e200, "v": 1}, "which is no measurement"),
    ({"time": 0, "x": "1", "v": 1}, "'x' is '1': send a number, or null"),
    ({"time": 0, "x": True, "v": 1}, "'x' is True"),
    ({"time": "2026-01-01", "x": 1, "v": 1}, "'time' is '2026-01-01': send a number"),
    ({"time": 0, "x": 1, "v": 1, "segment": ["a"]}, "'segment' is ['a']: send a segment's name"),
    ({"time": 0, "x": 1, "v": 1, "segment": "a\nb"}, "send a segment's name"),
    ([{"time": 0, "x": 1, "v": 1}, {"time": 1}], "sample 2 of 2: has no 'x'"),
    (b" " * (LARGEST + 1), "bytes: send at most 1,048,576"),
]


@pytest.mark.parametrize(("content", "said"), BAD, ids=range(len(BAD)))
def test_what_is_no_sample_is_refused_in_one_line(content: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        read(PLAIN, content)
    text = str(refusal.value)
    assert said in text and "\n" not in text and len(text) < 300


@pytest.mark.parametrize(
    ("layout", "content", "said"),
    [
        (Layout(("x",), ("u",)), {"time": 0, "x": 1, "u": None}, "'u' is None: send a number"),
        (Layout(("x",), sequence="n"), {"time": 0, "x": 1, "n": 1.5}, "a whole number that counts"),
        (Layout(("x",), sequence="n"), {"time": 0, "x": 1, "n": -1}, "a whole number that counts"),
        (Layout(("x",), needs_segment=True), {"time": 0, "x": 1}, "'segment' is None"),
        (Layout(("x",), cells=("time", "x")), b"0,1,2", "3 cells but mqtt.fields names 2"),
        (Layout(("x",), cells=("time", "x")), b"0,one", "'x' is 'one'"),
        (Layout(("x",), cells=("time", "x")), b"0,nan", "'x' is nan"),
        (Layout(("x",), cells=("time", "x")), b",1", "has no 'time'"),
        (Layout(("x",), cells=("time", "x")), b"\n", "holds no sample"),
    ],
)
def test_other_layouts_refuse_too(layout: Layout, content: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        read(layout, content)
    assert said in str(refusal.value)
