"""The round-robin policy: one client after the other."""

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.policies import Situation


def round_robin(situation: Situation) -> NDArray[np.int64]:
    """I_m = {m mod N}."""
    return np.array([situation.slot % len(situation.buffered)])


POLICY = round_robin
