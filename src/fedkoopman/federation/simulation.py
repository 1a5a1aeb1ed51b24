"""The engine: a whole federation in one process, on all cores, for one seed or many.

Leaf jobs (solving, filtering, training one client, scoring one model) are compiled functions that
run on one core each and release Python's lock; a thread per core takes them from all clients and
seeds as they become ready, training first. Segments are prepared some slots ahead, in batches; a
model is scored while the next slots train.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.evaluation import Metrics, evaluate
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.policies import Threshold
from fedkoopman.federation.schemes import Scheme, scheme_of
from fedkoopman.federation.scoring import combined
from fedkoopman.federation.sites import Address, Sites, arrived, held_out
from fedkoopman.federation.slot import State, Task, conclude, decide, tasks
from fedkoopman.federation.streams import subseed
from fedkoopman.federation.workers import Urgency, Workers
from fedkoopman.koopman.kind import Weights
from fedkoopman.koopman.training import Training, client_update, train

__all__ = ["Outcome", "first_state", "scores_of", "simulate_federation"]

AHEAD = 8
"""Slots that may train before the first of them is scored."""


@dataclass(frozen=True)
class Outcome:
    """A finished slot: the state to go on from, and its record."""

    state: State
    record: dict[str, Any]


def first_state(experiment: Experiment) -> State:
    """The untrained model and empty buffers."""
    experiment, _ = scheme_of(experiment)
    seed, dtype = subseed(experiment.seed, "weights"), np.dtype(experiment.training.precision)
    weights = experiment.architecture.initialise(seed=seed, dtype=dtype)
    return State(0, weights, ((),) * len(experiment.clients))


def simulate_federation(
    experiment: Experiment, workers: Workers, start: State | None = None
) -> Iterator[Outcome]:
    """Run an experiment and yield every slot as it is finished and scored.

    Arguments:
        workers: who do leaf jobs.
        start: where to go on; None starts with the untrained model, and yields it as slot 0.
    """
    experiment, scheme = scheme_of(experiment)
    began = time.perf_counter()
    state = start or first_state(experiment)
    # Compiling takes longer than running: what can be compiled side by side is begun now.
    workers.submit(Urgency.TRAIN, partial(_compile, experiment, state.weights))
    tests = held_out(experiment)

    def scored(weights: Weights) -> Future[Metrics]:
        def score() -> Metrics:
            found = [evaluate(experiment.architecture, weights, test) for test in tests]
            return combined([(f, len(t.trajectories)) for f, t in zip(found, tests, strict=True)])

        return workers.submit(Urgency.SCORE, score)

    score = scored(state.weights)
    waiting: deque[tuple[State, dict[str, Any], Future[Metrics]]] = deque()
    if start is None:
        nothing = {"arrived": [], "buffered": [0] * len(experiment.clients), "active": []}
        waiting.append((state, {"slot": 0, **nothing, "samples": 0, "dropped": []}, score))

    def finish() -> Outcome:
        state, record, score = waiting.popleft()
        scores = scores_of(score.result(), experiment.training)
        seconds = round(time.perf_counter() - began, 3)
        return Outcome(state, {**record, **scores, "seconds": seconds})

    with ThreadPoolExecutor(1) as ahead:
        for slot, came, usable in _prepared(experiment, scheme, state, workers, ahead):
            state, record, trained = _run_slot(
                experiment, scheme, state, slot, came, usable, workers
            )
            if trained:
                score = scored(state.weights)
            waiting.append((state, record, score))
            while waiting and (len(waiting) > AHEAD or waiting[0][2].done()):
                yield finish()
        while waiting:
            yield finish()


def _run_slot(
    experiment: Experiment,
    scheme: Scheme,
    state: State,
    slot: int,
    came: list[int],
    segments: dict[Address, NDArray],
    workers: Workers,
) -> tuple[State, dict[str, Any], bool]:
    usable = [n for n in came if (slot, n) in segments]
    dropped = [n for n in came if (slot, n) not in segments]
    decision = decide(experiment, state, usable)
    jobs = tasks(experiment, scheme, decision)

    def update(job: Task) -> Weights:
        return client_update(
            experiment.architecture,
            experiment.training,
            state.weights,
            [segments[Address(*address)] for address in job.segments],
            seed=job.seed,
            learning_rate=job.learning_rate,
        )

    models = workers.map(Urgency.TRAIN, update, jobs)
    after, refused = conclude(state, decision, jobs, models)
    spent = [address for job in jobs for address in job.segments]
    for address in spent:
        del segments[Address(*address)]
    record = {
        "slot": slot,
        "arrived": came,
        "buffered": decision.buffered.tolist(),
        "active": list(decision.active),
        "samples": sum(job.samples for job in jobs),
        "dropped": dropped,
    }
    if refused:
        record["refused"] = list(refused)
    return after, record, bool(jobs)


def _prepared(
    experiment: Experiment, scheme: Scheme, state: State, workers: Workers, ahead: Executor
) -> Iterator[tuple[int, list[int], dict[Address, NDArray]]]:
    """Every slot to come with its arrivals and all segments that are held, the next batch of slots
    being prepared meanwhile."""
    sites = Sites(experiment, scheme.perfect)
    dtype = np.dtype(experiment.training.precision)
    luck = (
        (slot, arrived(experiment, slot)) for slot in range(state.slot + 1, experiment.slots + 1)
    )

    def prepare(batch: list[tuple[int, list[int]]], also: list[Address]) -> dict[Address, NDArray]:
        wanted = also + [Address(slot, n) for slot, came in batch for n in came]
        found = sites.segments(wanted, workers)
        return {a: x.astype(dtype) for a, x in found.items() if x is not None}

    # After a resumption, what the clients hold is made again rather than read from disk.
    held = [Address(m, n) for n, slots in enumerate(state.buffers) for m in slots]
    segments: dict[Address, NDArray] = {}
    batches = _batches(luck, 4 * sites.lanes)
    batch = next(batches, [])
    coming = ahead.submit(prepare, batch, held)
    while batch:
        segments |= coming.result()
        following = next(batches, [])
        coming = ahead.submit(prepare, following, [])
        for slot, came in batch:
            yield slot, came, segments
        batch = following


def _compile(experiment: Experiment, weights: Weights) -> None:
    """Have training compiled, for the amount of data that the threshold policy will give it."""
    policy = experiment.policy
    least = np.min(policy.segments) if isinstance(policy, Threshold) else 1
    segments = max(1, math.ceil(least))
    nothing = np.zeros((segments * experiment.steps, experiment.architecture.state_dim))
    order = np.zeros((experiment.training.epochs, 1), np.int32)
    train(experiment.architecture, experiment.training, weights, nothing, order)


def _batches(
    luck: Iterator[tuple[int, list[int]]], enough: int
) -> Iterator[list[tuple[int, list[int]]]]:
    """Slots together, as many as yield enough segments."""
    batch: list[tuple[int, list[int]]] = []
    count = 0
    for slot, came in luck:
        batch.append((slot, came))
        count += len(came)
        if count >= enough:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def scores_of(found: Metrics, training: Training) -> dict[str, float]:
    """A model's scores as they stand in a record."""
    w1, w2, w3 = training.loss_weights
    return {
        "loss": w1 * found.l1 + w2 * found.l2 + w3 * found.l3,
        "l1": found.l1,
        "l2": found.l2,
        "l3": found.l3,
        "E1": found.e1,
        "E2": found.e2,
        "E": found.e,
        "horizon": found.horizon,
    }
