"""`fk.plot`: pictures of runs, models, estimates and forecasts, as matplotlib axes.

    axes = fk.plot.learning_curves(run)
    fk.plot.spectrum(run.model, ax=axes)

Every function takes the natural objects, draws into `ax` if it is given, and returns the axes, so
that titles, limits and colours can be changed afterwards. matplotlib is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedkoopman.errors import unknown_name
from fedkoopman.lazy import lazy_names

if TYPE_CHECKING:
    from fedkoopman.plot.models import modes, spectrum
    from fedkoopman.plot.runs import learning_curves, raster
    from fedkoopman.plot.states import estimates, forecast, phase_plane

__all__ = [
    "draw",
    "estimates",
    "forecast",
    "learning_curves",
    "modes",
    "phase_plane",
    "raster",
    "spectrum",
]

__getattr__ = lazy_names(__name__)


def draw(what: str, known: tuple[str, ...], *given: Any, **options: Any) -> Any:
    """One of the pictures by its name: what the method `plot` of runs and models does.

    Arguments:
        known: the names that are possible.
        given, options: of the function.
    """
    if what not in known:
        raise unknown_name("plot", what, known)
    return getattr(import_module(__name__), what)(*given, **options)
