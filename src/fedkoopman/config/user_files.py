"""Which Python files a study names; told without loading JAX."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedkoopman.config.loader import keys_of
from fedkoopman.config.study import Study
from fedkoopman.config.tables import Sensor
from fedkoopman.rules import Auto, Choice, OneOrEach, Rule
from fedkoopman.user_code import is_reference

__all__ = ["user_files"]


def user_files(study: Study) -> list[Path]:
    """Python files that a study names, relative to its folder."""
    parts = [getattr(study, f.name) for f in fields(study) if "section" in f.metadata]
    names = [
        name
        for part in (study, *parts)
        for f in keys_of(type(part))
        for name in _names(f.metadata["rule"], getattr(part, f.name))
    ]
    return sorted({Path(name.rpartition(":")[0]) for name in names if is_reference(name)})


def _names(rule: Rule, value: Any) -> Iterator[str]:
    """What a key's value names, if its rule takes "file.py:name"."""
    if isinstance(rule, Auto):
        yield from _names(rule.rule, value)
    elif isinstance(rule, OneOrEach):
        for entry in value if isinstance(value, tuple) else (value,):
            yield from _names(rule.rule, entry)
    elif isinstance(rule, Sensor):  # its kind, and what a kind's own keys name
        yield from (entry for entry in value.values() if isinstance(entry, str))
    elif isinstance(rule, Choice):
        yield value
