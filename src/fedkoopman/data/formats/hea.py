"""WFDB records (PhysioNet): the header is the file that users name, its signals lie beside it.

Read with wfdb, from this folder only. Samples that are marked as invalid are missing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedkoopman.data.channels import Channel, Channels, Read
from fedkoopman.data.foreign import package, quietly, reading
from fedkoopman.errors import InputError

_REMEDY = "copy the header and the files beside it again"


class Wfdb(Channels):
    """Signals in physical units."""

    def channels(self) -> list[Channel]:
        with reading(self.title, "a WFDB record", _REMEDY):
            header = self._call("rdheader", rd_segments=True)
            self._several = hasattr(header, "seg_name")
            names = header.sig_name if header.n_sig else []
            frames = [1] * len(names) if self._several else [n or 1 for n in header.samps_per_frame]
            length, self._told = header.sig_len, header.sig_len is not None
            if not self._told:  # then only the signals tell
                length = self._call("rdrecord", channels=[0]).sig_len
            return [
                Channel(name or f"signal {i + 1}", float(header.fs) * frame, length * frame, frame)
                for i, (name, frame) in enumerate(zip(names, frames, strict=True))
            ]

    @contextmanager
    def reader(self) -> Iterator[Read]:
        whole: dict[tuple[int, ...], Any] = {}

        def read(places: Sequence[int], start: int, stop: int) -> np.ndarray:
            if not places:
                return np.empty((stop - start, 0))
            if not self._told:  # and wfdb reads no part of them
                if tuple(places) not in whole:
                    whole[tuple(places)] = self._signals(places)
                found: np.ndarray = whole[tuple(places)][start:stop]
                return found
            frame = self._channels[places[0]].frame
            found = self._signals(places, sampfrom=start // frame, sampto=stop // frame)
            if len(found) != stop - start:
                raise InputError(
                    f"the signals of {self.title} end after fewer than {stop} samples: {_REMEDY}"
                )
            return found

        yield read

    def _signals(self, places: Sequence[int], **part: int) -> np.ndarray:
        """Samples of channels (n, k), a part of them or all."""
        with reading(self.title, "a WFDB record", _REMEDY):
            record = self._call(
                "rdrecord", channels=list(places), smooth_frames=self._several, **part
            )
            return record.p_signal if self._several else np.column_stack(record.e_p_signal)

    def _call(self, function: str, **options: Any) -> Any:
        library = package("wfdb", "wfdb", self.title)
        with reading(self.title, "a WFDB record", _REMEDY), quietly():
            return getattr(library, function)(str(self.path.with_suffix("").absolute()), **options)


FORMAT = Wfdb
