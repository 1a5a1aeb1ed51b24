"""Ctrl-C is heard, also where Python forgets it."""

import os
import signal
from collections.abc import Iterator

import pytest

from fedkoopman.cli.interruption import heed, interruptible


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10_000):  # the handler runs between two instructions
        pass


class Deaf:
    """Is interrupted where exceptions are printed and forgotten."""

    def __del__(self) -> None:
        press()


def test_it_is_raised_where_it_can_be() -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt):
        press()


def test_what_was_forgotten_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    with interruptible():
        heed()
        deaf = Deaf()
        del deaf
        with pytest.raises(KeyboardInterrupt):
            heed()
    assert capsys.readouterr() == ("", "")
    heed()


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


def test_everything_is_put_back() -> None:
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_in_the_background_stays_deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        press()
        heed()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
