"""The random policy: one client, whether it has data or not."""

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.policies import Situation


def random(situation: Situation) -> NDArray[np.int64]:
    """One client, each with probability 1/N."""
    return situation.random.integers(len(situation.buffered), size=1)


POLICY = random
