"""Estimated states as a table: one row per sample, each state beside its standard deviation."""

import csv
import io
from pathlib import Path

import numpy as np

from fedkoopman.data.observations import SiteStates

TABLES = (".csv", ".parquet", ".npz")


def columns(states: SiteStates) -> dict[str, np.ndarray]:
    """The table: [segment,] step, time, the states, and their standard deviations."""
    lengths = [len(t) for t in states.times]
    table: dict[str, np.ndarray] = {}
    if states.labels is not None:
        table["segment"] = np.repeat(np.array(states.labels), lengths)
    table["step"] = np.concatenate([np.arange(1, n + 1) for n in lengths])
    table["time"] = np.concatenate(states.times)
    mean, std = np.concatenate(states.means), np.concatenate(states.stds)
    table |= {name: mean[:, i] for i, name in enumerate(states.names)}
    table |= {f"{name}_std": std[:, i] for i, name in enumerate(states.names)}
    return table


def write_states(path: Path, states: SiteStates) -> int:
    """Write the table in the format of the path's suffix and return its number of rows.

    CSV and Parquet leave the cells of a trajectory that could not be estimated blank. NPZ holds one
    array per column and `cov` (rows, d, d), the whole covariances.
    """
    table = columns(states)
    if path.suffix.lower() == ".npz":
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, cov=np.concatenate(states.covs), **table)
    else:
        _write_arrow(path, table)
    return len(table["step"])


def _write_arrow(path: Path, table: dict[str, np.ndarray]) -> None:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pa_parquet

    # from_pandas turns NaN into null, which a CSV file shows as a blank cell
    arrow = pa.table({name: pa.array(values, from_pandas=True) for name, values in table.items()})
    if path.suffix.lower() == ".parquet":
        pa_parquet.write_table(arrow, path)
        return
    # Arrow quotes every name of a header and every text, or none: the csv module writes the header,
    # and texts are quoted only where one of them needs it
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(arrow.column_names)
    plain = not any(c in label for label in set(table.get("segment", [])) for c in ',"\r\n')
    options = pa_csv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed")
    with path.open("wb") as file:
        file.write(header.getvalue().encode())
        pa_csv.write_csv(arrow, file, options)
