"""The server loop's run at the SuperLink, and the task of that run.

Flower would start a process for the run and end it with the SuperLink. Instead, the loop starts a
run whenever it starts, and acquires its task. Progress is in the loop's own checkpoint, so that no
run of Flower's needs to be resumed.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import httpx
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedkoopman.deploy.flower.control import start_run, stop_runs
from fedkoopman.deploy.flower.tasks import Tasks, heartbeat, reconnecting
from fedkoopman.errors import ComputationError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerTask:
    """A run that this process acts for.

    Arguments:
        grid: carries its messages.
        run: its id.
        lost: set once the SuperLink has given it up.
    """

    grid: HttpGrid
    run: int
    lost: Event


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


def _grid(address: str, token: str, certificates: Path | None) -> HttpGrid:
    grid = HttpGrid(
        address,
        insecure=certificates is None,
        root_certificates=None if certificates is None else certificates.read_bytes(),
        token=token,
    )
    grid._retry_invoker = reconnecting()
    return grid


def _finish(grid: HttpGrid, outcome: str, details: str) -> None:
    """Report how the run ended, if the SuperLink still answers."""
    request = PushTaskOutputRequest(sub_status=outcome, details=details)
    try:
        grid._runtime_client.PushTaskOutput(request)
    except httpx.HTTPError as error:
        log.info("could not report the end of the run: %s", error)
