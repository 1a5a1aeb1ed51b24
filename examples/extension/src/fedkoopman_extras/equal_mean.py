"""An aggregator: the mean in which every client counts the same, however much data it has.

A claimed number of samples then buys nothing, and a site with little data is not outvoted.
"""

from collections.abc import Sequence

import numpy as np

from fedkoopman.federation.messages import Arrays

__all__ = ["AGGREGATOR", "equal_mean"]


def equal_mean(current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """The next model.

    Arguments:
        current: the model that the clients were given.
        updates: what each made of it.
        sizes: samples that each trained on; they play no part here.
    """
    found = {}
    for name, value in current.items():
        stacked = np.stack([np.float64(update[name]) for update in updates])
        found[name] = stacked.mean(axis=0).astype(value.dtype)
    return found


AGGREGATOR = equal_mean
