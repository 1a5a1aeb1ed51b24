"""`fedkoopman watch`: the report of a run as a live page; other verbs start the same one."""

import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.options import option, whole
from fedkoopman.cli.process import say
from fedkoopman.signals import stop_requested

EXAMPLE = """
fedkoopman watch runs/first --open
"""
ENDS = 10.0
"""Seconds that the page's process may take to end."""


def watch(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Directories of runs: begun, finished, or still to come."
        ),
    ],
    port: Annotated[
        int, option("P", "The page's port on this machine; 0: a free one.", parser=whole(0, 65535))
    ] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show the report of one run, or several beside each other, as a page that keeps up."""
    from fedkoopman.reports.live_server import address, listening, serving

    with listening(port) as own, stop_requested() as stop, serving(own, directories):
        say(f"live page: {address(own)} (Ctrl-C ends it)")
        for directory in directories:
            if not directory.is_dir():
                say(f"there is no {directory} yet: the page waits for it")
        if open_browser:
            webbrowser.open(address(own))
        stop.wait()


@contextmanager
def watching(wanted: bool, directory: Path) -> Iterator[None]:
    """Within it, a directory's live page is served by another process, if that is wanted.

    Whatever happens to that process, what runs here goes on.
    """
    if not wanted:
        yield
        return
    from fedkoopman.reports.live_server import address, listening

    with listening() as own, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "fedkoopman.reports.live_server",
                str(own.fileno()), str(directory.absolute()),
            ],
            pass_fds=[own.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for this process, which ends that one
        )  # fmt: skip
        assert process.stdin is not None
        try:
            print(f"live page: {address(own)}", file=sys.stderr, flush=True)
            yield
            with suppress(OSError):
                process.stdin.close()  # as its end, the process takes leave of open pages
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS)
        finally:
            if process.poll() is None:
                process.kill()
            with suppress(OSError):
                process.stdin.close()
            if process.wait() > 0:
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").strip().splitlines()
                print(f"note: the live page ended: {said[-1:]}", file=sys.stderr, flush=True)
