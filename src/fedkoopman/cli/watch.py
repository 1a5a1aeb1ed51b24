"""`fedkoopman watch`: the report of a run as a live page; other verbs start the same one."""

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.companion import companion
from fedkoopman.cli.options import option, whole
from fedkoopman.cli.process import say
from fedkoopman.signals import stop_requested

EXAMPLE = """
fedkoopman watch runs/first --open
"""


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
    """Within it, a directory's live page is served by another process, if that is wanted."""
    if not wanted:
        yield
        return
    from fedkoopman.reports.live_server import address, listening

    with listening() as own:
        number, where = own.fileno(), str(directory.absolute())
        print(f"live page: {address(own)}", file=sys.stderr, flush=True)
        module = "fedkoopman.reports.live_server"
        with companion("the live page", module, str(number), where, keep=[number]):
            yield
