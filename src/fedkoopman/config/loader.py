"""From tables to frozen dataclasses, strictly: the fields declare what their keys take.

A field made by `key` carries its rule and its description, from which come the check of every
value and the printed reference. `Section` is the base of dataclasses made of such fields.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fedkoopman.config.tables import TABLES
from fedkoopman.config.toml import parse_toml
from fedkoopman.errors import InputError, short, system_error
from fedkoopman.paths import check_name, shown
from fedkoopman.rules import Choice, OneOrEach, Rule, Text

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIKE, _SAME_SECTION = 0.6, 0.2

Same = TypeVar("Same", bound="Section")


def key(default: Any, rule: Rule, says: str, symbol: str = "") -> Any:
    """A field of a study.

    Arguments:
        default: its value where none is given.
        rule: what it may be.
        says: what it means, in one line.
        symbol: the paper's symbol.
    """
    metadata = {"rule": rule, "says": f"{says} ({symbol})" if symbol else says}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Section:
    """Fields made by `key`; every value is checked and brought to its normal form."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in keys_of(type(self)):
            value = field.metadata["rule"].read(getattr(self, field.name), self.dotted(field.name))
            object.__setattr__(self, field.name, value)

    @classmethod
    def dotted(cls, name: str) -> str:
        """The key of a field as it is written from the top of the file."""
        return f"{cls.section}.{name}" if cls.section else name

    @classmethod
    def from_table(cls: type[Same], table: object, known: Iterable[str]) -> Same:
        """Read a table of the file.

        Arguments:
            table: keys and values; what is missing takes its default.
            known: every dotted key of the file, for suggestions.
        """
        names = [field.name for field in keys_of(cls)]
        if not isinstance(table, Mapping):
            raise InputError(
                f"{cls.section} is {short(table)}: give a table [{cls.section}] with keys of "
                f"{', '.join(names)}"
            )
        for name in table:
            if name not in names:
                raise unknown_key(cls.dotted(str(name)), known)
        return cls(**table)

    def table(self) -> dict[str, Any]:
        """Keys and values, lists in place of tuples."""
        return {field.name: listed(getattr(self, field.name)) for field in keys_of(type(self))}


def keys_of(kind: type[Section]) -> list[dataclasses.Field[Any]]:
    """The fields of a class that are keys with a value of their own."""
    return [field for field in dataclasses.fields(kind) if "rule" in field.metadata]


def listed(value: Any) -> Any:
    """A value with lists in place of tuples, copied all through."""
    if isinstance(value, Mapping):
        return {name: listed(entry) for name, entry in value.items()}
    return [listed(entry) for entry in value] if isinstance(value, tuple) else value


def unknown_key(name: str, known: Iterable[str]) -> InputError:
    """The error for a key that does not exist; it suggests the nearest.

    Keys are compared by their last word, so that one in the wrong section is found too.
    """
    names = list(known)
    section, _, word = name.rpartition(".")

    def likeness(candidate: str) -> float:
        its_section, _, its_word = candidate.rpartition(".")
        like = SequenceMatcher(None, word[:60], its_word).ratio()
        return like + _SAME_SECTION * (its_section == section) if like >= _LIKE else 0.0

    nearest = max(names, key=likeness)
    hint = f"did you mean {nearest!r}? " if likeness(nearest) else ""
    beside = [n for n in names if n.rpartition(".")[0] == section]
    beside = beside or [n for n in names if "." not in n]
    return InputError(f"unknown key {short(name)}: {hint}known: {', '.join(beside)}")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; whatever hinders is told in one line."""
    try:
        check_name(path)
        if not path.is_file():
            problem = "is a directory" if path.is_dir() else "does not exist"
            raise InputError(f"the study file {path} {problem}: check the path")
        # Some editors put a byte order mark first.
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except ValueError as error:
        remedy = ": save it in UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(f"{shown(path)} is not valid TOML: {error}{remedy}") from error
    except OSError as error:
        raise system_error(f"cannot read {shown(path)}", error) from error


def value_of(given: Any, rule: Rule | None = None) -> Any:
    """A value from text as on the command line: TOML, or a bare word; other objects as they are.

    Arguments:
        given: the text, or the value itself.
        rule: of the key; where it wants text, a word such as 5 or true stays text.
    """
    if not isinstance(given, str):
        return given
    try:
        table = parse_toml(f"value = {given.strip()}")
    except ValueError:
        table = {}
    value = table["value"] if len(table) == 1 else given
    if isinstance(rule, Text | Choice):
        return value if isinstance(value, str) else given
    if value is given and _NUMBER.fullmatch(given.strip()):  # as .5, which TOML does not know
        return float(given)
    return value


def put(table: dict[str, Any], name: str, given: Any, rules: Mapping[str, Rule]) -> None:
    """Set a dotted key in a study's nested table; it may reach into a table that is a value.

    Arguments:
        table: the study's table, changed in place.
        name: as "slots", "training.epochs" or "system.parameters.b".
        given: the value, or text as for `value_of`; a section takes a table of some of its keys.
        rules: of every dotted key.
    """
    sections = {known.partition(".")[0] for known in rules if "." in known}
    if name in sections:
        part = value_of(given)
        part = part.table() if isinstance(part, Section) else part
        if not isinstance(part, Mapping):
            raise InputError(f"{name} is {short(part)}: give a table, or set one of its keys")
        for inner_name, value in part.items():
            put(table, f"{name}.{inner_name}", value, rules)
        return
    whole = next((known for known in rules if name == known or name.startswith(f"{known}.")), None)
    if whole is None:
        raise unknown_key(name, [*rules, *sorted(sections)])
    *above, last = whole.split(".")
    for section in above:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"{section} is {short(inner)}: give a table [{section}]")
        table = inner
    rest = name.removeprefix(whole).removeprefix(".").split(".")
    if rest == [""]:
        table[last] = value_of(given, rules[whole])
        return
    rule = rules[whole]
    if not isinstance(rule.rule if isinstance(rule, OneOrEach) else rule, TABLES) or len(rest) > 1:
        raise unknown_key(name, rules)
    before = table.get(last)
    if isinstance(before, list):
        raise InputError(f"{whole} is a list with one per client: set {whole} itself, not {name}")
    table[last] = {**(before if isinstance(before, dict) else {}), rest[0]: value_of(given)}
