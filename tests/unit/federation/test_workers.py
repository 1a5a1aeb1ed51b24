"""The most urgent job first, and nobody left waiting when it is over."""

import threading
import time
from concurrent.futures import CancelledError

import pytest

from fedkoopman.federation.workers import Urgency, Workers


def test_the_most_urgent_job_goes_first_and_equals_go_in_turn() -> None:
    begin, done = threading.Event(), []
    with Workers(1) as workers:
        workers.submit(Urgency.TRAIN, begin.wait)  # keeps the only thread until all have come
        jobs = [
            workers.submit(urgency, lambda name=name: done.append(name))
            for urgency, name in (
                (Urgency.SCORE, "score"),
                (Urgency.PREPARE, "prepare"),
                (Urgency.TRAIN, "train 1"),
                (Urgency.TRAIN, "train 2"),
            )
        ]
        begin.set()
        for job in jobs:
            job.result()
    assert done == ["train 1", "train 2", "prepare", "score"]


def test_results_come_in_the_order_of_what_was_given() -> None:
    with Workers(3) as workers:
        assert workers.map(Urgency.TRAIN, lambda n: n * n, range(50)) == [n * n for n in range(50)]


def test_a_failure_reaches_who_asked_and_no_one_else() -> None:
    with Workers(2) as workers:
        with pytest.raises(ZeroDivisionError):
            workers.map(Urgency.TRAIN, lambda n: 1 / n, [1, 0])
        assert workers.map(Urgency.TRAIN, lambda n: 1 / n, [1, 2]) == [1, 0.5]


def test_closing_finishes_what_has_begun_and_cancels_the_rest() -> None:
    begun, go_on = threading.Event(), threading.Event()
    workers = Workers(1)

    def first() -> str:
        begun.set()
        go_on.wait()
        return "done"

    running = workers.submit(Urgency.SCORE, first)
    begun.wait()
    waiting = [workers.submit(Urgency.PREPARE, lambda: None) for _ in range(3)]
    closing = threading.Thread(target=workers.close)
    closing.start()
    while not workers._closed:
        time.sleep(0.001)
    go_on.set()
    closing.join()
    assert running.result() == "done"
    for job in waiting:
        with pytest.raises(CancelledError):
            job.result(timeout=10)
    with pytest.raises(CancelledError):
        workers.submit(Urgency.TRAIN, lambda: None).result(timeout=10)
