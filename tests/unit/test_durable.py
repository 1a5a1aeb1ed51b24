"""Directories that one process uses at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedkoopman.durable import held
from fedkoopman.errors import InputError


def test_a_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    """Held by another process, it is refused; that process killed, it is free."""
    lock = tmp_path / ".lock"
    program = (
        "import sys, time; from pathlib import Path; from fedkoopman.durable import held\n"
        f"with held(Path({str(lock)!r}), 'taken'): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="taken"), held(lock, "taken"):
            pass
        other.kill()
        other.wait()
        with held(lock, "taken"):
            pass
