"""One seed's directory: records that only grow, and a checkpoint to go on from exactly.

A record is acknowledged when its line is in `records.jsonl`. A checkpoint is written after the
records it follows are safely on disk, whole or not at all; what came after it is computed again on
resumption, with the same result.
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedkoopman.errors import InputError
from fedkoopman.federation.slot import State
from fedkoopman.koopman.files import to_bytes
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.koopman.network import Architecture

__all__ = ["SeedDirectory", "write_json", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that after a crash it is either the old one or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with writing(path):
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell a failed write in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; what was recorded before is intact, "
            "make room or give permission and go on with --resume"
        ) from error


@dataclass(frozen=True, eq=False)
class SeedDirectory:
    """The files of one seed.

    Attributes:
        path: the directory.
        architecture: of the network, whose weights a checkpoint holds.
        mark: names the study and seed; a checkpoint of another is refused.
    """

    path: Path
    architecture: Architecture
    mark: str

    @property
    def records_file(self) -> Path:
        """One JSON object per line and slot."""
        return self.path / "records.jsonl"

    @property
    def checkpoint_file(self) -> Path:
        """Weights and buffers after a slot."""
        return self.path / "checkpoint" / "state.safetensors"

    def create(self) -> None:
        """Make the directory, empty of records."""
        with writing(self.path):
            self.checkpoint_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.records_file, b"")

    def append(self, record: dict[str, Any]) -> None:
        """Add a record."""
        line = json.dumps({key: _storable(value) for key, value in record.items()}) + "\n"
        with writing(self.records_file), self.records_file.open("ab") as file:
            file.write(line.encode())

    def save(self, state: State) -> None:
        """Write a checkpoint of a state whose record has been appended."""
        with writing(self.records_file), self.records_file.open("ab") as file:
            os.fsync(file.fileno())
        tensors = {name: np.asarray(leaf) for name, leaf in self._named(state.weights)}
        about = {"slot": state.slot, "buffers": state.buffers, "mark": self.mark}
        content = save_tensors(tensors, metadata={"state": json.dumps(about)})
        write_whole(self.checkpoint_file, content)

    def finish(self, model: DeepKoopman, rollout: dict[str, Any], summary: dict[str, Any]) -> None:
        """Write what a finished seed leaves; the summary last, as the sign that all is there."""
        write_whole(self.path / "model.safetensors", to_bytes(model))
        write_json(self.path / "rollout.json", rollout)
        write_json(self.path / "summary.json", summary)

    def restore(self) -> tuple[State | None, list[dict[str, Any]]]:
        """The last checkpoint and the records up to it; what was recorded later is cut off."""
        state = self._read_checkpoint()
        wanted = -1 if state is None else state.slot
        kept, size = [], 0
        content = self.records_file.read_bytes() if self.records_file.exists() else b""
        for line in content.splitlines(keepends=True):
            try:
                record = json.loads(line)
            except ValueError:  # the line that was being written when the process died
                break
            if not line.endswith(b"\n") or record["slot"] > wanted:
                break
            kept.append(record)
            size += len(line)
        if [record["slot"] for record in kept] != list(range(wanted + 1)):
            raise InputError(
                f"{self.records_file} holds {len(kept)} records but the checkpoint follows slot "
                f"{wanted}: the file was changed; start again with another --out"
            )
        with writing(self.records_file):
            os.truncate(self.records_file, size) if content else self.create()
        return state, kept

    def _read_checkpoint(self) -> State | None:
        path = self.checkpoint_file
        if not path.exists():
            return None
        try:
            content = path.read_bytes()
            length = int.from_bytes(content[:8], "little")
            about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["state"])
            tensors = load_tensors(content)
            if about["mark"] != self.mark:
                raise InputError(
                    f"{path} is of another study or seed: give the study it was started with, or "
                    "another --out"
                )
            weights = self.architecture.template
            names = [name for name, _ in self._named(weights)]
            leaves = [tensors[name] for name in names]
            weights = jax.tree.unflatten(jax.tree.structure(weights), leaves)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{path} is damaged ({type(error).__name__}): start again with another --out"
            ) from error
        return State(about["slot"], weights, tuple(tuple(b) for b in about["buffers"]))

    @staticmethod
    def _named(weights: Any) -> Iterator[tuple[str, Any]]:
        """Leaves by name, in the order of the tree."""
        yield from ((f"encoder.{i}", layer.matrix) for i, layer in enumerate(weights.encoder))
        yield "operator", weights.operator
        yield from ((f"decoder.{i}", layer.matrix) for i, layer in enumerate(weights.decoder))


def _storable(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
