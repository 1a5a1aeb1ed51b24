"""A thread per core that does the most urgent job first."""

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from enum import IntEnum
from queue import PriorityQueue
from types import TracebackType
from typing import Any, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


class Urgency(IntEnum):
    """What goes before what: the next slot waits for training, for the rest nobody does."""

    END = 0
    TRAIN = 1
    PREPARE = 2
    SCORE = 3


class Workers:
    """Runs compiled functions, which release Python's lock, on several cores.

    `concurrent.futures` has pools without order of precedence: training would queue behind the
    preparation of segments that are needed much later.
    """

    def __init__(self, count: int) -> None:
        """Arguments: count: of threads."""
        self._jobs: PriorityQueue[tuple[int, int, Future | None, Callable[[], Any] | None]]
        self._jobs = PriorityQueue()
        self._order = itertools.count()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, urgency: Urgency, job: Callable[[], Result]) -> "Future[Result]":
        """Have a job done; jobs of one urgency in the order they came."""
        future: Future[Result] = Future()
        self._jobs.put((urgency, next(self._order), future, job))
        if self._closed:  # looked at last: nobody may be left to take it
            future.cancel()
        return future

    def map(
        self, urgency: Urgency, job: Callable[[Given], Result], given: Iterable[Given]
    ) -> list[Result]:
        """Have a job done for each of the given, and wait for the results."""
        futures = [self.submit(urgency, lambda one=one: job(one)) for one in given]  # type: ignore[misc]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Cancel what has not begun, and wait for what has."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put((Urgency.END, next(self._order), None, None))
        for thread in self._threads:
            thread.join()
        while not self._jobs.empty():
            _, _, future, _ = self._jobs.get()
            if future is not None:
                future.cancel()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            _, _, future, job = self._jobs.get()
            if future is None or job is None:
                return
            if self._closed:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
