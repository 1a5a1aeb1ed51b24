"""EDF files, and BDF ones, of which they have the form: recordings of the body's signals.

Read with pyEDFlib. A recording with interruptions (EDF+D) is refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedkoopman.data.channels import Channel, Channels, Read
from fedkoopman.data.foreign import package, reading
from fedkoopman.errors import InputError


class Edf(Channels):
    """Signals in physical units, as their labels say."""

    def channels(self) -> list[Channel]:
        with self._opened() as file:
            return [
                Channel(label, file.getSampleFrequency(i), int(file.samples_in_file(i)))
                for i, label in enumerate(file.getSignalLabels())
            ]

    @contextmanager
    def reader(self) -> Iterator[Read]:
        with self._opened() as file:

            def read(places: Sequence[int], start: int, stop: int) -> np.ndarray:
                if not places:
                    return np.empty((stop - start, 0))
                parts = [file.readSignal(i, start, stop - start) for i in places]
                return np.column_stack(parts)

            yield read

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        library = package("pyedflib", "edf", self.title)
        with reading(self.title, "an EDF or BDF file", "export it again, as plain EDF or EDF+C"):
            self._check_size()
            file = library.EdfReader(str(self.path), library.DO_NOT_READ_ANNOTATIONS)
            try:
                yield file
            finally:
                file.close()

    def _check_size(self) -> None:
        """Refuse a file that is not as long as its header says, of which pyEDFlib would print."""
        try:
            with self.path.open("rb") as file:
                fixed = file.read(256)
                signals = int(fixed[252:256])
                file.seek(256 + 216 * signals)
                samples = sum(int(file.read(8)) for _ in range(signals))
            each = 3 if fixed[:1] == b"\xff" else 2
            told = int(fixed[184:192]) + int(fixed[236:244]) * samples * each
        except ValueError:
            return  # no header, which pyEDFlib tells
        size = self.path.stat().st_size
        if size != told:
            raise InputError(
                f"{self.title} has {size:,} bytes but its header tells of {told:,}: export it again"
            )


FORMAT = Edf
