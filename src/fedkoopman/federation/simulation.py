"""The engine: a whole federation in one process, on all cores, for one seed or many.

Leaf jobs (solving, filtering, training one client, scoring one model) are compiled functions that
run on one core each and release Python's lock; a thread per core takes them from all clients and
seeds as they become ready, training first. Segments are prepared some slots ahead, in batches; a
model is scored while the next slots train.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.evaluation import Metrics, combined, evaluate, scores_of
from fedkoopman.federation.algorithm import Asked
from fedkoopman.federation.experiment import Experiment, Scheme, scheme_of
from fedkoopman.federation.messages import Message
from fedkoopman.federation.privacy import over_budget, spent_by, stopped
from fedkoopman.federation.quantised import summed
from fedkoopman.federation.sites import (
    Address,
    Sites,
    arrived,
    held_out,
    judges_segments,
    samples,
)
from fedkoopman.federation.slot import (
    Judged,
    State,
    answer,
    ask,
    concluded,
    fault_of,
    looks_again,
    parts_of,
    record_of,
    second_requests,
    summable,
    usual_samples,
)
from fedkoopman.federation.streams import subseed
from fedkoopman.federation.workers import Urgency, Workers

AHEAD = 8
"""Slots that may train before the first of them is scored."""


@dataclass(frozen=True)
class Outcome:
    """A finished slot: the state to go on from, and its record."""

    state: State
    record: dict[str, Any]


def first_state(experiment: Experiment) -> State:
    """The algorithm's first state, and empty buffers."""
    experiment, _ = scheme_of(experiment)
    problem, nobody = experiment.problem, ((),) * len(experiment.clients)
    return State(0, problem.algorithm.begin(problem), nobody, nobody)


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
    problem = experiment.problem
    workers.submit(Urgency.TRAIN, partial(problem.algorithm.warm, problem, usual_samples(problem)))
    tests = held_out(experiment)

    def scored(state: State) -> Future[Metrics]:
        model = problem.algorithm.model(problem, state.arrays)
        weights = experiment.architecture.from_named(model)

        def score() -> Metrics:
            found = [evaluate(experiment.architecture, weights, test) for test in tests]
            return combined([(f, len(t.trajectories)) for f, t in zip(found, tests, strict=True)])

        return workers.submit(Urgency.SCORE, score)

    score = scored(state)
    waiting: deque[tuple[State, dict[str, Any], Future[Metrics]]] = deque()
    if start is None:
        nobody = record_of(0, [], arrived=[], buffered=[0] * len(experiment.clients))
        waiting.append((state, nobody, score))

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
                score = scored(state)
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
    """A slot's state and record, and whether anybody was asked."""
    problem = experiment.problem
    schemas = problem.algorithm.messages(problem)
    buffers = tuple(
        (*slots, slot) if Address(slot, n) in segments else slots
        for n, slots in enumerate(state.buffers)
    )

    def size(address: Address) -> int:
        return kept_samples(segments[address])

    buffered, jobs = jobs_of(experiment, scheme, state, buffers, size)
    kept, alone = summable(problem, {job.clients[0]: job.request for job in jobs})
    jobs = [job for job in jobs if job.clients[0] in kept]

    def answered(job: Job) -> Message:
        return answer(problem, job.request, [segments[a] for a in job.segments], job.asked)

    out = [job.clients[0] for job in jobs if _over_budget(experiment, state, job, segments)]
    jobs = [job for job in jobs if job.clients[0] not in out]
    judged: list[Judged] = []
    for job, reply in zip(jobs, workers.map(Urgency.TRAIN, answered, jobs), strict=True):
        reason = fault_of(schemas, job.request, reply)
        first = job.clients[0]
        judged += [Judged(first, job.samples, reply, reason, True, job.clients, job.request)]
        judged += [Judged(n, 0, None, reason) for n in job.clients[1:]]
    second = second_requests(problem, state.arrays, slot, judged, range(problem.clients))
    reviews = _reviews(experiment, scheme, slot, second, workers) if second else {}
    judged, total = summed(problem, {job.clients[0]: job.request for job in jobs}, judged)
    arrays, told = concluded(problem, state.arrays, slot, judged, reviews, total, out)
    told = {**_left_out(experiment, came, segments, slot), **told}
    again = looks_again(schemas)
    late = [one.client for one in judged if not one.answered]
    jobs = [job for job in jobs if job.clients[0] not in late]
    spending = {n for job in jobs if job.spends for n in job.clients}
    spent = tuple(
        (*before, *slots) if again and n in spending else before
        for n, (before, slots) in enumerate(zip(state.spent, buffers, strict=True))
    )
    if not again:
        for job in jobs:
            for address in job.segments:
                del segments[address]
    after = tuple(() if n in spending else slots for n, slots in enumerate(buffers))
    record = record_of(
        slot,
        judged,
        arrived=came,
        buffered=buffered.tolist(),
        dropped=[n for n in came if slot not in buffers[n]],
        told=told,
        alone=alone,
        late=late,
        budget_spent=[n for n, over in enumerate(stopped(problem, arrays)) if over],
    )
    return State(slot, arrays, after, spent), record, bool(jobs)


def _reviews(
    experiment: Experiment,
    scheme: Scheme,
    slot: int,
    requests: dict[int, Message],
    workers: Workers,
) -> dict[int, Message]:
    """Replies to the second requests of a slot that fit their schemas."""
    problem = experiment.problem
    schemas = problem.algorithm.messages(problem)
    held = judges_segments(experiment, scheme.perfect, scheme.raw)

    def judgement(n: int) -> Message:
        client, data = experiment.clients[n], schemas[requests[n].kind].data
        seed = subseed(experiment.seed, "training", slot, client.identity)
        own = Asked(slot, seed, client.learning_rate)
        segments = held[n] if data == "held-out" else ()
        return answer(problem, requests[n], segments, own)

    replies = workers.map(Urgency.TRAIN, judgement, requests)
    return {
        n: reply
        for n, reply in zip(requests, replies, strict=True)
        if not fault_of(schemas, requests[n], reply)
    }


def _left_out(
    experiment: Experiment, came: list[int], segments: Mapping[Address, NDArray], slot: int
) -> dict[str, int]:
    """For the record, how many samples were left out of simulated segments that came and are used.

    What is left out of sites' own data is told by site, in the summary.
    """
    if experiment.deliveries is not None:
        return {}
    new = [segments[Address(slot, n)] for n in came if Address(slot, n) in segments]
    count = sum(experiment.steps - kept_samples(states) for states in new)
    return {"left_out": count} if count else {}


def _over_budget(
    experiment: Experiment, state: State, job: "Job", segments: dict[Address, NDArray]
) -> bool:
    """Whether an answer would take a client over its privacy budget."""
    problem, client = experiment.problem, experiment.clients[job.clients[0]]
    if problem.privacy.mode == "none" or not math.isfinite(client.budget):
        return False
    held = parts_of(problem, [segments[address] for address in job.segments])
    spent = spent_by(problem, state.arrays, job.clients[0])
    return over_budget(problem, job.request, held, spent, client.budget)


class Job(NamedTuple):
    """One answer to be computed."""

    request: Message
    segments: tuple[Address, ...]
    asked: Asked
    clients: tuple[int, ...]
    """Who holds the segments; more than one where the server computes the answer itself."""
    samples: int
    spends: bool
    """Whether the answer spends the segments that wait."""


def jobs_of(
    experiment: Experiment,
    scheme: Scheme,
    state: State,
    buffers: tuple[tuple[int, ...], ...],
    size: Callable[[Address], int] | None = None,
) -> tuple[NDArray[np.int64], list[Job]]:
    """How many samples wait at each client, and what is computed in the next slot.

    That is a job for every client that is asked; with the scheme `centralized` one for the server.

    Arguments:
        buffers: for each client, the slots whose segments wait, those of this slot included.
        size: samples of a segment; None: as many as were observed, none left out.
    """
    problem, slot = experiment.problem, state.slot + 1
    schemas = problem.algorithm.messages(problem)
    size = size or partial(samples, experiment)
    sizes = [sum(size(Address(m, n)) for m in s) for n, s in enumerate(buffers)]
    buffered, jobs = np.array(sizes, np.int64), list[Job]()
    present = [not over for over in stopped(problem, state.arrays)]
    for n, request in ask(problem, state.arrays, slot, buffered, present).items():
        client, data = experiment.clients[n], schemas[request.kind].data
        held = {"waiting": buffers[n], "arrived": (*state.spent[n], *buffers[n]), "none": ()}[data]
        addresses = tuple(Address(m, n) for m in held)
        seed = subseed(experiment.seed, "training", slot, client.identity)
        count = sum(map(size, addresses))
        secret = subseed(experiment.seed, "privacy", slot, client.identity)
        own = Asked(slot, seed, client.learning_rate, secret=secret)
        jobs.append(Job(request, addresses, own, (n,), count, schemas[request.kind].spends))
    if not scheme.central or not jobs:
        return buffered, jobs
    everything = tuple(address for job in jobs for address in job.segments)
    server = Asked(slot, subseed(experiment.seed, "server", slot), problem.training.learning_rate)
    everybody, count = tuple(n for job in jobs for n in job.clients), sum(j.samples for j in jobs)
    joined = Job(jobs[0].request, everything, server, everybody, count, jobs[0].spends)
    return buffered, [joined]


def _prepared(
    experiment: Experiment, scheme: Scheme, state: State, workers: Workers, ahead: Executor
) -> Iterator[tuple[int, list[int], dict[Address, NDArray]]]:
    """Every slot to come with its arrivals and all segments that are held, the next batch of slots
    being prepared meanwhile."""
    sites = Sites(experiment, scheme.perfect, scheme.raw)
    luck = (
        (slot, arrived(experiment, slot)) for slot in range(state.slot + 1, experiment.slots + 1)
    )

    def prepare(batch: list[tuple[int, list[int]]], also: list[Address]) -> dict[Address, NDArray]:
        wanted = also + [Address(slot, n) for slot, came in batch for n in came]
        found = sites.segments(wanted, workers)
        return {a: x for a, x in found.items() if x is not None}

    # After a resumption, what the clients hold is made again rather than read from disk.
    kept = (state.buffers, state.spent)
    held = [Address(m, n) for each in kept for n, slots in enumerate(each) for m in slots]
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
