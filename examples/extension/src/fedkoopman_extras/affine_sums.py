"""An algorithm, with messages of its own: exact least squares in one round of sums.

Every site sends sums of products of its states, Σ [x; 1] [x; 1]ᵀ and Σ x⁺ [x; 1]ᵀ, and the server
solves x⁺ ≈ A x + b. The result equals least squares on the pooled data, which nobody sees.

The model is a network without hidden layers whose lift is [x; 1]; a study says so by
`network.hidden_layers = 0` and `network.components = number of states + 1`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman import InputError
from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.messages import ArrayField, Arrays, Message, NumberField, Schema

__all__ = ["ALGORITHM", "AffineSums"]


class AffineSums:
    """Sums in, one linear model out; `fedkoopman.federation.algorithm` says when each is called."""

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """All that is ever said: a question without content, and sums in reply."""
        d = problem.system.dim
        arrays = {
            "gram": ArrayField((d + 1, d + 1), "float64"),
            "shift": ArrayField((d, d + 1), "float64"),
        }
        counts = {"pairs": NumberField(1, 1e12, whole=True)}
        words = "sums of products of successive states"
        return {
            "count": Schema("nothing", reply="sums"),
            "sums": Schema(words, arrays, counts, additive=True),
        }

    def begin(self, problem: Problem) -> Arrays:
        """No sums yet; the first model predicts that nothing changes."""
        d = problem.system.dim
        model = self._model(problem, np.eye(d, d + 1))
        given = {name: leaf.shape for name, leaf in model.items()}
        if given != dict(problem.architecture.shapes()):
            raise InputError(
                "affine-sums needs a network without hidden layers or windows: give kind = "
                f'"paper", hidden_layers = 0, window = 1 and components = {d + 1} in [network]'
            )
        return {"gram": np.zeros((d + 1, d + 1)), "shift": np.zeros((d, d + 1)), **model}

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """Whoever has new data is asked."""
        return {int(n): Message("count") for n in np.flatnonzero(ready.waiting)}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """Sums over all pairs within a segment."""
        depth = problem.architecture.depth
        pairs = [(states[:-depth], states[depth:]) for states in segments]
        x = np.concatenate([np.column_stack([now, np.ones(len(now))]) for now, _ in pairs])
        later = np.concatenate([after for _, after in pairs])
        return Message("sums", {"gram": x.T @ x, "shift": later.T @ x}, {"pairs": float(len(x))})

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """Add the sums up and solve."""
        gram, shift = state["gram"], state["shift"]
        for reply in replies.values():
            gram = gram + reply.message.arrays["gram"]
            shift = shift + reply.message.arrays["shift"]
        affine = np.linalg.lstsq(gram, shift.T, rcond=1e-14)[0].T
        pairs = sum(reply.message.numbers["pairs"] for reply in replies.values())
        model = self._model(problem, affine)
        return {"gram": gram, "shift": shift, **model}, {"pairs": int(pairs)}

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The weights among the state's arrays."""
        return {name: state[name] for name in ("encoder.0", "operator", "decoder.0")}

    def warm(self, problem: Problem, samples: int) -> None:
        """Nothing is compiled."""

    def _model(self, problem: Problem, affine: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """[A b] as a network: y = [x; 1], y⁺ = [A b; 0 1] y, x = the first entries of y."""
        d = len(affine)
        lift = np.eye(d + 1)  # [W bias]: the last row of W is 0, its bias 1
        operator = np.vstack([affine, np.eye(1, d + 1, d)])
        decode = np.eye(d, d + 2)
        found = {"encoder.0": lift, "operator": operator, "decoder.0": decode}
        return {name: leaf.astype(problem.dtype) for name, leaf in found.items()}


ALGORITHM = AffineSums()
