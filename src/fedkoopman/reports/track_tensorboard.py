"""Scalars for TensorBoard: `tensorboard --logdir DIR/tracking`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from fedkoopman.reports.tracking import Memory, Rows


class TensorBoard:
    """Event files of one seed.

    What a killed process wrote after its last `Memory` is taken back by the next file: TensorBoard
    forgets all steps from `purge_step` on.
    """

    def __init__(self, directory: Path, seed: int, study: Mapping[str, Any]) -> None:
        self._memory = Memory(directory / "tensorboard.json", seed)
        self.logged = int(self._memory.read().get("slot", 0))
        folder = directory / "tensorboard" / f"seed-{seed}"
        # Two files of the same second would have the same name, and the later one would win.
        unique = f".{time.time_ns()}"
        self._writer = SummaryWriter(
            str(folder), purge_step=self.logged + 1, filename_suffix=unique
        )

    def log(self, rows: Rows) -> None:
        for slot, values in rows:
            for name, value in values.items():
                self._writer.add_scalar(name, value, slot)
            self.logged = slot
        self._writer.flush()
        self._memory.write(slot=self.logged)

    def close(self, finished: bool) -> None:
        self._writer.close()


tracker = TensorBoard
