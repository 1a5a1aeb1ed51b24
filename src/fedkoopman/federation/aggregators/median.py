"""The coordinate median: of every number, the middle one of those that clients sent.

Reference: Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, which the paper's remark on erroneous data names.
"""

from collections.abc import Sequence

import numpy as np

from fedkoopman.federation.messages import Arrays


def median(current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """The median of updates; of one or two, their mean. Claimed sizes play no part."""
    return {
        name: np.median([np.float64(one[name]) for one in updates], axis=0).astype(value.dtype)
        for name, value in current.items()
    }


AGGREGATOR = median
