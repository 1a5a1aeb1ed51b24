"""One quadratic program after another, of the same size: min ½ vᵀ P v + cᵀ v within bounds.

The solver is PIQP, an interior-point method for small dense problems; `benchmarks/control.py`
compares it with others. It is kept between problems: with the same P and G only vectors are handed
over.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError

__all__ = ["Quadratic", "Solution"]

Array = NDArray[np.float64]
ACCURACY = 1e-11
NEARLY = 1e-6
"""A solution that is this accurate is taken where rounding allows no better one."""


class Solution(NamedTuple):
    """What was found."""

    v: Array
    pressed: Array
    """What one unit less of each row's bound would cost, from the multipliers."""


class Quadratic:
    """A solver for problems of one size; it holds matrices that were set up last."""

    def __init__(self) -> None:
        try:
            self._library = import_module("piqp")
        except ImportError:
            raise InputError(
                "predictive control needs the package piqp, which is not installed: "
                "pip install 'fedkoopman[control]'"
            ) from None
        self._solver: Any = None
        self._matrices: tuple[Any, ...] = ()
        self._scale = 1.0

    def solve(
        self, P: Array, c: Array, low: Array, high: Array, G: Array, g_low: Array, g_high: Array
    ) -> Solution | str:
        """v with low ≤ v ≤ high and g_low ≤ G v ≤ g_high, or why there is none.

        Bounds may be infinite, and must be so in the same places while P and G stay.
        """
        rows = {"G": np.asfortranarray(G), "h_l": g_low, "h_u": g_high} if len(G) else {}
        # The very same arrays need not be factored again.
        if self._solver is None or self._matrices[0] is not P or self._matrices[1] is not G:
            # The solver's accuracy is an absolute one: the cost is made of size 1.
            self._scale = 1 / max(float(np.abs(np.diagonal(P)).max()), 1e-300)
            self._solver = self._library.DenseSolver()
            settings = self._solver.settings
            settings.eps_abs = settings.eps_rel = ACCURACY
            settings.eps_duality_gap_abs = settings.eps_duality_gap_rel = ACCURACY
            self._solver.setup(
                P=np.asfortranarray(self._scale * P), c=self._scale * c, x_l=low, x_u=high, **rows
            )
            self._matrices = P, G
        else:
            rows.pop("G", None)
            self._solver.update(c=self._scale * c, x_l=low, x_u=high, **rows)
        status = str(self._solver.solve())
        result = self._solver.result
        found = np.array(result.x)
        near = max(result.info.primal_res, result.info.dual_res) < NEARLY
        if not np.isfinite(found).all() or not (near or status.endswith("PIQP_SOLVED")):
            return status
        pressed = np.abs(np.array(result.z_l)) + np.abs(np.array(result.z_u))
        return Solution(np.clip(found, low, high), pressed / self._scale)
