"""Lies that the site lab-x could tell, and what the server says of each."""

import secrets
from dataclasses import replace

import numpy as np

from fedkoopman.deploy.wire import Refused, encode_replies

from .liar import of_answered, of_arrays, of_model, of_polled


def _nan(name: str, leaf: np.ndarray) -> np.ndarray:
    return np.where(np.arange(leaf.size).reshape(leaf.shape) == 1, np.nan, leaf).astype(leaf.dtype)


def _other_kind(name: str, leaf: np.ndarray) -> np.ndarray:
    return leaf.astype(np.float64 if leaf.dtype == np.float32 else np.float32)


UPDATES = {
    "not-a-number": (of_model(_nan), "not finite"),
    "infinite": (of_model(lambda name, leaf: leaf + np.inf), "not finite"),
    "wrong-shape": (of_model(lambda name, leaf: leaf[:-1]), "of shape"),
    "transposed": (of_model(lambda name, leaf: leaf.T if name != "operator" else leaf), "of shape"),
    "wrong-dtype": (of_model(_other_kind), "sends encoder.0 as float"),
    "integers": (of_model(lambda name, leaf: leaf.astype(np.int64)), "float32 or float64"),
    "wrong-names": (
        of_arrays(lambda arrays: {f"{n}x": leaf for n, leaf in arrays.items()}),
        "sends 'update' without",
    ),
    "one-tensor-less": (
        of_arrays(lambda arrays: dict(list(arrays.items())[1:])),
        "sends 'update' without",
    ),
    "huge": (of_model(lambda name, leaf: leaf + 1000), "changes the model by"),
    "samples": (of_answered(lambda r: replace(r, samples=r.samples * 1000)), "samples where"),
    "no-samples": (of_answered(lambda r: replace(r, samples=0)), "claims 0 samples"),
    "old-slot": (of_answered(lambda r: replace(r, slot=r.slot - 1)), "answers for slot"),
    "next-slot": (of_answered(lambda r: replace(r, slot=r.slot + 1)), "answers for slot"),
    "other-base": (of_answered(lambda r: replace(r, base="0" * 64)), "another message"),
    "other-site": (of_answered(lambda r: replace(r, site="lab-a")), "speaks for 'lab-a'"),
    "path-as-site": (
        of_answered(lambda r: replace(r, site="../../../x")),
        "speaks for '../../../x'",
    ),
    "other-study": (
        lambda envelope, replies: encode_replies(replace(envelope, study="x:0"), replies),
        "answers for another study",
    ),
    "refuses-twice": (
        lambda envelope, _: encode_replies(envelope, [Refused("lab-x", "no")] * 2),
        "answers ['Refused', 'Refused']",
    ),
    "says-nothing": (lambda envelope, _: encode_replies(envelope, []), "malformed"),
    "garbage": (lambda *_: secrets.token_bytes(1000), "malformed"),
}
COUNTS = {
    "too-many-samples": (of_polled(lambda r: replace(r, buffered=10**12)), "1,000,000,000,000"),
    "too-many-segments": (of_polled(lambda r: replace(r, segments=299)), "claims 299 segments"),
    "none-of-some": (of_polled(lambda r: replace(r, segments=0)), "in 0 segments"),
    "count-of-another-slot": (of_polled(lambda r: replace(r, slot=1)), "counts for slot 1"),
}
GATING = {"not-a-number", "too-many-samples"}
"""Told through a whole federation in `make test`; `tests/unit/deploy/test_lies.py` has them all."""
