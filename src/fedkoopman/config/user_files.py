"""Which files a study names, and how another folder names them; told without loading JAX."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedkoopman.config.formats import DataFiles
from fedkoopman.config.loader import Section, keys_of
from fedkoopman.config.study import Study
from fedkoopman.config.tables import Sensor
from fedkoopman.errors import InputError
from fedkoopman.rules import Auto, Choice, Files, OneOrEach, Rule
from fedkoopman.session_objects import SESSION
from fedkoopman.user_code import is_reference

__all__ = ["check_lasting", "moved", "user_files"]


def check_lasting(study: Study) -> None:
    """Refuse a study with objects of this Python session where it has to be found again on disk."""
    if Path(SESSION) not in user_files(study):
        return
    keys = [
        section.dotted(field.name)
        for section in _sections(study)
        for field in keys_of(type(section))
        if f"{SESSION}:" in str(getattr(section, field.name))
    ]
    raise InputError(
        f"{' and '.join(keys)} of the study {'is an object' if len(keys) == 1 else 'are objects'} "
        "of this Python session, without which a run directory could not go on: put such an "
        "object into a file of its own and import it from there, or run in memory, without out"
    )


def user_files(study: Study) -> list[Path]:
    """Python files that a study names, relative to its folder."""
    found: set[Path] = set()

    def note(file: str) -> str:
        found.add(Path(file))
        return file

    for section in _sections(study):
        for field in keys_of(type(section)):
            rule = field.metadata["rule"]
            if not isinstance(rule, Files | DataFiles):
                _renamed(rule, getattr(section, field.name), note)
    return sorted(found)


def moved(study: Study, folder: Path) -> Study:
    """The same study as one of another folder: every file that it names is named from there.

    Arguments:
        folder: where the study will be written; a file with an absolute path keeps it.
    """
    root, there = study.root.resolve(), folder.resolve()

    def rename(file: str) -> str:
        path = Path(file)
        return file if path.is_absolute() else Path(os.path.relpath(root / path, there)).as_posix()

    table: dict[str, Any] = {}
    for section in _sections(study):
        values = table.setdefault(section.section, {}) if section.section else table
        for field in keys_of(type(section)):
            value = getattr(section, field.name)
            values[field.name] = _renamed(field.metadata["rule"], value, rename)
    return Study.from_dict(table, there)


def _sections(study: Study) -> Iterator[Section]:
    """The study itself with its top keys, and its sections."""
    yield study
    yield from (getattr(study, part.name) for part in study.parts())


def _renamed(rule: Rule, value: Any, rename: Callable[[str], str]) -> Any:
    """A key's value with other names of the files in it, as far as its rule takes any."""
    if isinstance(rule, Auto):
        return _renamed(rule.rule, value, rename)
    if isinstance(rule, OneOrEach) and isinstance(value, tuple):
        return tuple(_renamed(rule.rule, entry, rename) for entry in value)
    if isinstance(rule, OneOrEach):
        return _renamed(rule.rule, value, rename)
    if isinstance(rule, Files | DataFiles):
        return tuple(map(rename, value))
    if isinstance(rule, Sensor):  # its kind, and what a kind's own keys name
        return {name: _reference(entry, rename) for name, entry in value.items()}
    return _reference(value, rename) if isinstance(rule, Choice) else value


def _reference(value: Any, rename: Callable[[str], str]) -> Any:
    """ "file.py:name" with another name of the file; anything else as it is."""
    if not isinstance(value, str) or not is_reference(value):
        return value
    file, colon, name = value.rpartition(":")
    return rename(file) + colon + name
