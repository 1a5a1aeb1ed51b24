"""Arrays in a temporary file come back as they were, many of them by one handle."""

import os

import numpy as np
import pytest

from fedkoopman.data.spilled_arrays import SpilledArrays
from fedkoopman.errors import ComputationError


def test_arrays_come_back_in_order_and_outlast_the_shelf() -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(int(n), 3)) for n in rng.integers(1, 9, 50)]
    with SpilledArrays() as shelf:
        for array in given:
            shelf.keep(array)
        kept = shelf.arrays()
    assert len(kept) == len(given)
    for before, after in zip(given, kept, strict=True):
        np.testing.assert_array_equal(before, after)
        assert not after.flags.writeable


def test_nothing_kept_is_nothing() -> None:
    with SpilledArrays() as shelf:
        assert shelf.arrays() == ()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="handles are counted in /proc")
def test_many_arrays_take_one_handle() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with SpilledArrays() as shelf:
        for _ in range(500):
            shelf.keep(np.ones((2, 2)))
        kept = shelf.arrays()
    assert len(kept) == 500
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile",
        lambda: open("/dev/full", "r+b"),  # noqa: SIM115
    )
    with SpilledArrays() as shelf, pytest.raises(ComputationError, match=r"No space left.*TMPDIR"):
        shelf.keep(np.ones((2, 2)))
