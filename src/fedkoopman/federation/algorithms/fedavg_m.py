"""FedAvg-M (Algorithm 3): clients with enough data train the shared model; their mean is the next.

The server's state is the model. A client that is asked trains it on all segments that wait there
(ClientUpdate), and its data are spent by that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.combining import average_of, combined, first_memory, without_memory
from fedkoopman.federation.messages import ArrayField, Arrays, Message, Schema
from fedkoopman.federation.policies import Situation, activate
from fedkoopman.federation.privacy import NUMBERS, numbers_of, private_of
from fedkoopman.federation.streams import generator, subseed
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.private_training import Plan, distinct, plan_of, site_update
from fedkoopman.koopman.staged import Staged
from fedkoopman.koopman.training import train

__all__ = ["FedAvgM"]


class FedAvgM:
    """The paper's algorithm; one phase, one request, one reply."""

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """The model goes out, and comes back trained."""
        shapes = problem.architecture.shapes()
        fields = {name: ArrayField(shape, str(problem.dtype)) for name, shape in shapes}
        return {
            "train": Schema("the shared model's weights", fields, reply="update"),
            "update": Schema(
                "weights after local training",
                fields,
                NUMBERS if problem.privacy.mode == "site" else {},
                changes=True,
                additive=problem.aggregator is mean,
            ),
        }

    def check_kind(self, kind: Kind) -> None:
        """Refuse kinds that are learned in stages."""
        if isinstance(kind, Staged):
            raise InputError(
                f"the algorithm fedavg-m trains whole models, and the model kind {kind.name} is "
                'learned in stages: give algorithm.name = "auto"'
            )

    def check_server(self, kind: Kind) -> None:
        """Whole models are updates, of every kind that is taken."""

    def begin(self, problem: Problem) -> Arrays:
        """The untrained model."""
        seed = subseed(problem.seed, "weights")
        kind = problem.architecture
        self.check_kind(kind)
        model = kind.named(kind.initialise(seed=seed, dtype=problem.dtype))
        return {**model, **first_memory(problem, model)}

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """Those whom the policy chooses, of those that have data."""
        random = generator(problem.seed, "policy", slot)
        situation = Situation(slot, ready.waiting, problem.steps, random, problem.thresholds)
        request = Message("train", without_memory(state))
        return {n: request for n in activate(problem.policy, situation).tolist()}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """ClientUpdate."""
        weights = site_update(
            problem.architecture,
            problem.training,
            problem.architecture.from_named(request.arrays),
            [states.astype(problem.dtype, copy=False) for states in segments],
            seed=asked.seed,
            learning_rate=asked.learning_rate,
            private=private_of(problem, asked.secret),
        )
        plan = self.planned(problem, request, segments)
        numbers = {} if plan is None else numbers_of(plan)
        return Message("update", problem.architecture.named(weights), numbers)

    def planned(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]]
    ) -> Plan | None:
        """What an answer releases of these segments; None in studies without privacy at sites."""
        if problem.privacy.mode != "site":
            return None
        lengths = [len(states) for states in distinct(segments)]
        kind, record = problem.architecture, problem.privacy.record
        return plan_of(kind, problem.training, record, lengths)

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """The aggregate of the updates."""
        model, memory, told = combined(problem, state, without_memory(state), replies)
        return {**model, **memory}, told

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The state without what is remembered, or the average of such."""
        return average_of(problem, state, without_memory(state))

    def warm(self, problem: Problem, samples: int) -> None:
        """Compile training for so many samples."""
        nothing = np.zeros((samples, problem.architecture.row_dim))
        order = np.zeros((problem.training.epochs, 1), np.int32)
        weights = problem.architecture.from_named(without_memory(self.begin(problem)))
        train(problem.architecture, problem.training, weights, nothing, order)


ALGORITHM = FedAvgM()
