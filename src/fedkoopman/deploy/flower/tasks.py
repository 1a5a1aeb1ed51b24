"""Tasks of Flower's Runtime API: acquired, kept alive, and finished by our own process.

Flower starts a new process for every message, which runs the app that came with the run. A process
that acquires the tasks itself need not start anew, and runs only its own code.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient

from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
HEARTBEAT = 10.0
"""Seconds between heartbeats; Flower gives a task up 60 s after the last one."""


class _Token:
    """Adds the token of the current task; Flower's own interceptor has one token for ever."""

    def __init__(self) -> None:
        self.value = ""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if self.value and context.rpc_method != ACQUIRE:
            context.request.headers[TASK_TOKEN_HEADER] = self.value
        return call_next(context)


class Tasks:
    """The Runtime API of a SuperNode or a SuperLink, for one task at a time.

    Arguments:
        address: HOST:PORT.
        secret: a file with the secret that permits acquiring tasks.
        certificates: of the authority that signed the API's; None: no TLS.
    """

    def __init__(self, address: str, secret: Path, certificates: Path | None = None) -> None:
        try:
            shared = secret.read_bytes()
        except OSError as error:
            cause = error.strerror or error
            raise InputError(f"cannot read the secret {secret}: {cause}; start again") from error
        self._token = _Token()
        self.client = RuntimeHttpClient.from_server_address(
            address,
            certificates is None,
            None if certificates is None else certificates.read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(master_secret=shared, protected_methods=[ACQUIRE]),
                self._token,
            ],
            retry_invoker=reconnecting(),
        )

    def acquire(self, kind: str) -> Task | None:
        """The oldest waiting task, or None. It becomes the current task.

        A task that was not finished before is given up. Flower would do that itself, a minute after
        the last heartbeat: but then it sends an error in place of the reply that it waits for, that
        reply in place of the next one, and so on for ever.
        """
        answer = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        if not answer.HasField("task") or not answer.token:
            return None
        if self._token.value:
            with suppress(httpx.HTTPError):  # a restarted SuperNode does not know it
                self.finish(SubStatus.FAILED, "given up")
        self._token.value = answer.token
        return answer.task

    @property
    def token(self) -> str:
        """The token of the current task."""
        return self._token.value

    def finish(self, outcome: str, details: str = "") -> None:
        """Report how the task ended (`flwr.common.constant.SubStatus`)."""
        self.client.PushTaskOutput(PushTaskOutputRequest(sub_status=outcome, details=details))
        self._token.value = ""

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def reconnecting(seconds: float = 2.0) -> RetryInvoker:
    """Retry requests that certainly did not arrive, for a short time.

    A server may close an idle connection just when it is used again: that is no failure. Being away
    for longer is one. Flower's own invoker retries for ever, and ends the process at a refusal.
    """
    return RetryInvoker(
        lambda: constant(0.2),
        (httpx.ConnectError, httpx.RemoteProtocolError),
        max_tries=None,
        max_time=seconds,
        jitter=None,
    )


@contextmanager
def heartbeat(client: RuntimeHttpClient) -> Iterator[threading.Event]:
    """Send heartbeats for the current task; the event is set once Flower has given it up."""
    stop, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not lost.is_set() and not stop.wait(HEARTBEAT):
            try:
                if not client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success:
                    lost.set()
            except httpx.HTTPStatusError as error:
                log.warning("heartbeat refused: %s", error.response.status_code)
                lost.set()
            except httpx.TransportError as error:
                log.warning("heartbeat not delivered: %s", error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        stop.set()
        thread.join(timeout=1.0)
