"""Model files: tensors as safetensors, everything else as JSON in their header; never a pickle.

The same model gives the same bytes. All of a file is checked before it becomes a model, so a file
of unknown origin may be refused but does no harm. A digest shows whether a file was changed after
it was written. It is no signature: anybody can write another.

The header names the model kind, which says what its settings and tensors are. A header without one
is of the paper's kind, whose files are older than the name.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import save

from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, short, system_error
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.kinds import KINDS, find_kind
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.training import Training
from fedkoopman.paths import check_name

FORMAT, VERSION = "fedkoopman-model", 2
"""Version 1 had neither a digest nor the tensor `noise`; it can still be read."""
KEY = "fedkoopman"
"""Of the one entry in the header: safetensors writes several in no fixed order."""
LARGEST = 2**30
UNNAMED = "paper"
"""The kind of a model whose header names none."""
KEPT = ("dt", "names", "units", "random_state", "updates", "windows", "information")
WIDE = ("reference", "noise")
"""Tensors in double precision, whatever that of the weights."""
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
LATER = ("proximal", "huber")
"""Options of training that are younger than the form of the file."""


def to_bytes(fitted: Fitted) -> bytes:
    """The file's content; equal models give equal bytes."""
    model = fitted.learned_
    kind, training = model.architecture, asdict(model.training)
    del training["precision"]  # the tensors say
    for name in LATER:  # a model that does without them has the file that it always had
        if training[name] == getattr(Training(), name):
            del training[name]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": kind.settings(),
        "training": training,
        **{name: getattr(model, name) for name in KEPT},
        **({} if kind.name == UNNAMED else {"kind": kind.name}),
        **({"relift": model.relift} if model.relift else {}),
        **({"input_names": model.input_names} if model.input_names else {}),
    }
    tensors = {**kind.to_file(model.weights), "reference": model.reference}
    if model.noise is not None:
        tensors["noise"] = model.noise
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


def write_model(path: str | os.PathLike[str], model: Fitted) -> None:
    """Write a model file, whole or not at all."""
    content, path = to_bytes(model), Path(path)
    with writing(path):  # a name may be too long even to look for
        if path.is_dir():
            raise InputError(f"{path} is a directory: give the name of a file in it")
    write_whole(path, content)


def read_model(path: str | os.PathLike[str], kind: str | type[Kind] | None = None) -> Learned:
    """What a model file holds, or a refusal of one line; `DeepKoopman.load` makes a model of it.

    Arguments:
        kind: the model kind, if it is not an installed one: a class, or "file.py:name".
    """
    own = None if kind is None else find_kind(kind)
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
        return from_bytes(content, own)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def from_bytes(content: bytes, own: type[Kind] | None = None) -> Learned:
    """The model in a file's content.

    Arguments:
        own: the model kind, if it is not an installed one.
    """
    try:
        views = dict(safetensors.deserialize(content))
        size = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise InputError(
            f"not a safetensors file, or cut short ({short(str(error))}): save the model again"
        ) from None
    header = _header(entries.get(KEY))
    kind = _kind(header.get("kind", UNNAMED), own)
    try:
        architecture = kind.from_settings(header["architecture"])
        training = Training(**header["training"])
    except (KeyError, TypeError) as error:
        raise _damaged(f"architecture or training do not fit ({short(str(error))})") from None
    tensors, wide = _tensors(architecture, views)
    try:
        rest = {name: header[name] for name in KEPT}
    except KeyError as error:
        raise _damaged(f"its header has no {error}") from None
    learned = Learned(
        architecture,
        architecture.from_file(tensors),
        reference=wide["reference"],
        training=training,
        noise=wide.get("noise"),
        relift=header.get("relift", 0),
        input_names=header.get("input_names"),
        **rest,
    )
    if header["version"] > 1 and header.get("digest") != _digest(header, tensors | wide):
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


def _kind(name: Any, own: type[Kind] | None) -> type[Kind]:
    """The class of a kind that a header names; a file is never a reason to run `file.py:name`."""
    if own is not None:
        if name != own.name:
            raise InputError(
                f"holds a model of the kind {short(name)}, not {own.name}: give its own kind"
            )
        return own
    if name not in KINDS:
        raise InputError(
            f"holds a model of the kind {short(name)}, and installed are {', '.join(KINDS)}: "
            "install the package that has it, or name its class by load_model(…, kind=…) or by "
            "--kind file.py:name"
        )
    return KINDS.find(name)


def _tensors(
    architecture: Kind, views: dict[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The tensors of the weights, which must be those of the architecture, and the wide ones."""
    window = (architecture.window, architecture.state_dim)
    wide = {"reference": _tensor(views, "reference", window)}
    if "noise" in views:
        wide["noise"] = _tensor(views, "noise", (architecture.components,) * 2)
    found: dict[str, NDArray[Any]] = {}
    # Ends with the first tensor that is missing, however many a header promises.
    for name, shape in architecture.file_shapes():
        found[name] = _tensor(views, name, shape)
        first = next(iter(found))
        if found[name].dtype != found[first].dtype:
            raise _damaged(f"the tensors {name!r} and {first!r} differ in precision")
    if more := sorted(views.keys() - found.keys() - wide.keys()):
        raise _damaged(f"its architecture has no tensor {short(more[0])}")
    return found, wide


def _tensor(views: dict[str, Any], name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    if name not in views:
        raise _damaged(f"the tensor {name!r} is missing")
    view = views[name]
    if tuple(view["shape"]) != shape:
        raise _damaged(f"the tensor {name!r} has shape {tuple(view['shape'])}, not {shape}")
    if view["dtype"] not in (["F64"] if name in WIDE else DTYPES):
        raise _damaged(f"the tensor {name!r} holds {view['dtype']}")
    dtype = DTYPES[view["dtype"]]
    tensor = np.frombuffer(view["data"], dtype).astype(dtype.newbyteorder("="))
    if not np.isfinite(tensor).all():
        raise _damaged(f"the tensor {name!r} has entries that are not finite")
    return tensor.reshape(shape)


def _damaged(what: str) -> InputError:
    return InputError(f"the model file is damaged, {what}: save the model again")
