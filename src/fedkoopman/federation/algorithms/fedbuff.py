"""FedBuff: updates are gathered in a buffer, and slow clients hold nobody up.

Clients train as in FedAvg-M, each on the model that it was given when it was asked. The server adds
what comes to a buffer and takes a step when K updates are gathered (`algorithm.buffer`). By then it
may have taken s steps since an update's model was sent out: such an update δ_n is s steps stale and
counts (1 + s)^−a times (`algorithm.staleness`). With sizes |D_n| over the updates of the buffer,

    ω ← ω + Σ_n |D_n| (1 + s_n)^−a δ_n / Σ_n |D_n|,

where the aggregation rule stands for that mean, and the server's step follows it. Answers of one
slot are gathered together, before the server looks whether they are enough.

A site that misses the deadline of its slot goes on training. It is asked the same again in later
slots, for which the server keeps its last models, and then gives the answer that it has. In `run`
everybody answers in time: there, `algorithm.delays` sends clients the model of some slots before.

Reference: J. Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS
2022.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.combining import average_of, combined, first_memory
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.policies import Situation, activate
from fedkoopman.federation.streams import generator
from fedkoopman.koopman.kind import Kind

__all__ = ["ALGORITHM", "FedBuff"]

KEPT = 16
"""Models that the server keeps, the newest included. Who was asked before the oldest of them came
is asked anew, with the newest."""
PAST, BUFFER = "past.", "buffer."
"""Before the names in the state: the last models, newest first; and for every client, what the
newest model becomes by its updates in the buffer alone."""
SINCE, SIZES, GATHERED = "since", "sizes", "gathered"
"""After which slot each of the last models came, -1 where there is none yet; samples of each
client's updates in the buffer; how many updates these are."""


class FedBuff:
    """FedAvg-M's messages, with a server that waits for nobody."""

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """Those of FedAvg-M. The server needs single updates, as they differ in staleness."""
        found = FedAvgM().messages(problem)
        train, update = found["train"], found["update"]
        return {
            "train": Schema(train.words, train.arrays, reply="update", lasting=True),
            "update": Schema(update.words, update.arrays, changes=True),
        }

    def check_kind(self, kind: Kind) -> None:
        """Refuse kinds that are learned in stages."""
        FedAvgM().check_kind(kind)

    def check_server(self, kind: Kind) -> None:
        """The server's step is taken when the buffer is full."""

    def begin(self, problem: Problem) -> Arrays:
        """The untrained model, and an empty buffer."""
        kind, state = problem.architecture, FedAvgM().begin(problem)
        model = {name: state[name] for name, _ in kind.shapes()}
        return {
            **{f"{PAST}{name}": np.stack([leaf] * KEPT) for name, leaf in model.items()},
            SINCE: np.array([0.0] + [-1.0] * (KEPT - 1)),
            **_empty(problem, model),
            **first_memory(problem, model),
        }

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """Those whom the policy chooses, and those who still owe an answer."""
        random = generator(problem.seed, "policy", slot)
        situation = Situation(slot, ready.waiting, problem.steps, random, problem.thresholds)
        slow = np.flatnonzero((ready.owed > 0) & (ready.waiting > 0))
        chosen = {*activate(problem.policy, situation).tolist(), *slow.tolist()}
        ages = {n: _age(problem, state, n, ready.asked(n, slot)) for n in sorted(chosen)}
        return {n: Message("train", _model(state, age)) for n, age in ages.items()}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """ClientUpdate, as in FedAvg-M."""
        return FedAvgM().answer(problem, request, segments, asked)

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """Updates into the buffer and, if these are enough, a step."""
        current, after, ages = _model(state), _with_room(problem, state), []
        for n, reply in replies.items():
            age = _age(problem, state, n, reply.asked)
            moved = _moved(problem, current, _model(state, age), reply.message.arrays, age)
            after = _added(after, n, moved, reply.samples)
            ages.append(age)
        count = int(after[GATHERED][0])
        told = {"staleness": ages, "gathered": count}
        if count < problem.buffering.buffer:
            return after, told
        gathered = {
            int(n): Answered(
                Message("update", {name: after[f"{BUFFER}{name}"][n] for name in current}),
                int(after[SIZES][n]),
                (int(n),),
            )
            for n in np.flatnonzero(after[SIZES])
        }
        model, memory, more = combined(problem, state, current, gathered)
        newest = _remembered(state, slot, model)
        return {**after, **_empty(problem, model), **memory, **newest}, {**told, **more}

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The newest model, or the average of all."""
        return average_of(problem, state, _model(state))

    def warm(self, problem: Problem, samples: int) -> None:
        """Compile training for so many samples."""
        FedAvgM().warm(problem, samples)


def _age(problem: Problem, state: Arrays, client: int, asked: int) -> int:
    """s, the steps that the server has taken since it sent a client its model.

    Arguments:
        asked: the slot in which the client was first asked for what it sends now.
    """
    then = max(1, asked - problem.buffering.delay(client))
    since = state[SINCE]
    old = np.flatnonzero((since >= 0) & (since < then))
    return int(old[0]) if len(old) else 0


def _model(state: Arrays, age: int = 0) -> dict[str, NDArray[Any]]:
    """The server's model of so many steps before."""
    return {
        name.removeprefix(PAST): leaf[age] for name, leaf in state.items() if name.startswith(PAST)
    }


def _moved(
    problem: Problem, current: Arrays, given: Arrays, trained: Arrays, age: int
) -> dict[str, NDArray[Any]]:
    """What the newest model becomes by an update alone; of a fresh one, that is the update itself.

    Arguments:
        given: the model from which the update was trained.
        trained: the update.
    """
    if not age:
        return dict(trained)
    share = (1.0 + age) ** -problem.buffering.staleness
    return {
        name: (leaf + share * (np.float64(trained[name]) - given[name])).astype(leaf.dtype)
        for name, leaf in current.items()
    }


def _empty(problem: Problem, model: Arrays) -> dict[str, NDArray[Any]]:
    """A buffer without updates."""
    count = problem.clients
    rooms = {f"{BUFFER}{n}": np.zeros((count, *x.shape), x.dtype) for n, x in model.items()}
    return {**rooms, SIZES: np.zeros(count), GATHERED: np.zeros(1)}


def _with_room(problem: Problem, state: Arrays) -> dict[str, NDArray[Any]]:
    """A state whose buffer has room for every client, also for those that were enrolled later."""
    lacking = max(0, problem.clients - len(state[SIZES]))
    rooms = [SIZES, *(name for name in state if name.startswith(BUFFER))]
    padding = {name: ((0, lacking),) + ((0, 0),) * (state[name].ndim - 1) for name in rooms}
    return {**state, **{name: np.pad(state[name], wide) for name, wide in padding.items()}}


def _added(
    state: dict[str, NDArray[Any]], client: int, moved: Arrays, samples: int
) -> dict[str, NDArray[Any]]:
    """With one more update in the buffer; several of one client are their mean."""
    found, before = dict(state), state[SIZES][client]
    found[SIZES] = state[SIZES] + samples * (np.arange(len(state[SIZES])) == client)
    found[GATHERED] = state[GATHERED] + 1
    for name, leaf in moved.items():
        room = state[f"{BUFFER}{name}"].copy()
        if before:  # else it is kept to the last bit
            leaf = (before * np.float64(room[client]) + samples * leaf) / (before + samples)
        room[client] = leaf
        found[f"{BUFFER}{name}"] = room
    return found


def _remembered(state: Arrays, slot: int, model: Arrays) -> dict[str, NDArray[Any]]:
    """The last models, of which this is the newest."""
    last = {
        f"{PAST}{name}": np.concatenate([leaf[None], state[f"{PAST}{name}"][:-1]])
        for name, leaf in model.items()
    }
    return {**last, SINCE: np.concatenate([[float(slot)], state[SINCE][:-1]])}


ALGORITHM = FedBuff()
