"""Our models, through the public edge, in the form in which all are compared."""

import time
from collections.abc import Sequence

from accuracy_baselines import Array, Forecast
from accuracy_peers import Peer


def fitted(train: Array | Sequence[Array], dt: float, **options) -> tuple[object, float]:
    """`fk.DeepKoopman(dt=dt, **options)`, fitted; and CPU seconds of the fit."""
    import fedkoopman as fk

    began = time.process_time()
    model = fk.DeepKoopman(dt=dt, **options).fit(train)
    return model, time.process_time() - began


def forecast_of(model, relift: int | None = None) -> Forecast:
    """A fitted model's forecast, (n, d) → (n, steps, d).

    Arguments:
        relift: None: what the model itself found better; 0: lifted once; n: lifted anew every n
            steps.
    """

    def forecast(states: Array, steps: int) -> Array:
        return model.simulate(states, n_steps=steps, relift=relift)

    return forecast


def way_of(model) -> str:
    """How a model forecasts of its own accord, in words."""
    return f"it lifts anew every {model.relift_} steps" if model.relift_ else "it lifts once"


def ours(train, dt: float, relift: int | None = None, **options) -> Peer:
    """`fk.DeepKoopman`."""
    model, seconds = fitted(train, dt, **options)
    return Peer(forecast_of(model, relift), seconds)


def ours_edmd(train, dt: float, degree: int, relift: int | None = None) -> Peer:
    """`fk.EDMD`, the same baseline as a class of the package."""
    import fedkoopman as fk

    began = time.process_time()
    model = fk.EDMD(degree=degree, dt=dt).fit(train)
    return Peer(forecast_of(model, relift), time.process_time() - began)
