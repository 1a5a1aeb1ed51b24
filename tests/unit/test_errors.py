"""Whose fault an error is, and values and exceptions of all kinds in one line."""

import errno
from collections.abc import Callable

import pytest

from fedkoopman import errors
from fedkoopman.errors import (
    ComputationError,
    InputError,
    MachineError,
    PeerError,
    cause_of,
    short,
    system_error,
    underway,
    unknown_name,
)

MACHINE = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM]
USERS = [errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG]


def test_exit_codes_follow_the_fault() -> None:
    """A service is not started again after 2."""
    codes = {kind: kind.exit_code for kind in (InputError, ComputationError, MachineError)}
    assert codes == {InputError: 2, ComputationError: 1, MachineError: 1}
    assert PeerError.exit_code == 1


@pytest.mark.parametrize("number", MACHINE)
def test_a_full_disk_is_the_machines_fault_at_any_time(number: int) -> None:
    said = system_error("cannot write out", OSError(number, "so it says"), "make room")
    assert isinstance(said, MachineError)
    assert str(said) == "cannot write out: so it says; make room"


@pytest.mark.parametrize("number", USERS)
def test_a_wrong_path_is_the_users_fault_until_work_is_under_way(number: int) -> None:
    error = OSError(number, "so it says")
    assert isinstance(system_error("cannot write out", error), InputError)
    with underway():
        assert isinstance(system_error("cannot write out", error), MachineError)
    assert isinstance(system_error("cannot write out", error), InputError)


def test_underway_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError), underway(), underway():
        raise KeyError
    assert errors._services == 0


class _Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def _nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", r"'a\nb'"),
        ("x" * 100, "'" + "x" * 56 + "..."),
        (10**5000, "a int that cannot be shown"),
        (_nested(100_000), "a list that cannot be shown"),
        (_Silent(), "a _Silent that cannot be shown"),
    ],
    ids=["line", "long", "digits", "nested", "silent"],
)
def test_any_value_is_shown_on_one_short_line(value: object, shown: str) -> None:
    assert short(value) == shown


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (ValueError("\n\n  told \t later\n"), "ValueError: told later"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 197 + "..."),
        (_Silent(), "_Silent: its message cannot be shown"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_any_exception_is_told_on_one_line(error: BaseException, cause: str) -> None:
    assert cause_of(error) == cause


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (lambda: ["ukf", "ekf"], "did you mean 'ukf'? known: ekf, ukf"),
        (lambda: [], "known: none"),
        (lambda: [f"x{i:04}" for i in range(1000)], "x0059 and 940 more"),
    ],
    ids=["near", "none", "many"],
)
def test_names_that_are_known_are_listed(known: Callable[[], list[str]], says: str) -> None:
    assert says in str(unknown_name("method", "ukff", known()))
    assert len(str(unknown_name("method", "x" * 10**6, known()))) < 700
