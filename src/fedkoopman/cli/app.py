"""The program `fedkoopman`: its verbs, and how a failure ends it.

Exit codes: 0 done, 1 the computation failed, 2 the input is wrong, 130 interrupted.
"""

import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

import fedkoopman
from fedkoopman.cli import (
    backup,
    check,
    config,
    estimate,
    export,
    init,
    inspect,
    join,
    ledger,
    predict,
    provision,
    reproduce,
    run,
    serve,
    status,
    sweep,
)
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.signals import Interrupted, interruptible

FAULT: type[Any] = getattr(typer, "TyperException", typer.BadParameter.__mro__[-4])
"""Above all mistakes on the command line; click's own class where Typer stands on it (< 0.21)."""
DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

EXAMPLE = """
fedkoopman run --set slots=50 --out runs/first
"""


class Verb(NamedTuple):
    """A command of the program."""

    function: Callable[..., None]
    example: str  # to run as it stands; shown by `--help` and in docs/cli.md


VERBS = {  # in the order of `--help`
    "init": Verb(init.init, init.EXAMPLE),
    "check": Verb(check.check, check.EXAMPLE),
    "run": Verb(run.run, run.EXAMPLE),
    "predict": Verb(predict.predict, predict.EXAMPLE),
    "inspect": Verb(inspect.inspect, inspect.EXAMPLE),
    "export": Verb(export.export, export.EXAMPLE),
    "provision": Verb(provision.provision, provision.EXAMPLE),
    "serve": Verb(serve.serve, serve.EXAMPLE),
    "join": Verb(join.join, join.EXAMPLE),
    "status": Verb(status.status, status.EXAMPLE),
    "ledger": Verb(ledger.ledger, ledger.EXAMPLE),
    "backup": Verb(backup.backup, backup.EXAMPLE),
    "restore": Verb(backup.restore, backup.RESTORE_EXAMPLE),
    "sweep": Verb(sweep.sweep, sweep.EXAMPLE),
    "config": Verb(config.config, config.EXAMPLE),
    "estimate": Verb(estimate.estimate, estimate.EXAMPLE),
    "reproduce": Verb(reproduce.reproduce, reproduce.EXAMPLE),
}


def _epilog(example: str) -> str:
    return f"[dim]An example to run as it stands:[/]\n{example.rstrip()}"


app = typer.Typer(
    name="fedkoopman",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_epilog(EXAMPLE),
)
for _name, _verb in VERBS.items():
    app.command(_name, epilog=_epilog(_verb.example))(_verb.function)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedkoopman {fedkoopman.__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """From noisy, partial observations of a nonlinear system to its states and its linear model."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; a failure is one line on stderr.

    Arguments:
        arguments: the words after `fedkoopman`; None takes them from the command line.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not know ℓ
    try:
        command = get_command(app)
        with interruptible():
            code = command.main(args=arguments, prog_name="fedkoopman", standalone_mode=False)
    except InputError as error:
        return _fail(error, WRONG_INPUT)
    except ComputationError as error:
        return _fail(error, FAILED)
    except FAULT as error:
        program = getattr(getattr(error, "ctx", None), "command_path", "fedkoopman")
        return _fail(f"{error.format_message()} (see {program} --help)", error.exit_code)
    except Interrupted as error:
        print(f"interrupted: {error}", file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        return _fail("out of memory: ask for less at a time, or fewer and smaller things", FAILED)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return code if isinstance(code, int) else DONE


def _fail(message: object, code: int) -> int:
    print(f"error: {' '.join(str(message).split())}", file=sys.stderr)
    return code
