"""The command line's reference as Markdown, made from the commands themselves.

`python -m fedkoopman.cli.reference > docs/cli.md` writes it; a test fails when it is stale.
"""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from fedkoopman.cli.app import EXAMPLE, VERBS, app

ALIVE = ("serve", "join", "status", "ledger", "watch")
NOT_RUN = (
    "not run: it goes on until it is stopped, or looks at what does; tests/deploy/test_parity.py"
)
"""Of the examples of these verbs."""


def reference() -> str:
    """The whole page."""
    program: Any = get_command(app)
    lines = [
        "# Command line",
        "",
        "Made by `make docs` from the commands themselves; do not edit.",
        "",
        program.help.strip(),
        *_example(EXAMPLE),
        "",
        "Exit codes: 0 done, 1 computation or machine failed, 2 wrong input, 130 interrupted.",
        "A mistake in the input is told in one line, and no output is left behind.",
    ]
    for name, command in program.commands.items():
        example = _example(VERBS[name].example, NOT_RUN if name in ALIVE else "slow")
        lines += ["", f"## fedkoopman {name}", "", command.help.strip(), *example]
        for panel, rows in _panels(command.params).items():
            lines += ["", f"| {panel} | | default |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _example(text: str, mark: str = "slow") -> Iterator[str]:
    """An example, and how `tests/e2e/test_pages.py` is to treat it."""
    yield from ("", f"<!-- {mark} -->", "```sh", *text.strip().splitlines(), "```")


def _panels(parameters: list[Any]) -> dict[str, list[str]]:
    """Rows of the parameters' tables, by the panel of `--help` that they stand in."""
    panels: dict[str, list[str]] = {}
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            panel, spelling = "Arguments", parameter.name.upper()
        else:
            panel = parameter.rich_help_panel or "Options"
            spelling = " / ".join([*parameter.opts, *parameter.secondary_opts])
        default = "required" if parameter.required else _shown(parameter.default)
        text = parameter.help.replace("|", "\\|")
        panels.setdefault(panel, []).append(f"| `{spelling}` | {text} | {default} |")
    return panels


def _shown(default: object) -> str:
    if default is None or isinstance(default, bool):
        return {True: "yes", False: "no"}.get(default, "") if default is not None else ""
    return f"`{getattr(default, 'value', default)}`"


if __name__ == "__main__":
    print(reference(), end="")
