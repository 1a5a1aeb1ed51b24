"""An aggregator: the mean without the smallest and the largest value of every number.

One client, whatever it sends, then moves no number beyond what the others sent. With fewer than
three updates there is nothing to trim, and it is the plain mean.
"""

from collections.abc import Sequence

import numpy as np

from fedkoopman.federation.messages import Arrays

__all__ = ["AGGREGATOR", "trimmed_mean"]


def trimmed_mean(current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """The next model.

    Arguments:
        current: the model that the clients were given.
        updates: what each made of it.
        sizes: samples that each trained on; they play no part here.
    """
    trim = 1 if len(updates) > 2 else 0
    found = {}
    for name, value in current.items():
        ordered = np.sort(np.stack([np.float64(update[name]) for update in updates]), axis=0)
        kept = ordered[trim : len(updates) - trim]
        found[name] = kept.mean(axis=0).astype(value.dtype)
    return found


AGGREGATOR = trimmed_mean
