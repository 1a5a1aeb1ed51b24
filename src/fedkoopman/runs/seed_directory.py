"""One seed's directory: records that only grow, and a checkpoint to go on from exactly.

A record is acknowledged when its line is in `records.jsonl`. A checkpoint is written after the
records it follows are safely on disk, whole or not at all; what came after it is computed again on
resumption, with the same result. It carries a digest of itself and of those records, so that a file
that was changed since is noticed.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, system_error
from fedkoopman.federation.slot import State
from fedkoopman.koopman.card import write_card
from fedkoopman.koopman.files import to_bytes
from fedkoopman.koopman.model import DeepKoopman

REMEDY = "what was recorded before is intact, make room or give permission and go on with --resume"
AGAIN = "start again with another --out"


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_whole(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), REMEDY)


class SeedDirectory:
    """The files of one seed."""

    def __init__(self, path: Path, mark: str) -> None:
        """Arguments:
        path: the directory; made if missing.
        mark: names the study and seed; a checkpoint of another is refused.
        """
        self.path = path
        self._mark = mark
        self._records = path / "records.jsonl"
        self._checkpoint = path / "checkpoint" / "state.safetensors"
        self._untrained: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        """What else the last checkpoint holds; a served run's sites, for one."""
        self._written, self._digest = 0, hashlib.sha256()
        """Bytes of records, and the digest of them."""
        with writing(path, REMEDY):
            self._checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def begin(self, untrained: dict[str, Any]) -> None:
        self._untrained = untrained
        write_json(self.path / "untrained.json", untrained)

    def append(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with writing(self._records, REMEDY), self._records.open("ab") as file:
            file.write(line)
        self._written += len(line)
        self._digest.update(line)

    def save(self, state: State, extra: dict[str, Any] | None = None) -> None:
        """Write a checkpoint of a state whose record has been appended.

        Arguments:
            extra: what else belongs to the state, for JSON; kept in the same file.
        """
        with writing(self._records, REMEDY), self._records.open("ab") as file:
            os.fsync(file.fileno())
        tensors = {name: np.ascontiguousarray(leaf) for name, leaf in state.arrays.items()}
        about = {
            "slot": state.slot,
            "buffers": state.buffers,
            **({"spent": state.spent} if any(state.spent) else {}),
            "mark": self._mark,
            "untrained": self._untrained,
            "records": [self._written, self._digest.hexdigest()],
            **({} if extra is None else {"extra": extra}),
        }
        text = json.dumps(about)
        content = save_tensors(tensors, {"state": text, "digest": _digest(text, tensors)})
        write_whole(self._checkpoint, content, REMEDY)

    def finish(self, model: DeepKoopman, rollout: dict[str, Any], summary: dict[str, Any]) -> None:
        """Write what a finished seed leaves; the summary last, as the sign that all is there."""
        write_whole(self.path / "model.safetensors", to_bytes(model), REMEDY)
        write_card(self.path / "model.safetensors", model, _scores(summary))
        write_json(self.path / "rollout.json", rollout)
        write_json(self.path / "summary.json", summary)

    def show(self, evidence: dict[str, Any]) -> None:
        """Write what reports show of the finished model."""
        text = json.dumps(evidence, allow_nan=False, separators=(",", ":")) + "\n"
        write_whole(self.path / "evidence.json", text.encode(), REMEDY)

    def restore(self) -> tuple[State | None, dict[str, Any], list[dict[str, Any]]]:
        """The last checkpoint, the untrained model's scores, and the records up to the checkpoint;
        what was recorded later is cut off."""
        state, written, digest = self._read_checkpoint()
        try:
            content = self._records.read_bytes() if self._records.exists() else b""
        except OSError as error:
            raise system_error(f"cannot read {self._records}", error, AGAIN) from error
        self._digest = hashlib.sha256(content[:written])
        self._written = written
        if self._digest.hexdigest() != digest:
            raise InputError(f"{self._records} was changed since it was written: {AGAIN}")
        with writing(self._records, REMEDY), self._records.open("ab") as file:
            file.truncate(written)
        records = [json.loads(line) for line in content[:written].splitlines()]
        if state is not None:
            self.begin(self._untrained)  # the report reads the file, which may have been damaged
        return state, self._untrained, records

    def _read_checkpoint(self) -> tuple[State | None, int, str]:
        if not self._checkpoint.exists():
            return None, 0, hashlib.sha256().hexdigest()
        try:
            content = self._checkpoint.read_bytes()
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])["__metadata__"]
            tensors = load_tensors(content)
            if header["digest"] != _digest(header["state"], tensors):
                raise ValueError("its digest does not fit")
            about = json.loads(header["state"])
            same = about["mark"] == self._mark
        except Exception as error:  # whatever random bytes may cause in any reader
            raise InputError(
                f"{self._checkpoint} is damaged ({' '.join(str(error).split())}): {AGAIN}"
            ) from error
        if not same:
            raise InputError(
                f"{self._checkpoint} is of another study or seed: resume it with its own, or "
                "choose another --out"
            )
        self._untrained = about["untrained"]
        self.extra = about.get("extra", {})
        buffers = tuple(map(tuple, about["buffers"]))
        spent = tuple(map(tuple, about.get("spent", [()] * len(buffers))))
        return State(about["slot"], tensors, buffers, spent), *about["records"]


def _scores(summary: dict[str, Any]) -> dict[str, Any]:
    """What a model's card tells of how good it is."""
    names = {"l3": "test loss ℓ3", "E": "prediction error E", "horizon": "valid steps"}
    return {words: summary[name] for name, words in names.items() if summary[name]["mean"]}


def _digest(text: str, tensors: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].tobytes())
    return found.hexdigest()
