"""The program `fedkoopman`: its verbs, and how a failure ends it.

Exit codes: 0 done, 1 the computation failed, 2 the input is wrong, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer
from typer.main import get_command

import fedkoopman
from fedkoopman.cli import (
    check,
    config,
    estimate,
    export,
    init,
    inspect,
    predict,
    reproduce,
    run,
    sweep,
)
from fedkoopman.cli.interruption import Interrupted, interruptible
from fedkoopman.errors import ComputationError, InputError

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

EXAMPLE = """
fedkoopman run --set slots=50 --out runs/first
"""


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
app.command("init", epilog=_epilog(init.EXAMPLE))(init.init)
app.command("check", epilog=_epilog(check.EXAMPLE))(check.check)
app.command("run", epilog=_epilog(run.EXAMPLE))(run.run)
app.command("predict", epilog=_epilog(predict.EXAMPLE))(predict.predict)
app.command("inspect", epilog=_epilog(inspect.EXAMPLE))(inspect.inspect)
app.command("export", epilog=_epilog(export.EXAMPLE))(export.export)
app.command("sweep", epilog=_epilog(sweep.EXAMPLE))(sweep.sweep)
app.command("config", epilog=_epilog(config.EXAMPLE))(config.config)
app.command("estimate", epilog=_epilog(estimate.EXAMPLE))(estimate.estimate)
app.command("reproduce", epilog=_epilog(reproduce.EXAMPLE))(reproduce.reproduce)


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
    except typer.TyperException as error:
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
