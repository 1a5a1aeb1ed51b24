"""Rows of finite numbers from comma-separated text, with errors that name the line.

Unlike observations, true states have no missing cells: a gap would shift all that follows in time.
"""

import csv
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short

__all__ = ["number_rows"]


def number_rows(
    lines: Iterable[str], columns: int, name: str, *, skipped: int = 0
) -> NDArray[np.float64]:
    """An array (rows, columns); blank lines may stand at the end only.

    Arguments:
        lines: of the text, after its header.
        columns: how many cells each must have.
        name: of the file, for messages.
        skipped: how many lines stand before, in the count of lines.
    """
    rows: list[list[float]] = []
    blank = 0
    reader = csv.reader(lines)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"line {reader.line_num + skipped} of {name} cannot be read ({error}): write "
                "numbers separated by commas"
            ) from error
        if cells is None:
            break
        line = reader.line_num + skipped
        if not any(cell.strip() for cell in cells) and len(cells) < 2:
            blank = blank or line
            continue
        if blank:
            raise InputError(f"line {blank} of {name} is blank: give every sample its numbers")
        if len(cells) != columns:
            raise InputError(
                f"line {line} of {name} has {len(cells)} cells instead of {columns}: give every "
                "line as many, separated by commas"
            )
        rows.append([_number(cell, line, name) for cell in cells])
    return np.array(rows, dtype=np.float64).reshape(-1, columns)


def _number(cell: str, line: int, name: str) -> float:
    try:
        number = math.nan if "_" in cell else float(cell)  # Python reads 1_0 as 10
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"line {line} of {name} holds {short(cell.strip())}: give a finite number in every cell"
        )
    return number
