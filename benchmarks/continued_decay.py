"""What E is if the learning rate's decay γ goes on from round to round instead of starting anew.

    .venv/bin/python benchmarks/continued_decay.py [--seeds 5]

The paper gives γ = 0.995 and not where it is counted from. In a study it counts the epochs of one
round. Here it counts all epochs that a client has ever trained, as a scheduler does that lives as
long as the client: an algorithm of one's own, in which the server tells each client how many
trainings of its own have become part of the model.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.messages import Arrays, Message, NumberField, Schema
from fedkoopman.runs.run import run

TRAININGS = "trainings"


class Continued(FedAvgM):
    """FedAvg-M whose state also holds how often each client has trained."""

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """The request tells the client's count."""
        found = dict(super().messages(problem))
        found["train"] = replace(found["train"], numbers={TRAININGS: NumberField(low=0)})
        return found

    def begin(self, problem: Problem) -> Arrays:
        """Nobody has trained."""
        return {**super().begin(problem), TRAININGS: np.zeros(problem.clients)}

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """The model, and the count of whom it goes to."""
        requests = super().ask(problem, _model(state), slot, ready)
        counts = state[TRAININGS]
        return {n: replace(r, numbers={TRAININGS: float(counts[n])}) for n, r in requests.items()}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """ClientUpdate with the learning rate where it was left."""
        epochs = request.numbers[TRAININGS] * problem.training.epochs
        rate = asked.learning_rate * problem.training.decay**epochs
        return super().answer(problem, request, segments, asked._replace(learning_rate=rate))

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """One more training for each that answered."""
        counts = state[TRAININGS].copy()
        counts[list(replies)] += 1
        found, told = super().conclude(problem, _model(state), slot, replies)
        return {**found, TRAININGS: counts}, told

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """Without the counts."""
        return super().model(problem, _model(state))

    def warm(self, problem: Problem, samples: int) -> None:
        """As FedAvg-M does it."""
        FedAvgM().warm(problem, samples)


def _model(state: Arrays) -> Arrays:
    return {name: leaf for name, leaf in state.items() if name != TRAININGS}


CONTINUED = Continued()


def main() -> None:
    """Run the default federation both ways, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    here = Path(__file__)
    default = Study.paper_default()
    continued = replace(default, folder=here.absolute().parent).with_values(
        {"algorithm.name": f"{here.name}:CONTINUED"}
    )
    print("| decay γ | E by seed | mean |\n|---|---|---|")
    for name, study in (("counted in each round", default), ("continued", continued)):
        done = run(study, seeds=given.seeds)
        tail = done.summary["tail_slots"]
        ends = [np.mean([r["E"] for r in done.all_records[s][-tail:]]) for s in done.seeds]
        told = ", ".join(f"{end:.3g}" for end in ends)
        print(f"| {name} | {told} | {np.mean(ends):.3g} |", flush=True)


if __name__ == "__main__":
    main()
