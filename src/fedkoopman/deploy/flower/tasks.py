"""Tasks of Flower's Runtime API: acquired, kept alive, and finished by our own process.

Flower starts a new process for every message, which runs the app that came with the run. A process
that acquires the tasks itself need not start anew, and runs only its own code: the courier at a
SuperNode, and the server loop at the SuperLink.

The server loop starts a run whenever it starts, and acquires its task. Progress is in the loop's
own checkpoint, so that no run of Flower's needs to be resumed. What only the loop needs of Flower
is imported when it is needed, to keep the courier small.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TASK_TOKEN_HEADER, TaskType
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient

from fedkoopman.deploy.flower.control import start_run, stop_runs
from fedkoopman.errors import ComputationError, InputError

if TYPE_CHECKING:
    from flwr.superlink.grid import HttpGrid

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


@dataclass(frozen=True)
class ServerTask:
    """A run that this process acts for.

    Arguments:
        grid: carries its messages.
        run: its id.
        lost: set once the SuperLink has given it up.
    """

    grid: "HttpGrid"
    run: int
    lost: threading.Event


@contextmanager
def acquire_server_task(
    address: str, secret: Path, *, certificates: Path | None = None, seconds: float = 30.0
) -> Iterator[ServerTask]:
    """Start a run and hold its task until the block ends; older open runs are ended.

    Arguments:
        address: HOST:PORT of the SuperLink, on loopback.
        secret: shared with the SuperLink.
        certificates: of the authority that signed the SuperLink's; None: no TLS.
        seconds: how long to wait for the task.
    """
    from flwr.common.serde import run_from_proto
    from flwr.supercore.task_identity import TaskIdentity

    for left in stop_runs(address, certificates=certificates):
        log.info("ended run %d, which had been left open", left)
    run = start_run(address, certificates=certificates)
    grid = _grid(address, _token(address, secret, certificates, run, seconds), certificates)
    try:
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id = given.task_id
        TaskIdentity.run_id = given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        log.info("run %d begins", run)
        with heartbeat(grid._runtime_client) as lost:
            yield ServerTask(grid, run, lost)
    except Exception as error:
        _finish(grid, SubStatus.FAILED, " ".join(str(error).split()))
        raise
    except BaseException:
        _finish(grid, SubStatus.STOPPED, "stopped")
        raise
    else:
        _finish(grid, SubStatus.COMPLETED, "")
    finally:
        grid.close()


def _token(address: str, secret: Path, certificates: Path | None, run: int, seconds: float) -> str:
    """The token with which this process acts for a run."""
    tasks = Tasks(address, secret, certificates)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            task = tasks.acquire(TaskType.SERVER_APP)
            if task is not None and task.run_id == run:
                return tasks.token
            if task is not None:
                tasks.finish(SubStatus.FAILED, "left over")
            time.sleep(0.05)
    except httpx.HTTPError as error:
        cause = " ".join(str(error).split())
        raise ComputationError(f"the SuperLink at {address} gives no task: {cause}") from error
    finally:
        tasks.close()
    raise ComputationError(
        f"the SuperLink at {address} gave no task for run {run} within {seconds:.0f} s: is it "
        "started with --isolation process?"
    )


def _grid(address: str, token: str, certificates: Path | None) -> "HttpGrid":
    from flwr.superlink.grid import HttpGrid

    grid = HttpGrid(
        address,
        insecure=certificates is None,
        root_certificates=None if certificates is None else certificates.read_bytes(),
        token=token,
    )
    grid._retry_invoker = reconnecting()
    return grid


def _finish(grid: "HttpGrid", outcome: str, details: str) -> None:
    """Report how the run ended, if the SuperLink still answers."""
    request = PushTaskOutputRequest(sub_status=outcome, details=details)
    try:
        grid._runtime_client.PushTaskOutput(request)
    except httpx.HTTPError as error:
        log.info("could not report the end of the run: %s", error)
