"""A process beside a command: whatever happens to it, the command goes on, and it ends with it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def companion(
    name: str, module: str, *arguments: str, keep: Sequence[int] = (), ends: float = 10.0
) -> Iterator[None]:
    """Run a module's `main` in another process within this block.

    Its standard input ends with this process, however that ends: then it finishes what it does.

    Arguments:
        name: what it is, for a note if it fails.
        keep: file descriptors that it shares.
        ends: seconds that it may take to end.
    """
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            pass_fds=keep,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        assert process.stdin is not None
        try:
            yield
        finally:
            with suppress(OSError):
                process.stdin.close()
            try:
                failed = process.wait(ends) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                failed = process.wait() != 0
            if failed:
                complaints.seek(0)
                lines = complaints.read().decode(errors="replace").split("\n")
                said = [" ".join(line.split()) for line in lines if line.strip()]
                why = said[-1] if said else f"it did not end within {ends:g} s"
                print(f"note: {name} ended early: {why[:500]}", file=sys.stderr, flush=True)
