"""What an eigenvalue of the operator means in time."""

import cmath
import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """An eigenvalue λ of the operator, which advances `step` units of time."""

    eigenvalue: complex
    step: float

    @property
    def rate(self) -> complex | None:
        """The continuous eigenvalue log(λ) / step; None for λ = 0, which forgets at once."""
        return cmath.log(self.eigenvalue) / self.step if self.eigenvalue else None

    @property
    def frequency(self) -> float:
        """Turns per unit of time."""
        return abs(self.rate.imag) / (2 * math.pi) if self.rate is not None else 0.0

    @property
    def decay_time(self) -> float:
        """Time in which the mode falls to 1/e; negative: in which it grows e-fold; else ∞."""
        if self.rate is None:
            return 0.0
        return -1 / self.rate.real if self.rate.real else math.inf

    def decay(self) -> str:
        """The decay time in words."""
        time = self.decay_time
        if time == 0:
            return "vanishes at once"
        if math.isinf(time):
            return "stays"
        return f"{'grows' if time < 0 else 'decays'} in {abs(time):.4g}"

    def name(self, paired: bool = False) -> str:
        """The eigenvalue as written; with `paired`, for itself and its conjugate."""
        real, imag = self.eigenvalue.real, self.eigenvalue.imag
        sign = "±" if paired else "−" if imag < 0 else "+"
        return f"{real:.4g} {sign} {abs(imag):.4g} i" if imag else f"{real:.4g}"

    def text(self) -> str:
        """The mode in a few lines, for a figure."""
        return (
            f"λ = {self.name()}<br>|λ| = {abs(self.eigenvalue):.4g}<br>"
            f"frequency {self.frequency:.4g}<br>{self.decay()}"
        )


def modes_of(eigenvalues: Iterable[complex], dt: float, depth: int) -> list[Mode]:
    """The modes of an operator that advances `depth` samples of `dt`, slowest to fade first."""
    finite = [complex(value) for value in eigenvalues if cmath.isfinite(complex(value))]
    finite.sort(key=lambda value: (-abs(value), abs(value.imag), value.imag))
    return [Mode(value, dt * depth) for value in finite]
