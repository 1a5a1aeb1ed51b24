"""The moving average of the server's models, which scatters less than the models themselves.

    a_k = (1 − w_k) a_{k−1} + w_k ω_k,    w_k = (1 − d) / (1 − d^k)

With the decay d it is the mean of all server models ω_1 … ω_k, each by the factor d less than the
one after it: the usual average from 0, free of the bias of its start (as m̂ of Adam). So the first
average is the first model, and the untrained model has no part in it. Clients never see it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.messages import Arrays

__all__ = ["averaged", "first_average"]

COUNT = "#"
"""The name of how many models an average is of; no weights have it."""


def first_average(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Of no model yet; until there is one, the untrained model stands in its place."""
    return {COUNT: np.zeros(1)} | {
        name: np.asarray(leaf, np.float64) for name, leaf in arrays.items()
    }


def averaged(decay: float, average: Arrays, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The average after one more model.

    Arguments:
        decay: d.
        average: from `first_average`, or from the model before.
        arrays: the new model.
    """
    count = average[COUNT] + 1
    share = (1 - decay) / (1 - decay ** count[0])
    return {COUNT: count} | {
        name: (1 - share) * average[name] + share * np.float64(leaf)
        for name, leaf in arrays.items()
    }
