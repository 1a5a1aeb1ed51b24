"""A policy: the client with the most data trains."""

from typing import Any

import numpy as np

from fedkoopman.federation.policies import Situation


def fullest(situation: Situation) -> list[Any]:
    """The client at which most samples wait."""
    return [int(np.argmax(situation.buffered))]


POLICY = fullest
