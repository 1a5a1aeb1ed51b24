"""An aggregator: the mean without the smallest and the largest value of every number.

With fewer than three updates there is nothing to trim, and it is the plain mean.
"""

from collections.abc import Sequence

import numpy as np

from fedkoopman.federation.messages import Arrays


def trimmed_mean(current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """Every number's mean over the clients, extremes left out; the sizes of data play no part."""
    trim = 1 if len(updates) > 2 else 0
    found = {}
    for name, value in current.items():
        ordered = np.sort(np.stack([np.float64(update[name]) for update in updates]), axis=0)
        kept = ordered[trim : len(updates) - trim]
        found[name] = kept.mean(axis=0).astype(value.dtype)
    return found


AGGREGATOR = trimmed_mean
