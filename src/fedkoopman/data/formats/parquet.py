"""Parquet files, read in batches of rows."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from fedkoopman.data.tables import Chunk, Table, arrow_chunk
from fedkoopman.errors import InputError

_ROWS = 65_536
"""Rows of a batch."""


class Parquet(Table):
    """A Parquet file; its columns hold numbers, and labels may be numbers or texts."""

    def header(self) -> list[str]:
        try:
            return list(pa_parquet.read_schema(self.path).names)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    def chunks(self, numbers: list[str], label: str | None, block_bytes: int) -> Iterator[Chunk]:
        """Batches of rows; a Parquet file does not say how many bytes these are."""
        del block_bytes
        wanted = [*numbers, *filter(None, [label])]
        rows = 0
        try:
            # buffered, so that a file which is one row group is not read as a whole
            with pa_parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                total = max(file.metadata.num_rows, 1)
                for batch in file.iter_batches(_ROWS, columns=wanted, use_threads=False):
                    rows += batch.num_rows
                    columns = [self._as_numbers(name, batch.column(name)) for name in numbers]
                    if label:
                        columns.append(self._as_text(label, batch.column(label)))
                    yield arrow_chunk(columns, len(numbers), rows / total)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    def _as_numbers(self, name: str, column: Any) -> Any:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            return column.cast(pa.float64(), safe=False)
        raise InputError(
            f"column {name!r} of {self.title} holds {kind}, not numbers: store it as double"
        )

    def _as_text(self, name: str, column: Any) -> Any:
        try:
            return column.cast(pa.string())
        except pa.ArrowException as error:
            raise InputError(
                f"column {name!r} of {self.title} holds {column.type}: store names or numbers"
            ) from error

    def _unreadable(self, error: BaseException) -> InputError:
        cause = str(error).partition("\n")[0].rstrip(". ")
        return InputError(f"cannot read {self.title} as Parquet ({cause}): write the file again")


FORMAT = Parquet
