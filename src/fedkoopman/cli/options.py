"""Options and arguments that verbs share: numbers, which are checked, and the study."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    from fedkoopman.config.study import Study


def option(metavar: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """An option that takes a value: a name for the value, what it means, its panel of `--help`."""
    return typer.Option(metavar=metavar, help=help, rich_help_panel=panel, **more)


def argument(metavar: str, help: str) -> Any:
    """An argument: its name, and what it means."""
    return typer.Argument(metavar=metavar, help=help)


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
            f"{option} is {short(text)}: give a number, or several with commas, as 0.01,1"
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


def listed(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(text.split(",")) if text else ()


InputColumns = Annotated[
    str | None,
    option("NAME,NAME", "The data's columns of known inputs.", "Data", show_default=False),
]
Hold = Annotated[
    str,
    option(
        "until|from",
        "When a row's inputs act: from the row before until this row, or from this row on.",
        "Data",
    ),
]
StudyFile = Annotated[
    Path | None,
    argument("STUDY.toml", "A study file; without one, the paper's default experiment."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the study, as in slots=50, training.epochs=5 or "
        "clients.probability=[1,1,1,1,0.5]; may be repeated.",
    ),
]
Seeds = Annotated[
    int | None,
    option(
        "N",
        "Run N seeds, counted from the study's own, and give means ± standard deviations.",
        parser=whole(1),
    ),
]
Bar = Annotated[
    bool,
    typer.Option(
        "--progress/--no-progress",
        help="Show how far it has come: a bar on a terminal, a line per tenth elsewhere.",
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Show the report meanwhile, as a live page on 127.0.0.1.")
]
State = Annotated[
    Path | None,
    option(
        "DIR", "Where the site keeps its state; otherwise .fedkoopman/NAME beside the site file."
    ),
]


def settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Texts by dotted key, from words KEY=VALUE; of a key given twice the last counts."""
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError(f"--set {short(pair)}: write KEY=VALUE, as training.epochs=5")
        found[name.strip()] = value.strip()
    return found


def read_study(
    path: Path | None, pairs: Sequence[str] | None = None, recommended: bool = False
) -> "Study":
    """The study of a file, or the paper's default, with words KEY=VALUE put in; fully checked.

    Arguments:
        recommended: put in the model kind and the states that we recommend, before the words.
    """
    from fedkoopman.config.study import Study

    values = settings(pairs)
    if recommended:
        # Words that the recommendation looks at count before it, and all of them after it.
        study = Study.load(path, values) if path else Study.recommended().with_values(values)
        study = study.as_recommended().with_values(values)
        study.check()
        return study
    if path is not None:
        return Study.load(path, values)
    if not values:
        return Study.paper_default()  # a test checks it; here that would cost loading JAX
    study = Study.paper_default().with_values(values)
    study.check()
    return study
