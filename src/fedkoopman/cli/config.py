"""`fedkoopman config` shows a whole study; other verbs read theirs here, with `--set key=value`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    from fedkoopman.config.study import Study


StudyFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="STUDY.toml",
        help="A study file; without one, the paper's default experiment.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the study, as in slots=50, training.epochs=5 or "
        "clients.probability=[1,1,1,1,0.5]; may be repeated.",
        show_default=False,
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


def read_study(path: Path | None, pairs: Sequence[str] | None = None) -> "Study":
    """The study of a file, or the paper's default, with some values replaced; fully checked.

    Arguments:
        path: the study file; None for the default.
        pairs: words KEY=VALUE.
    """
    from fedkoopman.config.study import Study

    values = settings(pairs)
    if path is not None:
        return Study.load(path, values)
    if not values:
        return Study.paper_default()  # a test checks it; here that would cost loading JAX
    study = Study.paper_default().with_values(values)
    study.check()
    return study


EXAMPLE = """
fedkoopman config --set slots=50 --set training.epochs=5 > study.toml
"""


def config(study: StudyFile = None, set_values: Settings = None) -> None:
    """Print a study with every key, what it means and what it may be; the default, or yours."""
    typer.echo(read_study(study, set_values).to_toml(comments=True), nl=False)
