"""From TOML to frozen dataclasses, strictly, and back: fields declare what their keys take.

A field made by `key` carries its rule and its description, from which come the check of every
value and the printed reference. `Section` is the base of dataclasses made of such fields. TOML is
read within bounds, and written here, as the standard library only reads it.
"""

import dataclasses
import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fedkoopman.errors import InputError, short, system_error
from fedkoopman.paths import check_name, shown
from fedkoopman.rules import Choice, Rule, Text
from fedkoopman.session_objects import is_object

DEEPEST = 50
"""Tables and lists within each other. Far deeper ones exceed Python's stack, here or later."""
BITS = 4096
"""Of an integer; Python does not even print far larger ones."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIKE, _SAME_SECTION = 0.6, 0.2
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNBROKEN = re.compile(r"\{[^{}]*\}|[<>]=? \S+")
_WIDTH = 100

Same = TypeVar("Same", bound="Section")


def key(default: Any, rule: Rule, says: str, symbol: str = "") -> Any:
    """A field of a study.

    Arguments:
        says: what it means, in one line.
        symbol: the paper's symbol.
    """
    metadata = {"rule": rule, "says": f"{says} ({symbol})" if symbol else says}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def part(kind: "type[Section]", required: bool = False) -> Any:
    """A field that holds a section."""
    about = {"section": kind}
    if required:
        return dataclasses.field(metadata=about)
    return dataclasses.field(default_factory=kind, metadata=about)


@dataclasses.dataclass(frozen=True)
class Section:
    """Fields made by `key` and `part`; every value is checked and brought to its normal form."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in keys_of(type(self)):
            value = field.metadata["rule"].read(getattr(self, field.name), self.dotted(field.name))
            object.__setattr__(self, field.name, value)
        for field in self.parts():
            given, kind = getattr(self, field.name), field.metadata["section"]
            if not isinstance(given, kind):
                object.__setattr__(self, field.name, kind.from_table(given, self.known()))

    @classmethod
    def dotted(cls, name: str) -> str:
        """The key of a field as it is written from the top of the file."""
        return f"{cls.section}.{name}" if cls.section else name

    @classmethod
    def parts(cls) -> list[dataclasses.Field[Any]]:
        """The fields that hold sections."""
        return [field for field in dataclasses.fields(cls) if "section" in field.metadata]

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """The rule of every dotted key, those of the sections included."""
        kinds: list[type[Section]] = [cls, *(field.metadata["section"] for field in cls.parts())]
        return {kind.dotted(f.name): f.metadata["rule"] for kind in kinds for f in keys_of(kind)}

    @classmethod
    def known(cls) -> list[str]:
        """Every key and section in order, and every dotted key."""
        top = [field.name for field in dataclasses.fields(cls) if field.metadata]
        return [*top, *(name for name in cls.rules() if name not in top)]

    @classmethod
    def check_keys(cls, table: Mapping[str, Any], known: Iterable[str]) -> None:
        """Refuse a key that does not exist.

        Arguments:
            known: every dotted key of the file, for suggestions.
        """
        names = [field.name for field in dataclasses.fields(cls) if field.metadata]
        for name in table:
            if name not in names:
                raise unknown_key(cls.dotted(str(name)), known)

    @classmethod
    def from_table(cls: type[Same], table: object, known: Iterable[str]) -> Same:
        """Read a table of the file; what is missing takes its default."""
        if is_object(table):
            table = cls.table_of(table)
        if not isinstance(table, Mapping):
            names = ", ".join(field.name for field in keys_of(cls))
            raise InputError(
                f"{cls.section} is {short(table)}: give a table [{cls.section}] with keys of "
                f"{names}"
            )
        cls.check_keys(table, known)
        return cls(**table)

    @classmethod
    def table_of(cls, given: Any) -> Any:
        """The table that an object in place of a section stands for; others are left alone."""
        rule = next((f.metadata["rule"] for f in keys_of(cls) if f.name == "name"), None)
        return {"name": given} if isinstance(rule, Choice) and rule.reference else given

    def table(self) -> dict[str, Any]:
        """Keys and values, tables in place of sections and lists in place of tuples."""
        fields = [field for field in dataclasses.fields(self) if field.metadata]
        return {field.name: listed(getattr(self, field.name)) for field in fields}

    def lines(self, values: Mapping[str, Any], comments: bool) -> list[str]:
        """The keys of this section as TOML, without those of the sections in it.

        Arguments:
            values: from `table`; keys that are not in it are left out.
            comments: precede each key with what it means and what it may be.
        """
        lines = []
        for f in keys_of(type(self)):
            if f.name not in values:
                continue
            if comments:
                make = f.default_factory
                default = f.default if make is dataclasses.MISSING else make()
                same = default in (dataclasses.MISSING, getattr(self, f.name))
                lines += comment(f.metadata, None if same else toml_value(default))
            lines.append(f"{f.name} = {toml_value(values[f.name])}")
        return lines


def keys_of(kind: type[Section]) -> list[dataclasses.Field[Any]]:
    """The fields of a class that are keys with a value of their own."""
    return [field for field in dataclasses.fields(kind) if "rule" in field.metadata]


def listed(value: Any) -> Any:
    """A value with lists in place of tuples, copied all through."""
    if isinstance(value, Section):
        return value.table()
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


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text says; whatever is wrong with it is a ValueError of one line."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python refuses to read so many digits
        raise ValueError(
            f"it holds an integer of thousands of digits: write at most {BITS} bits"
        ) from None
    level: list[Any] = [table]
    for _ in range(DEEPEST + 1):  # the file itself is a table
        level = [
            entry
            for value in level
            for entry in (value.values() if isinstance(value, dict) else value)
            if _is_within_bounds(entry)
        ]
    if level:
        raise ValueError(_too_deep())
    return table


def _too_deep() -> str:
    return f"tables or lists stand more than {DEEPEST} deep within each other: write fewer levels"


def _is_within_bounds(value: Any) -> bool:
    """Whether a value holds others; a number that is too large is refused."""
    if isinstance(value, int) and value.bit_length() > BITS:
        raise ValueError(
            f"it holds an integer of {value.bit_length()} bits: write at most {BITS} bits"
        )
    return isinstance(value, dict | list)


def toml_value(value: Any) -> str:
    """A value on one line; what `tomllib` reads back is equal, floats to the last bit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return re.sub(r"e([+-])0+(?=\d)", r"e\1", repr(float(value)))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(
            f"{toml_key(name)} = {toml_value(entry)}" for name, entry in value.items()
        )
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"{value!r} has no form in TOML")


def toml_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for the delete character, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def comment(about: Mapping[str, Any], default: str | None = None) -> list[str]:
    """The comment above a key: what it means and what it may be, on one line if there is room.

    Arguments:
        about: the metadata of the key's field.
        default: the key's default, where its value is another.
    """
    allows = about["rule"].allows
    texts = [f"{about['says']}.", f"{allows[0].upper()}{allows[1:]}."]
    texts += [] if default is None else [f"Default: {default}."]
    if len(" ".join(texts)) + 2 <= _WIDTH:
        texts = [" ".join(texts)]
    kept = [_UNBROKEN.sub(lambda found: found[0].replace(" ", "\0"), text) for text in texts]
    lines = [
        textwrap.wrap(
            text,
            _WIDTH,
            initial_indent="# ",
            subsequent_indent="#   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in kept
    ]
    return [line.replace("\0", " ") for text in lines for line in text]
