"""The files of `fedkoopman init --example`, made once per process: recordings take a while."""

from functools import cache
from pathlib import Path

from fedkoopman.config.scaffold import example_files, write_scaffold

files_of = cache(example_files)


def write_example(folder: Path, name: str = "pendulum") -> None:
    """As `fedkoopman init` with `--example`."""
    write_scaffold(folder, files_of(name))
