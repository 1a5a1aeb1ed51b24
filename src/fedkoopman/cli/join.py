"""`fedkoopman join`: take part in a federation with a site's own data, which stay at the site."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.options import State, argument, option
from fedkoopman.cli.process import say
from fedkoopman.errors import InputError

EXAMPLE = """
fedkoopman join lab-a/site.toml --server learn.example.org:8443
"""


def join(
    site: Annotated[Path, argument("SITE.toml", "The site file.")],
    server: Annotated[str, option("HOST:PORT", "The coordinator, as it is reached from here.")],
    kit: Annotated[
        Path | None,
        option(
            "FILE", "The kit that the coordinator made; otherwise NAME.kit beside the site file."
        ),
    ] = None,
    code_file: Annotated[
        Path | None,
        option("FILE", "A file with the code that unlocks the kit; otherwise it is asked for."),
    ] = None,
    state: State = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree to what the study asks for, without being asked.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be sent, computed here; send nothing."),
    ] = False,
    rewind: Annotated[
        bool,
        typer.Option(
            "--rewind",
            help="Answer for slots that were over: the server was restored from a backup.",
        ),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys, on this machine only.")
    ] = False,
) -> None:
    """Join a federation: the data stay here, what leaves is written into a ledger."""
    from fedkoopman.deploy.site.join import agreed, asked_for, consent, prepare
    from fedkoopman.deploy.site.join import join as run

    ready = prepare(
        site, server, kit=kit, state=state, insecure=insecure,
        code=lambda path: _code(path, code_file),
    )  # fmt: skip
    for line in asked_for(ready):
        typer.echo(line)
    if dry_run:
        from fedkoopman.deploy.site.preview import preview_lines

        opened = ready.kit
        for line in preview_lines(ready.site, opened.study, opened.identity, opened.clients):
            typer.echo(line)
        return
    if not agreed(ready):
        if not yes and not _asked("Take part in this study?"):
            raise InputError("nobody agreed to this study, so nothing was started: answer yes")
        consent(ready)
    run(ready, say, rewind)


def _code(kit: Path, file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {file}: {error}") from error
    if not sys.stdin.isatty():
        raise InputError(
            f"{kit} is locked and there is no terminal to ask at: give --code-file FILE"
        )
    return str(typer.prompt(f"Code that unlocks {kit.name}", hide_input=True)).strip()


def _asked(question: str) -> bool:
    if not sys.stdin.isatty():
        raise InputError(
            "nobody has agreed to this study yet, and there is no terminal: run it once at a "
            "terminal, or give --yes"
        )
    return bool(typer.confirm(question))
