"""The measured Silverbox circuit, and how a simulation of it is judged."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from accuracy_baselines import Array

FILE = "silverbox/SNLS80mV.csv.gz"
TRAIN = 40_650, 105_712
"""Rows to learn from: three quarters of the multisines. The first bound belongs, the last not."""
KNOWN, FIRST, NEAR, LAST = 100, 150, 32_100, 40_575
"""The arrow: outputs are known from the first to the second; from the third on it is louder than
the training rows."""
DT = 2**14 / 1e7
DELAYS, DEGREE = 2, 3
MARGIN = 0.5
"""The arrow reaches 1.3 times the training range: a cubic spring is known to go on."""


@dataclass(frozen=True)
class Circuit:
    """Input and output in volts, without the means of the rows to learn from.

    Attributes:
        u, y: (T,).
        train: the first row to learn from, and the first after them.
        known, first, near, last: rows of the test, as the constants above.
    """

    u: Array
    y: Array
    train: tuple[int, int] = TRAIN
    known: int = KNOWN
    first: int = FIRST
    near: int = NEAR
    last: int = LAST

    @property
    def learning(self) -> tuple[Array, Array]:
        """Outputs (T, 1), and inputs (T, 1) by the rule that u_k acts from sample k on.

        The output of a row depends on that row's input, so that this is what acts on the row
        before.
        """
        a, b = self.train
        return self.y[a:b, None], self.u[a + 1 : b + 1, None]

    @property
    def given(self) -> tuple[Array, Array]:
        """What a model is told of the test: known outputs, and all inputs by the same rule."""
        return self.y[self.known : self.first, None], self.u[self.known + 1 : self.last, None]

    def errors(self, simulated: Array) -> tuple[float, float]:
        """Root mean square error in mV: within the training range, and of the whole test."""
        error = 1e3 * (simulated.ravel() - self.y[self.first : self.last])
        with np.errstate(over="ignore"):
            square = np.where(np.isfinite(error), error, np.inf) ** 2
            parts = square[: self.near - self.first], square
            return tuple(float(np.sqrt(part.mean())) for part in parts)  # type: ignore[return-value]


def read(folder: Path) -> Circuit:
    """The measured circuit."""
    data = np.loadtxt(folder / FILE, delimiter=",", skiprows=1)
    u, y = (data - data[slice(*TRAIN)].mean(axis=0)).T
    return Circuit(u, y)
