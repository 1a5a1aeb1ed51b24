"""The worker as a process: computes what its agent asks, and ends when the agent is gone.

It is started by `worker.Worker` and reached by nobody else: its standard input is a socket to the
agent, over which come connections, one for each call. It opens no store and keeps nothing.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.site.handover import receive, send
from fedkoopman.deploy.site.log_lines import LOG, log_lines
from fedkoopman.deploy.site.worker import CALLS, ERRORS, STREAMS
from fedkoopman.errors import cause_of
from fedkoopman.user_code import blamed

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

FIRST = "500"
"""Added to what the kernel takes for this process's size when memory runs out: better this process
than the agent."""


def main() -> None:
    """Answer calls until the agent is gone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the agent finishes first, and ends this
    log_lines()
    with suppress(OSError):  # not on Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text(FIRST)
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # the user's functions may read it
    try:
        about = receive(control)
    except (EOFError, OSError):
        return
    guard = threading.Lock()

    @cache
    def made() -> "Work":
        from fedkoopman.deploy.site.work import Work

        site, path, study, folder, identity, clients = about
        return Work(
            SiteFile.from_dict(site, path), Study.from_dict(study, folder), identity, clients
        )

    def work() -> "Work":
        with guard:
            return made()

    while True:
        try:
            sent, found, _, _ = socket.recv_fds(control, 1, 1)
        except OSError:
            return
        if not sent:
            return
        connection = socket.socket(fileno=found[0])
        threading.Thread(target=_answer, args=(connection, work), daemon=True).start()


def _answer(connection: socket.socket, work: Callable[[], "Work"]) -> None:
    """Answer one call: values, and then that it is over, or an error."""
    with connection, suppress(EOFError, OSError):  # who has asked is gone
        name, *arguments = receive(connection)
        for told in _told(work, name, arguments):
            send(connection, told)


def _told(work: Callable[[], "Work"], name: str, arguments: list[Any]) -> Iterator[list[Any]]:
    """The values of a call, each after the word that says so, and how it ended."""
    try:
        for value in _values(work(), name, arguments):
            yield ["value", value]
    except GeneratorExit:
        raise
    except BaseException as error:
        yield ["error", *_words(name, error)]
    else:
        yield ["over"]


def _values(work: "Work", name: str, arguments: list[Any]) -> Iterator[Any]:
    if name in STREAMS:
        yield from getattr(work, name)(*arguments)
    elif name in CALLS:
        yield getattr(work, name)(*arguments)
    else:
        raise AssertionError(f"there is no call {name!r}")


def _words(name: str, error: BaseException) -> tuple[str, str]:
    """The class of an error, and its words."""
    if isinstance(error, MemoryError):
        return "MachineError", "out of memory: cut segments by data.longest"
    known: BaseException = blamed(error) or error
    for kind, one in ERRORS.items():
        if isinstance(known, one):
            return kind, str(known)
    LOG.error("%s failed", name, exc_info=error)
    return type(error).__name__, cause_of(error)


if __name__ == "__main__":
    main()
    os._exit(0)  # do not wait for what nobody wants any more
