"""A site that lies: it stands before a real agent, and alters what that answers.

It takes the place of the agent's socket, which the site's own user may. So requests come to it by
way of the real node, and its lies go back the same way.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.deploy.site.site_socket import LENGTH, ask
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Envelope,
    Poll,
    Polled,
    Reply,
    decode_replies,
    decode_requests,
    encode_replies,
)
from fedkoopman.errors import InputError

Lie = Callable[[Envelope, Sequence[Reply]], bytes]


class Liar:
    """A liar, who also decides how fast a federation goes: no slot ends before it has answered.

    Arguments:
        path: of a running agent's socket.

    Attributes:
        lie: what it makes of an honest answer to a request to train, or to count if `early`.
        slot: the last that it was asked about.
        limit: the last that it answers about.
        truths: its honest updates, which it never sent.
    """

    def __init__(self, path: Path) -> None:
        self.lie: Lie = of_answered(lambda reply: replace(reply, samples=reply.samples + 1))
        self.early = False
        self.limit = 0
        self.slot = 0
        self.truths: list[bytes] = []
        self._allowed = threading.Condition()
        self._truth = path.with_suffix(".truth")
        os.rename(path, self._truth)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(path))
        path.chmod(0o600)
        self._door.listen(8)
        threading.Thread(target=self._work, daemon=True).start()

    def allow(self, slots: int) -> int:
        """Let the federation go on by so many slots; gives the last of them."""
        with self._allowed:
            self.limit += slots
            self._allowed.notify_all()
            return self.limit

    def close(self) -> None:
        """Lie no more, and hold up nobody."""
        self._door.close()
        self.allow(10**6)

    def _work(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, InputError, struct.error):  # who asked, or the agent, has gone
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as came:
            (length,) = LENGTH.unpack(came.read(LENGTH.size))
            body = came.read(length)
            _, requests = decode_requests(body)
            self._wait(max(request.slot for request in requests))
            answer = ask(self._truth, body)
            kinds = Poll | Ask if self.early else Ask
            if any(isinstance(request, kinds) for request in requests):
                envelope, replies = decode_replies(answer)
                self.truths += [answer] * isinstance(replies[0], Answered)
                answer = self.lie(envelope, replies)
            connection.sendall(LENGTH.pack(len(answer)) + answer)

    def _wait(self, slot: int) -> None:
        with self._allowed:
            self.slot = max(self.slot, slot)
            self._allowed.notify_all()
            self._allowed.wait_for(lambda: slot <= self.limit)


def of_answered(change: Callable[[Answered], Reply]) -> Lie:
    """A lie about an update."""
    return _of(Answered, change)


def of_polled(change: Callable[[Polled], Reply]) -> Lie:
    """A lie about how much waits."""
    return _of(Polled, change)


def of_model(change: Callable[[str, np.ndarray], Any]) -> Lie:
    """A lie about one tensor after the other."""
    return of_arrays(lambda arrays: {n: change(n, leaf) for n, leaf in arrays.items()})


def of_arrays(change: Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]]) -> Lie:
    """A lie about all tensors."""
    return of_answered(
        lambda r: replace(r, message=replace(r.message, arrays=change(r.message.arrays)))
    )


def _of(kind: type, change: Callable[[Any], Reply]) -> Lie:
    def lie(envelope: Envelope, replies: Sequence[Reply]) -> bytes:
        told = [change(reply) if isinstance(reply, kind) else reply for reply in replies]
        return encode_replies(envelope, told)

    return lie
