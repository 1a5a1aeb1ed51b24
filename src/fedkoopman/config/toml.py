"""TOML: reading it within bounds, and values as TOML text, which the standard library lacks."""

import json
import re
import textwrap
import tomllib
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNBROKEN = re.compile(r"\{[^{}]*\}|[<>]=? \S+")
_WIDTH = 100
DEEPEST = 50
"""Tables and lists within each other. Far deeper ones exceed Python's stack, here or later."""
BITS = 4096
"""Of an integer; Python does not even print far larger ones."""


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
