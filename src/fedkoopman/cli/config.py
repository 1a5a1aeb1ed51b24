"""`fedkoopman config`: the whole of a study, each key with its meaning."""

import typer

from fedkoopman.cli.settings import Settings, StudyFile, read_study

EXAMPLE = """
fedkoopman config --set slots=50 --set training.epochs=5 > study.toml
"""


def config(study: StudyFile = None, set_values: Settings = None) -> None:
    """Print a study with every key, what it means and what it may be; the default, or yours."""
    typer.echo(read_study(study, set_values).to_toml(comments=True), nl=False)
