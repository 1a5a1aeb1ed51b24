"""Flower's own SuperNode, told to wait less, and to end rather than to get out of step.

    python -m fedkoopman.deploy.flower.supernode --memory FILE OPTIONS-OF-FLOWER-SUPERNODE

Four of its habits cost a federation seconds per slot, or a minute per restart:

- It sleeps 3 s whenever there is no message, and 0.5 s whenever there is no reply. Here it sleeps
  a tenth of the time for which nothing has come, 3 s at most (`patience`).
- A message whose content is still on its way is asked for again after a second. Here after 0.05 s.
- While the SuperLink is away it asks every 20 s in the end, each of its threads after the other.
  Here every 5 s.
- After a crash its SuperLink takes the dead process to be online for up to a minute, and turns the
  new one away. Here the new one first signs off in the name of the old one (`signing_off`).

And one costs a site its place: a message that it could not receive whole, because the SuperLink
went away, leaves a task behind. Somebody may answer it all the same; that answer is then sent in
place of the next one, and every answer from there on comes one message too late. Here the process
ends at such a message, and is started again with nothing left behind (`keep_in_step`).

And one costs memory and time without end: the task of every message is kept, and looked at again
whenever somebody asks for the next one. Here they go when they are over (`forget`).

All this replaces names inside two modules of Flower's; a test says so when Flower changes those
places. Flower's own `flower-supernode` works as well.
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedkoopman.deploy.flower.adaptive_interval import AdaptiveInterval
from fedkoopman.deploy.flower.quiet import settle
from fedkoopman.deploy.flower.signing_off import remember, sign_off

__all__ = ["forget", "hasten", "keep_in_step", "main"]


class _Time:
    """Stands for the module `time` in Flower's loop, which calls `time.sleep` only."""

    def __init__(self) -> None:
        self._messages = AdaptiveInterval(shortest=0.05, longest=3.0)

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than patience says."""
        if seconds < 1.0:  # it awaits the reply to a message: one has come
            self._messages.refresh()
            time.sleep(min(seconds, 0.02))
        else:
            time.sleep(min(seconds, self._messages.seconds()))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def hasten(loop: ModuleType, retry: ModuleType) -> None:
    """Shorten the waits of Flower's loop.

    Arguments:
        loop: the module `flwr.supernode.start_client_internal`.
        retry: the module `flwr.supercore.retry.http_retry`.
    """
    vars(loop)["time"] = _Time()
    soon = functools.partial(loop.pull_objects, initial_backoff=0.05, backoff_cap=1.0)
    vars(loop)["pull_objects"] = soon
    vars(retry)["MAX_RETRY_DELAY"] = 5


def keep_in_step(loop: ModuleType, end: Callable[[], None]) -> None:
    """Have Flower's loop end when it gives up a message that it has begun to receive.

    Arguments:
        loop: the module `flwr.supernode.start_client_internal`.
        end: ends it.
    """
    pull = loop._pull_and_store_message

    def pulled(**named: Any) -> int | None:
        begun, receive = [], named["receive"]

        def received() -> Any:
            found = receive()
            begun.extend([] if found is None else [True])
            return found

        run: int | None = pull(**{**named, "receive": received})
        if run is None and begun:
            end()
        return run

    vars(loop)["_pull_and_store_message"] = pulled


def forget(loop: ModuleType) -> None:
    """Have Flower's loop drop the tasks that are over, before it asks for the next message.

    Arguments:
        loop: the module `flwr.supernode.start_client_internal`.
    """
    from flwr.common.constant import Status

    pull = loop._pull_and_store_message

    def pulled(**named: Any) -> int | None:
        state = named["state"]
        with state.lock_task_store:
            tasks = state.task_store
            for number in [n for n in tasks if tasks[n].status.status == Status.FINISHED]:
                del tasks[number]
        run: int | None = pull(**named)
        return run

    vars(loop)["_pull_and_store_message"] = pulled


def _end() -> None:
    print("a message was given up half received: starting afresh", file=sys.stderr, flush=True)
    os._exit(1)


def main(arguments: list[str] | None = None) -> None:
    """Run Flower's SuperNode."""
    settle()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--memory", required=True, type=Path)
    chosen, others = parser.parse_known_args(arguments)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--superlink", default="")
    parser.add_argument("--root-certificates", type=Path)
    parser.add_argument("--auth-supernode-private-key", type=Path)
    own, _ = parser.parse_known_args(others)
    if own.root_certificates and own.auth_supernode_private_key:
        sign_off(
            own.superlink, own.root_certificates, own.auth_supernode_private_key, chosen.memory
        )

    import flwr.supercore.retry.http_retry as retry
    import flwr.supernode.start_client_internal as loop
    from flwr.supernode.cli import flower_supernode

    hasten(loop, retry)
    keep_in_step(loop, _end)
    forget(loop)
    if own.root_certificates and own.auth_supernode_private_key:
        remember(loop, own.auth_supernode_private_key, chosen.memory)
    sys.argv = ["flower-supernode", *others]
    flower_supernode()


if __name__ == "__main__":
    main()
