"""Numbers as people read them: as many digits as mean something, and no powers of ten in sight."""

import math
from collections.abc import Mapping, Sequence

__all__ = ["counted", "labelled", "listed", "number", "spread_text", "with_unit"]

PLAIN = (1e-4, 1e7)
"""Between these sizes numbers are written out."""


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    value = float(f"{value:.{digits}g}")  # so that 999.96 has the digits of 1000
    size = math.floor(math.log10(abs(value)))
    if not PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{_grouped(value / 10.0**size, digits - 1)}·10{_raised(size)}"
    return _grouped(value, max(0, digits - 1 - size))


def spread_text(spread: Mapping[str, float | None] | None, several: bool) -> str:
    """A mean, and with several seeds its standard deviation, to two digits of the latter."""
    mean, std = ((spread or {}).get(name) for name in ("mean", "std"))
    if mean is None or not math.isfinite(mean):
        return "not finite"
    if not several:
        return number(mean, 4)
    if std is None or not math.isfinite(std):
        return f"{number(mean, 4)} ± ?"
    if std == 0 or abs(mean) > 1e4 * std:
        return f"{number(mean, 4)} ± {number(std, 2)}"
    largest = max(abs(mean), std)
    size = math.floor(math.log10(largest))
    if not PLAIN[0] <= largest < PLAIN[1]:
        scale = 10.0**size
        digits = max(0, 1 - math.floor(math.log10(std / scale)))
        pair = f"{mean / scale:.{digits}f} ± {std / scale:.{digits}f}"
        return f"({pair})·10{_raised(size)}"
    digits = 1 - math.floor(math.log10(float(f"{std:.2g}")))
    if digits < 0:
        mean, std = round(mean, digits), round(std, digits)
    return f"{mean:,.{max(digits, 0)}f} ± {std:,.{max(digits, 0)}f}"


def with_unit(words: str, unit: str) -> str:
    """A number with its unit, if it has one."""
    return words if unit in ("", "1") else f"{words} {unit}"


def labelled(name: str, unit: str) -> str:
    """A state's name with its unit."""
    return name if unit in ("", "1") else f"{name} [{unit}]"


def counted(amount: int, noun: str) -> str:
    """A count with its noun, in the singular or plural."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def _grouped(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}" if decimals else f"{round(value):,}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
