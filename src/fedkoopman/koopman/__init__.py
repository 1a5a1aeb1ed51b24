"""Koopman models: their kinds, training, spectrum, forecasts and files, and what users touch.

Public names are loaded on first use, so that the names of the kinds are read without JAX.
"""

from typing import TYPE_CHECKING

from fedkoopman.lazy import lazy_names

if TYPE_CHECKING:
    from fedkoopman.koopman.baselines import DMD, EDMD
    from fedkoopman.koopman.model import DeepKoopman, load_model

__all__ = ["DMD", "EDMD", "DeepKoopman", "load_model"]

__getattr__ = lazy_names(__name__)
