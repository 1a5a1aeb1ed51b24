"""Output that is either whole or absent."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse an output path that could not be written, before anything is computed.

    Arguments:
        path: where the output is to go.
        suffixes: the endings that name a format we write, such as ".csv".
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(
            f"{path} ends in {path.suffix or 'no suffix'!r}, which names no format we write: "
            f"use one of {', '.join(suffixes)}"
        )
    if path.is_dir():
        raise InputError(f"{path} is a directory: give the name of a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"cannot write {path}: there is no directory {folder}, create it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot write {path}: no permission to write in {folder}")


@contextmanager
def written_whole(*targets: Path) -> Iterator[list[Path]]:
    """Give temporary paths beside the targets; move them all into place on success only.

    The temporary files share the targets' directories, so that each move is one atomic rename, and
    their suffixes, so that writers which go by the suffix choose the same format. On any error or
    interruption they are removed and the targets stay as they were.
    """
    partial = [path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}") for path in targets]
    try:
        try:
            yield partial
            for source, target in zip(partial, targets, strict=True):
                os.replace(source, target)
        except OSError as error:
            names = " and ".join(map(str, targets))
            raise InputError(f"cannot write {names}: {error.strerror or error}") from error
    finally:
        for path in partial:
            path.unlink(missing_ok=True)
