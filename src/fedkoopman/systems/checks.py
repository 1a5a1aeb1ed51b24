"""Checks of what users hand to systems and sensors; each refusal is one line."""

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.systems.solvers import Number

LARGEST_DIM = 4096
"""Components of a state or an observation: a covariance of so many takes 128 MiB."""


def number(value: Any, name: str) -> Number:
    """A finite real number: a float when it is concrete, as it is when it is traced."""
    if isinstance(value, jax.core.Tracer):
        return value
    try:
        array = np.asarray(value)
        result = float(array) if array.ndim == 0 and array.dtype.kind in "iuf" else math.nan
    except (TypeError, ValueError):
        result = math.nan
    if not math.isfinite(result):
        raise InputError(f"{name} is {short(value)}: give one finite real number")
    return result


def check_positive(value: Number, name: str) -> None:
    """Refuse a concrete value that is not above zero."""
    if not isinstance(value, jax.core.Tracer) and not float(value) > 0:
        raise InputError(f"{name} is {float(value):g}: it must be above 0")


def check_count(value: Any, name: str, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} is {short(value)}: give a whole number of at least {least}")
    return int(value)


def check_dim(value: Any, name: str, least: int = 1) -> int:
    """A number of components, which must not exceed `LARGEST_DIM`."""
    dim = check_count(value, name, least)
    if dim > LARGEST_DIM:
        raise InputError(
            f"{name} is {short(dim)}: give at most {LARGEST_DIM}, as matrices of {name} × {name} "
            "numbers are kept for every sample"
        )
    return dim


def check_indices(values: Any, dim: int, name: str, what: str) -> tuple[int, ...]:
    """Distinct component indices in 0 … dim − 1."""
    try:
        indices = tuple(values)
    except TypeError:
        raise InputError(f"{name} is {short(values)}: give a tuple of {what} indices") from None
    for index in indices:
        good = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if not good or not 0 <= index < dim:
            raise InputError(
                f"{name} contains {short(index)} but the {what} has {dim} components: "
                f"indices go from 0 to {dim - 1}"
            )
    if len(set(indices)) < len(indices):
        raise InputError(f"{name} is {indices}: name each {what} component once")
    return tuple(int(index) for index in indices)


def check_seed(seed: Any) -> int:
    """A seed is a whole number from 0 to 2⁶³ − 1."""
    checked = check_count(seed, "seed", least=0)
    if checked >= 2**63:
        raise InputError(f"seed is {checked}: give a whole number below 2**63")
    return checked


def real_array(value: Any, name: str) -> NDArray[np.float64]:
    """A float64 array of what the user gave."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not an array of real numbers: give numbers") from None


def finite_array(value: Any, name: str) -> NDArray[np.float64]:
    """A float64 array of finite numbers."""
    array = real_array(value, name)
    bad = array[~np.isfinite(array)]
    if bad.size:
        raise InputError(f"{name} contains {bad[0]}: every entry must be finite")
    return array
