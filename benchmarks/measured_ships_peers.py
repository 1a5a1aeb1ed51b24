"""Other libraries on the ships: all rows in one place, standardised, each in a competent way."""

import importlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from measured_ships_data import Array
from measured_ships_federation import Simulate

Data = Sequence[tuple[Array, Array]]
"""States (T, 3) and rudder (T, 1) of each manoeuvre."""


def _dmdc(data: Data) -> Simulate:
    """As on the page's other parts."""
    model = importlib.import_module("measured_peers").pydmd_dmdc(data)
    return lambda start, rudder: model.simulate(start[None], rudder)


def _pykoop(data: Data, degree: int) -> Simulate:
    """Monomials of states and rudder, with a constant, lifted anew at every step."""
    import pykoop

    model = pykoop.KoopmanPipeline(
        lifting_functions=[
            ("monomials", pykoop.PolynomialLiftingFn(order=degree)),
            ("constant", pykoop.ConstantLiftingFn()),
        ],
        regressor=pykoop.Edmd(),
    )
    rows = [np.c_[np.full(len(x), i), x, u] for i, (x, u) in enumerate(data)]
    model.fit(np.concatenate(rows), n_inputs=1, episode_feature=True)

    def simulate(start: Array, rudder: Array) -> Array:
        inputs = np.vstack([rudder, rudder[-1:]])  # of the last row nothing is asked
        begun = np.array([[0.0, *start]])
        numbered = np.c_[np.zeros(len(inputs)), inputs]
        try:
            return model.predict_trajectory(begun, numbered, episode_feature=True)[1:, 1:]
        except ValueError:  # its states are no numbers any more
            return np.full((len(rudder), 3), np.inf)

    return simulate


PEERS: Mapping[str, Callable[[Data], Simulate]] = {
    "PyDMD, DMDc": _dmdc,
    "pykoop, EDMD of degree 2": lambda data: _pykoop(data, 2),
    "pykoop, EDMD of degree 3": lambda data: _pykoop(data, 3),
}
"""Each raises ImportError where the library is not installed."""
