"""Model files: tensors as safetensors, everything else as JSON in their header; never a pickle.

The same model gives the same bytes. What a file holds is checked in full before it becomes a
model, so a file of unknown origin can be refused but does no harm. A digest tells a file that was
changed after it was written; it is no signature, as whoever means to can write another.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import save

from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, short, system_error
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.network import Architecture, Layer, Weights
from fedkoopman.koopman.training import Training
from fedkoopman.paths import check_name

__all__ = ["from_bytes", "read_model", "to_bytes", "write_model"]

FORMAT, VERSION = "fedkoopman-model", 2
"""Version 1 had neither a digest nor the tensor `noise`; it can still be read."""
KEY = "fedkoopman"
"""Of the one entry in the header: safetensors writes several in no fixed order."""
LARGEST = 2**30
KEPT = ("dt", "names", "units", "random_state", "updates", "windows", "information")
WIDE = ("reference", "noise")
"""Tensors in double precision, whatever that of the network."""
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


class Model(Protocol):
    """What can be saved: an estimator that knows what it learned."""

    @property
    def learned_(self) -> Learned:
        """A network with what is needed to use it."""


def to_bytes(model: Model) -> bytes:
    """The file's content; equal models give equal bytes."""
    return _pack(model.learned_)


def _pack(model: Learned) -> bytes:
    architecture, training = asdict(model.architecture), asdict(model.training)
    if not isinstance(model.architecture.activation, str):
        raise InputError(
            f"the activation {short(model.architecture.activation)} is a function, which a model "
            "file cannot hold: use a named activation, or save model.weights_ yourself"
        )
    del training["precision"]  # the tensors say
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": architecture,
        "training": training,
        **{name: getattr(model, name) for name in KEPT},
    }
    tensors = {"operator": model.weights.operator, "reference": model.reference}
    if model.noise is not None:
        tensors["noise"] = model.noise
    for part in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model.weights, part)):
            tensors[f"{part}.{i}.weight"], tensors[f"{part}.{i}.bias"] = layer.weight, layer.bias
    # safetensors reads from where an array starts, as if it were in one piece.
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header["digest"] = _digest(header, whole)
    return save(whole, {KEY: json.dumps(header, sort_keys=True, allow_nan=False)})


def _digest(header: dict[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of all that is in a file: its header without the digest, then tensor by tensor."""
    rest = {name: value for name, value in header.items() if name != "digest"}
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        plain = tensor.astype(tensor.dtype.newbyteorder("<"))
        found.update(f"\n{name} {plain.dtype.str} {plain.shape}\n".encode())
        found.update(plain.tobytes())
    return found.hexdigest()


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model file, whole or not at all."""
    content, path = to_bytes(model), Path(path)
    with writing(path):  # a name may be too long even to look for
        if path.is_dir():
            raise InputError(f"{path} is a directory: give the name of a file in it")
    write_whole(path, content)


def read_model(path: str | os.PathLike[str]) -> Learned:
    """What a model file holds, or a refusal of one line; `DeepKoopman.load` makes a model of it."""
    check_name(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise InputError(f"{path} has {size} bytes, too many for a model: check the path")
            content = file.read(LARGEST)
    except FileNotFoundError:
        raise InputError(f"there is no model file {path}: check the path") from None
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    try:
        return from_bytes(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def from_bytes(content: bytes) -> Learned:
    """The model in a file's content."""
    try:
        views = dict(safetensors.deserialize(content))
        size = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise InputError(
            f"not a safetensors file, or cut short ({short(str(error))}): save the model again"
        ) from None
    header = _header(entries.get(KEY))
    try:
        architecture = Architecture(**header["architecture"])
        training = Training(**header["training"])
    except (KeyError, TypeError) as error:
        raise _damaged(f"architecture or training do not fit ({short(str(error))})") from None
    if not isinstance(architecture.activation, str):
        raise _damaged(f"the activation is {short(architecture.activation)}")
    tensors = _tensors(architecture, views)

    def layers(part: str) -> tuple[Layer, ...]:
        return tuple(
            Layer(np.column_stack([tensors[f"{part}.{i}.weight"], tensors[f"{part}.{i}.bias"]]))
            for i in range(architecture.hidden_layers + 1)
        )

    try:
        rest = {name: header[name] for name in KEPT}
    except KeyError as error:
        raise _damaged(f"its header has no {error}") from None
    learned = Learned(
        architecture,
        Weights(layers("encoder"), tensors["operator"], layers("decoder")),
        reference=tensors["reference"],
        training=training,
        noise=tensors.get("noise"),
        **rest,
    )
    if header["version"] > 1 and header.get("digest") != _digest(header, tensors):
        raise _damaged("its digest is not that of its content, which was changed since")
    return learned


def _header(text: str | None) -> dict[str, Any]:
    if text is None:
        raise InputError("holds tensors but no fedkoopman model: give a file that save() wrote")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"its header is not that of a {FORMAT}: give a file that save() wrote")
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        newer = type(version) is int and version > VERSION
        raise InputError(
            f"has version {short(version)} of the model format, and this fedkoopman reads versions "
            f"1 to {VERSION}: "
            + ("update fedkoopman" if newer else "give a file that save() wrote")
        )
    return header


def _tensors(architecture: Architecture, views: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """The tensors, all of which must be there, with the shapes of the architecture."""
    plain = len(views) - ("noise" in views)
    if 4 * (architecture.hidden_layers + 1) + 2 != plain:  # before lists of that length
        raise _damaged(f"{architecture.hidden_layers} hidden layers do not go with {plain} tensors")
    dims, components = architecture.encoder_dims, architecture.components
    shapes: dict[str, tuple[int, ...]] = {
        "operator": (components, components),
        "reference": (architecture.window, architecture.state_dim),
    }
    if "noise" in views:
        shapes["noise"] = (components, components)
    for part, along in (("encoder", dims), ("decoder", dims[::-1])):
        for i, (before, after) in enumerate(pairwise(along)):
            shapes[f"{part}.{i}.weight"], shapes[f"{part}.{i}.bias"] = (after, before), (after,)
    result = {}
    for name, shape in shapes.items():
        if name not in views:
            raise _damaged(f"the tensor {name!r} is missing")
        view = views[name]
        if tuple(view["shape"]) != shape:
            raise _damaged(f"the tensor {name!r} has shape {tuple(view['shape'])}, not {shape}")
        if view["dtype"] not in (["F64"] if name in WIDE else DTYPES):
            raise _damaged(f"the tensor {name!r} holds {view['dtype']}")
        if view["dtype"] != views["operator"]["dtype"] and name not in WIDE:
            raise _damaged(f"the tensors {name!r} and 'operator' differ in precision")
        dtype = DTYPES[view["dtype"]]
        tensor = np.frombuffer(view["data"], dtype).astype(dtype.newbyteorder("="))
        if not np.isfinite(tensor).all():
            raise _damaged(f"the tensor {name!r} has entries that are not finite")
        result[name] = tensor.reshape(shape)
    return result


def _damaged(what: str) -> InputError:
    return InputError(f"the model file is damaged, {what}: save the model again")
