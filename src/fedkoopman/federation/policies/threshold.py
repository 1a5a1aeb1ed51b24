"""The threshold policy: whoever has enough data trains."""

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.policies import Situation


def threshold(situation: Situation) -> NDArray[np.bool_]:
    """I_m = {n : |D_n| ≥ ρ_n ζ}."""
    mask: NDArray[np.bool_] = situation.buffered >= situation.segments * situation.steps
    return mask


POLICY = threshold
