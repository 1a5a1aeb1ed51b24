"""A wish to end is heard, at whatever instruction it comes."""

import signal
import subprocess
import sys

WAITING = """
import sys
from fedkoopman.deploy.heeding import heeded
with heeded() as asked:
    print("ready", flush=True)
    while not asked.wait(0.0005):  # so that a signal comes at every instruction of waiting
        pass
"""


def test_it_is_heard_while_it_is_waited_for() -> None:
    """Set from the handler, the event would now and then wait for itself for ever."""
    for _ in range(25):
        with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_handlers_are_put_back() -> None:
    from fedkoopman.deploy.heeding import heeded

    before = signal.getsignal(signal.SIGTERM)
    with heeded() as asked:
        signal.raise_signal(signal.SIGTERM)
        assert asked.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before
