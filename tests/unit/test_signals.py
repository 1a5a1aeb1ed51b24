"""Ctrl-C and SIGTERM stop a program, at whatever instruction they come."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from fedkoopman.signals import (
    interruptible,
    raise_if_interrupted,
    signals_as_events,
    stop_requested,
)


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10_000):  # the handler runs between two instructions
        pass


class Swallowing:
    """Is interrupted where exceptions are printed and forgotten."""

    def __del__(self) -> None:
        press()


def test_ctrl_c_is_raised_where_it_can_be() -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt):
        press()


def test_a_swallowed_ctrl_c_is_raised_later(capsys: pytest.CaptureFixture[str]) -> None:
    with interruptible():
        raise_if_interrupted()
        object_ = Swallowing()
        del object_
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
    assert capsys.readouterr() == ("", "")
    raise_if_interrupted()


def test_other_failures_in_callbacks_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError

    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda about: told.append(about.exc_type))
    with interruptible():
        broken = Broken()
        del broken
    assert told == [ValueError]


def test_interruptible_puts_the_handler_back() -> None:
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_background_program_ignores_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        press()
        raise_if_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


WAITING = """
from fedkoopman.signals import stop_requested
with stop_requested() as stop:
    print("ready", flush=True)
    while not stop.wait(0.0005):  # so that a signal comes at every instruction of waiting
        pass
"""


def test_the_stop_event_is_set_while_it_is_waited_for() -> None:
    """Set from the handler, the event would now and then wait for itself for ever."""
    for _ in range(25):
        with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_stop_requested_calls_along_and_puts_handlers_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    called = threading.Event()
    with stop_requested(called.set) as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(10)
        assert called.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_becomes_an_event_and_is_raised_after_the_block(sign: signal.Signals) -> None:
    before = signal.getsignal(sign)
    events = SimpleQueue[str]()
    reached = False
    with pytest.raises(KeyboardInterrupt), signals_as_events(lambda: events.put("stop")):
        signal.raise_signal(sign)
        assert events.get(timeout=10) == "stop"
        reached = True
    assert reached
    assert signal.getsignal(sign) is before


def test_without_a_signal_nothing_is_raised() -> None:
    with signals_as_events(lambda: pytest.fail("there was no signal")):
        pass


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    during = []

    def run() -> None:
        with signals_as_events(lambda: None), interruptible():
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert during == [before]
