"""Files of observations: whether a path is one, and how messages name it and its rows."""

import csv
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.errors import InputError
from fedkoopman.paths import shown

TABLES = (".csv", ".parquet")
ARRAYS = (".npy", ".npz", ".mat")


def check_source(path: Path, name: str) -> None:
    """Refuse what is no readable file of a format that we know.

    Arguments:
        path: of the file; its suffix names the format.
        name: of the file, for messages.
    """
    try:
        if path.is_dir():
            raise InputError(f"{name} is a directory: name the files in it, as {name}/*.csv")
        if path.suffix.lower() not in TABLES + ARRAYS:
            raise InputError(
                f"{name} ends in {path.suffix or 'no suffix'!r}, which names no format we read: "
                f"use one of {', '.join(TABLES + ARRAYS)}"
            )
        if not path.is_file():
            raise InputError(f"there is no file {name}: check the path")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{name} is empty: it needs observations")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {name}: {cause}") from error


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Attributes:
        path: the file.
        part: the array within it, as "array 'monday'"; empty for the whole file.
    """

    path: Path
    part: str = ""

    def __str__(self) -> str:
        """The file, and the array in it."""
        return f"{self.part} of {shown(self.path)}" if self.part else shown(self.path)

    def row(self, number: int) -> str:
        """Names a row, counted from 1 after a header; in a text file, the line too."""
        line = _line(self.path, number) if self.path.suffix.lower() == ".csv" else None
        return f"row {number} of {self}" + (f" (line {line})" if line else "")


def _line(path: Path, row: int) -> int | None:
    """The line of a CSV file on which a row ends: blank lines and line breaks in quotes count."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            reader = csv.reader(lines)
            single = len(next(reader, [])) == 1
            for cells in reader:
                row -= single or len(cells) > 1 or bool("".join(cells).strip())
                if row == 0:
                    return reader.line_num
    except (OSError, csv.Error):
        pass
    return None
