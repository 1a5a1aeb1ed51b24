"""Which Python files a study names; told without loading JAX."""

from dataclasses import fields
from pathlib import Path

from fedkoopman.config.loader import Section, keys_of
from fedkoopman.config.study import Study
from fedkoopman.rules import Choice
from fedkoopman.user_code import is_reference

__all__ = ["user_files"]


def user_files(study: Study) -> list[Path]:
    """Python files that a study names, relative to its folder."""
    sections: list[Section] = [
        getattr(study, f.name) for f in fields(study) if "section" in f.metadata
    ]
    names = [
        getattr(section, f.name)
        for section in sections
        for f in keys_of(type(section))
        if isinstance(f.metadata["rule"], Choice)
    ]
    sensors = study.clients.sensor
    for table in sensors if isinstance(sensors, tuple) else (sensors,):
        names += [value for value in table.values() if isinstance(value, str)]
    return sorted({Path(name.rpartition(":")[0]) for name in names if is_reference(name)})
