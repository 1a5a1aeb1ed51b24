"""Numbers on the command line, refused with the value that was given."""

import math
from collections.abc import Callable, Sequence

import typer

from fedkoopman.errors import InputError, short


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{short(text)} is not a number") from None


def whole(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise typer.BadParameter(f"{short(text)} is not a whole number") from None
        if value < least:
            raise typer.BadParameter(f"{short(value)} is below {least}, the least there can be")
        if value > most:
            raise typer.BadParameter(f"{short(value)} is above {most}, the most there can be")
        return value

    return parse


def real(least: float, above: bool = False) -> Callable[[str], float]:
    """A finite number from `least` on, or above it."""

    def parse(text: str) -> float:
        value = number(text)
        if not math.isfinite(value) or value < least or (above and value == least):
            word = "above" if above else "at least"
            raise typer.BadParameter(
                f"{short(text)[1:-1]} is refused: give a number {word} {least:g}"
            )
        return value

    return parse


def numbers(text: str, option: str) -> float | list[float]:
    """One number, or several with commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option} is {short(text)}: give a number, or one per state with commas, as 0.01,1"
        ) from None
    return values[0] if len(values) == 1 else values


def assignments(pairs: Sequence[str]) -> dict[str, float]:
    """Values by name, from words NAME=NUMBER."""
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--set-parameter {short(pair)}: write NAME=NUMBER, as b=25") from None
    return found
