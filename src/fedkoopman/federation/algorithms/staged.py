"""Learning in stages, for model kinds that are made of sums (`koopman.staged`).

    collect   the first slots: data arrive, and nobody is asked
    scale     one slot: sites send counts, sums and squares of their states
    look      one slot, and another half way: sums as in the last stage, with the features as they
              are then; they make a first model, and are forgotten
    features  sites whom the policy chooses train the shared features; their aggregate is the next
    sums      features stay; sites send sums of products, and the server solves the model in closed
              form, in every slot in which sums come

A site's first sums are over all segments that ever arrived there, the next ones over new segments
only. So every sample counts once, and in the end the sums are those of the pooled data, whoever was
away for how long. A kind without features goes from the scale to the sums, and adds up from then
on; a kind without sums stays with the features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.combining import average_of, combined, first_memory
from fedkoopman.federation.messages import ArrayField, Arrays, Message, Schema
from fedkoopman.federation.policies import Situation, activate
from fedkoopman.federation.screening import Finding, remembered, screened
from fedkoopman.federation.streams import generator, subseed
from fedkoopman.koopman.fitting import decayed
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.staged import Staged
from fedkoopman.koopman.training import Training, client_update, train

__all__ = ["ALGORITHM", "StagedLearning"]

COLLECTING = 20
"""One slot in so many goes by before the scale is agreed on: more data make it a better one."""
SUMMING = 10
"""The last tenth of the slots is for sums: who is away for a while is still counted."""
REPLAY = 3
"""A round of training draws so many times the segments of a round of FedAvg-M from all that ever
arrived, for fewer epochs: steps on mixed data learn more than passes over the newest."""
LUCK = 2
"""Segments that come to one site more often than to another, when there are few."""
FIXED, FEATURES, SUMS, MODEL = "scale.", "features.", "sums.", "model."
"""Before the names in the state: what the scale says, the features, all sums, the model."""


class StagedLearning:
    """The stages, for any kind that has some of them."""

    def check_kind(self, kind: Kind) -> None:
        """Refuse kinds that are not made of sums."""
        _staged(kind)

    def check_server(self, kind: Kind) -> None:
        """Refuse kinds without features that are trained: sums are added up, and nothing else."""
        if not _staged(kind).trains:
            raise InputError(
                f"the section server says what becomes of trained features, and the model kind "
                f"{kind.name} is solved from sums here: leave its keys out"
            )

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """Requests and replies of every stage that the kind has."""
        kind = _kind(problem)
        fixed = _fields(kind.fixed_shapes(), "float64")
        features = _fields(dict(kind.feature_shapes()), str(problem.dtype))
        found = {
            "measure": Schema("nothing", reply="scale", data="arrived"),
            "scale": Schema(
                "counts, sums and squares of states",
                _fields(kind.scale_shapes(), "float64"),
                additive=True,
            ),
        }
        if kind.trains:
            found |= {
                "train": Schema(
                    "the shared features",
                    fixed | features,
                    reply="features",
                    data="arrived",
                    spend=True,
                ),
                "features": Schema(
                    "features after local training",
                    features,
                    changes=True,
                    additive=problem.aggregator is mean,
                ),
            }
        if kind.sum_shapes():
            sums = _fields(kind.sum_shapes(), "float64")
            words = "the shared features"
            found |= {
                "look": Schema(words, fixed | features, reply="seen", data="arrived"),
                "seen": Schema("sums of products of lifted states", sums, additive=True),
                "add-all": Schema(
                    words, fixed | features, reply="sums", data="arrived", spend=True
                ),
                "add": Schema(words, fixed | features, reply="sums"),
                "sums": Schema("sums of products of lifted states", sums, additive=True),
            }
        return found

    def begin(self, problem: Problem) -> Arrays:
        """Nothing is known; the model expects no change."""
        kind, seed = _kind(problem), subseed(problem.seed, "weights")
        fixed = kind.fixed()
        features = kind.first_features(seed=seed, dtype=problem.dtype)
        return {
            "scaled": np.zeros(1),
            "looked": np.zeros(1),
            "counted": np.zeros(problem.clients),
            **_put(FIXED, fixed),
            **_put(FEATURES, features),
            **_put(SUMS, {name: np.zeros(shape) for name, shape in kind.sum_shapes().items()}),
            **_put(MODEL, kind.unsolved(fixed, features)),
            **first_memory(problem, features),
        }

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """What the stage of this slot needs to know."""
        kind = _kind(problem)
        if not state["scaled"][0]:
            if slot < collecting(problem.slots):
                return {}
            return {int(n): Message("measure") for n in np.flatnonzero(ready.present)}
        shared = {**_get(FIXED, state), **_get(FEATURES, state)}
        if kind.trains and kind.sum_shapes() and _looks(problem, state, slot):
            return {int(n): Message("look", shared) for n in np.flatnonzero(ready.present)}
        if kind.trains and slot <= _last_training(problem):
            return {n: Message("train", shared) for n in _chosen(problem, slot, ready)}
        counted = _padded(state["counted"], problem.clients)
        shared = {**_get(FIXED, state), **_final_features(problem, state)}
        new = [int(n) for n in np.flatnonzero(ready.present) if not counted[n]]
        # Between the first and the last sums the policy says how often sites speak.
        last = slot == problem.slots
        others = np.flatnonzero(ready.waiting).tolist() if last else _chosen(problem, slot, ready)
        requests = {n: Message("add", shared) for n in others if counted[n]}
        return requests | {n: Message("add-all", shared) for n in new}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """Sums, or trained features."""
        kind, given = _kind(problem), request.arrays
        if request.kind == "measure":
            return Message("scale", kind.scale_sums(segments))
        fixed = {name: given[name] for name in kind.fixed_shapes()}
        features = {name: given[name] for name, _ in kind.feature_shapes()}
        if request.kind != "train":
            reply = "seen" if request.kind == "look" else "sums"
            return Message(reply, kind.sums(fixed, features, segments))
        enough = [states for states in segments if len(states) >= kind.window + max(kind.leads)]
        if not enough:
            return Message("features", features)  # too short to be trained on, and not for sums
        first, last = collecting(problem.slots), _last_training(problem)
        drawn = _replayed(problem, enough, asked)
        found = client_update(
            kind,
            _training(problem),
            features,
            [states.astype(problem.dtype, copy=False) for states in drawn],
            seed=asked.seed,
            learning_rate=decayed(asked.learning_rate, (asked.slot - first) / (last - first + 1)),
            fixed=fixed,
        )
        return Message("features", found)

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """The next stage's beginning, the aggregate of the features, or the solution."""
        kind = _kind(problem)
        found = [reply.message for reply in replies.values()]
        fixed, features = _get(FIXED, state), _get(FEATURES, state)
        if found[0].kind == "scale":
            total = _added([message.arrays for message in found])
            if not total["count"][0]:
                return state, {}
            fixed = kind.fixed(total)
            model = kind.unsolved(fixed, features)
            after = {**state, "scaled": np.ones(1), **_put(FIXED, fixed), **_put(MODEL, model)}
            return after, {"stage": "scale"}
        if found[0].kind == "features":
            features, memory, told = combined(problem, state, features, replies)
            after = {**state, **_put(FEATURES, features), **memory}
            if not kind.sum_shapes():
                after |= _put(MODEL, kind.unsolved(fixed, _final_features(problem, after)))
            return after, {"stage": "features", **told}
        if found[0].kind == "seen":
            sums = _added([message.arrays for message in found])
            if not sums["pairs"][0]:
                return state, {}
            fixed = kind.looked(fixed, sums)
            model = kind.solve(fixed, features, sums)
            after = {**state, "looked": np.ones(1), **_put(FIXED, fixed), **_put(MODEL, model)}
            return after, {"stage": "look"}
        features = _final_features(problem, state)
        sums = _added([_get(SUMS, state), *(message.arrays for message in found)])
        counted = _padded(state["counted"], problem.clients)
        for reply in replies.values():
            counted[list(reply.clients)] = 1.0
        after = {
            **state,
            "counted": counted,
            **_put(SUMS, sums),
            **_put(MODEL, kind.solve(fixed, features, sums)),
            **remembered(state, replies, problem.clients),
        }
        return after, {"stage": "sums"}

    def screen(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[dict[int, Answered], dict[int, Finding]]:
        """Of replies that hold sums, those that may count, and why the others may not."""
        fixed, sums = _get(FIXED, state), _get(SUMS, state)
        # Others may hold back as much as the policy waits for.
        held = float(problem.thresholds.max()) if state["counted"].any() else 0.0
        slack = math.ceil((LUCK + held) * problem.steps)
        return screened(_kind(problem), state, fixed, sums, replies, slack=slack)

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The part of the state that is the model."""
        found = _get(MODEL, state)
        return {name: leaf.astype(problem.model_dtype) for name, leaf in found.items()}

    def warm(self, problem: Problem, samples: int) -> None:
        """Compile training for so many samples, and sums."""
        kind = _kind(problem)
        features = kind.first_features(seed=0, dtype=problem.dtype)
        if kind.sum_shapes():
            kind.sums(kind.fixed(), features, [np.zeros((2, kind.row_dim))])
        if kind.trains:
            nothing = np.zeros((REPLAY * samples, kind.row_dim))
            order = np.zeros((_training(problem).epochs, 1), np.int32)
            train(kind, _training(problem), features, nothing, order, fixed=kind.fixed())


def _final_features(problem: Problem, state: Arrays) -> dict[str, NDArray[Any]]:
    """Those that the model has: the average, if the study asks for one, while sites go on training
    the newest. In the last stage, sums are of these, and so is what is solved from them."""
    features = _get(FEATURES, state)
    return average_of(problem, state, features) if _kind(problem).trains else features


def _training(problem: Problem) -> Training:
    """As many steps as in a round of FedAvg-M, on more data and with fewer epochs."""
    epochs = math.ceil(problem.training.epochs / REPLAY)
    return replace(problem.training, epochs=epochs)


def _replayed(
    problem: Problem, segments: Sequence[NDArray[Any]], asked: Asked
) -> list[NDArray[Any]]:
    """Segments for one round, drawn from all that arrived; each once before any comes again. Of
    segments that are in pieces more are drawn, so that a round is about as long."""
    random = np.random.default_rng(asked.seed)
    pieces = max(1.0, len(segments) / (asked.delivered or len(segments)))
    count = math.ceil(usual_segments(problem) * REPLAY * pieces)
    order = [
        i for _ in range(-(-count // len(segments))) for i in random.permutation(len(segments))
    ]
    return [segments[i] for i in order[:count]]


def usual_segments(problem: Problem) -> int:
    """Segments that wait when a client trains for the first time, by the threshold policy."""
    return max(1, math.ceil(problem.thresholds.min()))


def collecting(slots: int) -> int:
    """The slot at whose end the scale is agreed on."""
    return max(1, math.ceil(slots / COLLECTING))


def _last_training(problem: Problem) -> int:
    """The last slot in which features are trained."""
    if not _kind(problem).sum_shapes():
        return problem.slots
    return problem.slots - max(1, problem.slots // SUMMING)


def _looks(problem: Problem, state: Arrays, slot: int) -> bool:
    """Whether this is the first slot after the scale, or half of all slots are over."""
    if slot > _last_training(problem):
        return False
    return not state["looked"][0] or slot == problem.slots // 2


def _kind(problem: Problem) -> Staged:
    return _staged(problem.architecture)


def _staged(kind: Kind) -> Staged:
    if not isinstance(kind, Staged):
        raise InputError(
            f"the algorithm staged learns kinds that are made of sums, and {kind.name} is not: "
            'give algorithm.name = "auto"'
        )
    return kind


def _chosen(problem: Problem, slot: int, ready: Ready) -> list[int]:
    """Those whom the policy chooses, of those that have data."""
    random = generator(problem.seed, "policy", slot)
    situation = Situation(slot, ready.waiting, problem.steps, random, problem.thresholds)
    return activate(problem.policy, situation).tolist()


def _fields(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> dict[str, ArrayField]:
    return {name: ArrayField(shape, dtype) for name, shape in shapes.items()}


def _put(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": leaf for name, leaf in arrays.items()}


def _get(prefix: str, state: Arrays) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): leaf for name, leaf in state.items() if name.startswith(prefix)
    }


def _added(parts: Sequence[Arrays]) -> dict[str, NDArray[Any]]:
    """The sum, array by array, in the order of the parts."""
    return {name: sum((one[name] for one in parts[1:]), parts[0][name]) for name in parts[0]}


def _padded(counted: NDArray[Any], clients: int) -> NDArray[Any]:
    """One entry for every client, also for those that were enrolled later."""
    return np.concatenate([counted, np.zeros(max(0, clients - len(counted)))])


ALGORITHM = StagedLearning()
