"""`--json`: what a verb has to say, as one line for other programs.

A verb that prints a table returns the same facts; `with_json` gives it the option. With it standard
output holds nothing but one line with one JSON object; notes, warnings and progress go to standard
error as ever. Numbers that are not finite are null, and a verb that fails prints no line.
"""

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Facts = Mapping[str, Any]
"""What a verb tells: texts, numbers, arrays, paths and dataclasses, in dictionaries and lists."""
Json = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON instead, with the same facts.")
]
NAME = "as_json"


def with_json(verb: Callable[..., Facts | None]) -> Callable[..., None]:
    """A verb with the option `--json`; a verb that returns no facts stays as it is.

    A verb with a parameter `as_json` of its own is told whether the option was given.
    """
    signature = inspect.signature(verb)
    if signature.return_annotation is None:
        return verb  # type: ignore[return-value]
    own = NAME in signature.parameters
    extra = inspect.Parameter(NAME, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    parameters = [*signature.parameters.values(), *(() if own else (extra,))]

    @wraps(verb)
    def told(**given: Any) -> None:
        as_json = given[NAME] if own else given.pop(NAME)
        if not as_json:
            verb(**given)
            return
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            facts = verb(**given)
        line = json.dumps(plain(facts or {}), ensure_ascii=False, allow_nan=False)
        typer.echo(line.encode(errors="backslashreplace").decode())  # a damaged name may be in it

    del told.__wrapped__  # its signature is not the verb's
    told.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=None
    )
    told.__annotations__ = {one.name: one.annotation for one in parameters}
    return told


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return plain(value.tolist())  # of NumPy
