"""A directory with Python of a user's own, for studies that name it."""

from pathlib import Path

import pytest

FILES = """
import jax.numpy as jnp
from fedkoopman import System
decay = System.from_function(lambda x, rate=1.0: -rate * x, 2, 0.1, parameters={"rate": 2.0})
driven = System.from_function(lambda x, u: u - x, 2, 0.1, input_dim=2)
def first(x):
    return x[:1]
def policy(*arguments):
    return ()
number = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a user's Python file."""
    (tmp_path / "own.py").write_text(FILES, encoding="utf-8")
    return tmp_path
