"""The mean of FedAvg-M: ω_m = Σ_n |D_n| / l_m · ω_m^n (eq. (32))."""

from collections.abc import Sequence

import numpy as np

from fedkoopman.federation.messages import Arrays


def mean(current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """The mean of updates, weighted by the sizes of the data they were computed from.

    Summed in float64, one client after the other, so that memory does not grow with their number
    and a single client gets its own update back exactly.
    """
    shares = np.asarray(sizes, np.float64) / np.sum(sizes)
    total = {name: np.float64(value) * shares[0] for name, value in updates[0].items()}
    for update, share in zip(updates[1:], shares[1:], strict=True):
        for name, value in update.items():
            total[name] = total[name] + np.float64(value) * share
    return {name: total[name].astype(value.dtype) for name, value in current.items()}


AGGREGATOR = mean
