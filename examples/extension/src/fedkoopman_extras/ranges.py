"""A kind of sensor: distances to beacons, zᵢ = ‖x − bᵢ‖.

In a study or site file: sensor = { kind = "range", beacons = [[10, 0, 0], [0, 10, 0]] }.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman import InputError
from fedkoopman.rules import Matrix
from fedkoopman.sensors import SensorKind

if TYPE_CHECKING:
    from fedkoopman.sensors import Sensor

__all__ = ["SENSOR"]


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> "Sensor":
    """The sensor that a table describes; JAX is loaded here, as reading a study does not need it.

    Arguments:
        values: those of the table, each as its rule in `keys` below reads it.
        state_dim: the number of states.
        seed: for kinds that are drawn at random; this one is not.
        folder: for kinds that name a file; this one does not.
    """
    import jax.numpy as jnp

    from fedkoopman.sensors import FunctionSensor

    beacons = np.array(values["beacons"])
    count, coordinates = beacons.shape
    if coordinates != state_dim:
        raise InputError(
            f"beacons have {coordinates} coordinates but the state has {state_dim}: give one per "
            "state"
        )
    return FunctionSensor(lambda x: jnp.linalg.norm(x - beacons, axis=1), count)


SENSOR = SensorKind(
    _make,
    keys={"beacons": Matrix("a list of beacons, each a list with one number per state")},
    required=("beacons",),
    observed=lambda values, state_dim: len(values["beacons"]),
)
