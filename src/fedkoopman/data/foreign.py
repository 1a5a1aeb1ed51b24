"""Files that other packages read: which extra brings a package, and its failures as one line.

Such packages are optional, and none is imported before a file of its format is opened. Whatever a
damaged file makes of a package's parser, the user is told of the file, not of the parser.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

from fedkoopman.errors import ComputationError, InputError, cause_of


class Damaged(Exception):
    """What a reader of ours finds wrong with a file, within `reading`."""


def package(name: str, extra: str, title: str) -> Any:
    """A module of an optional package.

    Arguments:
        name: of the module, as "rosbags.rosbag1".
        extra: of fedkoopman, which brings the package.
        title: the file that is to be read.
    """
    try:
        with warnings.catch_warnings():
            # a package that warns while it is imported (wfdb, of pandas) warns its own authors
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError:
        raise InputError(
            f"reading {title} needs the package {name.partition('.')[0]}, which is not installed: "
            f"pip install 'fedkoopman[{extra}]'"
        ) from None


@contextmanager
def reading(title: str, kind: str, remedy: str) -> Iterator[None]:
    """Tell whatever a package raises as what is wrong with the file.

    Arguments:
        title: the file.
        kind: what it should be, as "an HDF5 file".
        remedy: what the user can do.
    """
    try:
        yield
    except (InputError, ComputationError):
        raise
    except Exception as error:  # parsers of damaged files raise anything
        told = str(error) if isinstance(error, Damaged) else cause_of(error)
        cause = told.replace(f"{title}: ", "")
        raise InputError(f"{title} is not {kind}, or not whole ({cause}): {remedy}") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Keep what a package prints and warns of from the user's terminal; not around a `yield`."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield
