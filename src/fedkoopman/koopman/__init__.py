"""Koopman models: their kinds, training, spectrum, forecasts and files, and what users touch.

Public names are loaded on first use, so that the names of the kinds are read without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkoopman.koopman.model import DeepKoopman, load_model

__all__ = ["DeepKoopman", "load_model"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("fedkoopman.koopman.model"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
