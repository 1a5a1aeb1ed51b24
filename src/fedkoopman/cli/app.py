"""The program `fedkoopman`: its verbs, and how a failure ends it.

Exit codes: 0 done, 1 the computation or the machine failed, 2 the input is wrong, 130 interrupted.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

import fedkoopman
from fedkoopman.cli import (
    audit,
    backup,
    control,
    estimate,
    export,
    inspect,
    join,
    predict,
    provision,
    report,
    reproduce,
    run,
    serve,
    status,
    study,
    sweep,
    tune,
    watch,
)
from fedkoopman.cli.closing import Facts, with_json
from fedkoopman.cli.process import Output, OutputError
from fedkoopman.errors import ComputationError, InputError, cause_of, system_error
from fedkoopman.signals import Interrupted, interruptible
from fedkoopman.user_code import blamed

FAULT: type[Any] = getattr(typer, "TyperException", typer.BadParameter.__mro__[-4])
"""Above all mistakes on the command line; click's own class where Typer stands on it (< 0.21)."""
DONE, FAILED, INTERRUPTED = 0, 1, 130
LONGEST = 2000
"""Characters of a message; what is longer is cut in the middle, as the remedy is at its end."""

EXAMPLE = """
fedkoopman run --set slots=50 --out runs/first
"""


class Verb(NamedTuple):
    """A command of the program."""

    function: Callable[..., Facts | None]
    example: str  # to run as it stands; shown by `--help` and in docs/cli.md


VERBS = {  # in the order of `--help`
    "init": Verb(study.init, study.INIT_EXAMPLE),
    "check": Verb(study.check, study.CHECK_EXAMPLE),
    "run": Verb(run.run, run.EXAMPLE),
    "watch": Verb(watch.watch, watch.EXAMPLE),
    "report": Verb(report.report, report.EXAMPLE),
    "predict": Verb(predict.predict, predict.EXAMPLE),
    "inspect": Verb(inspect.inspect, inspect.EXAMPLE),
    "control": Verb(control.control, control.EXAMPLE),
    "export": Verb(export.export, export.EXAMPLE),
    "provision": Verb(provision.provision, provision.EXAMPLE),
    "serve": Verb(serve.serve, serve.EXAMPLE),
    "join": Verb(join.join, join.EXAMPLE),
    "status": Verb(status.status, status.STATUS_EXAMPLE),
    "ledger": Verb(status.ledger, status.LEDGER_EXAMPLE),
    "backup": Verb(backup.backup, backup.EXAMPLE),
    "restore": Verb(backup.restore, backup.RESTORE_EXAMPLE),
    "sweep": Verb(sweep.sweep, sweep.EXAMPLE),
    "tune": Verb(tune.tune, tune.EXAMPLE),
    "audit": Verb(audit.audit, audit.EXAMPLE),
    "config": Verb(study.config, study.CONFIG_EXAMPLE),
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
    app.command(_name, epilog=_epilog(_verb.example))(with_json(_verb.function))


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
    output = sys.stdout
    try:
        if output is not None:  # it may be closed
            sys.stdout = Output(output)
        code = _told(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads has seen enough
        _abandon(output)
        return FAILED
    except OutputError as error:
        _abandon(output)
        return _fail(error, error.exit_code)
    finally:
        sys.stdout = output


def _abandon(output: Any) -> None:
    """Give up on standard output, or Python would try again, and complain, at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output.fileno())
        os.close(null)


def _told(arguments: Sequence[str] | None) -> int:
    """Run the program and tell of a failure; one of standard output is left to `main`."""
    try:
        code = _run(arguments)
    except (OutputError, BrokenPipeError):
        raise
    except (InputError, ComputationError) as error:
        return _fail(error, error.exit_code)
    except FAULT as error:
        program = getattr(getattr(error, "ctx", None), "command_path", "fedkoopman")
        return _fail(f"{error.format_message()} (see {program} --help)", error.exit_code)
    except Interrupted as error:
        _print(f"interrupted: {error}")
        return INTERRUPTED
    except MemoryError as error:
        return _fail(
            f"out of memory ({cause_of(error)}): take fewer or shorter segments, or a smaller "
            "network, or run it on a machine with more",
            FAILED,
        )
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        failure = system_error(f"the system refuses{where}", error)
        return _fail(failure, failure.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        users = blamed(error)
        return _fail(_bug(error), FAILED) if users is None else _fail(users, users.exit_code)
    if code == INTERRUPTED:
        _print("interrupted")
    return code if isinstance(code, int) else DONE


def _run(arguments: Sequence[str] | None) -> Any:
    for word in sys.argv[1:] if arguments is None else arguments:
        if "\0" in word:
            raise InputError(f"the argument {word!r} contains a zero byte: leave it out")
    with interruptible():
        return get_command(app).main(args=arguments, prog_name="fedkoopman", standalone_mode=False)


def _bug(error: BaseException) -> str:
    """A line on a failure that nobody foresaw; the traceback goes to a file."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fedkoopman-", suffix=".txt", delete=False, errors="replace"
        ) as file:
            traceback.print_exception(error, file=file)
        where = f"the traceback is in {file.name}"
    except OSError:
        traceback.print_exception(error)
        where = "the traceback is above"
    return f"this is a bug of fedkoopman ({cause_of(error)}): please report it, {where}"


def _fail(message: object, code: int) -> int:
    # Half of a character, as from a damaged file, cannot be written.
    text = " ".join(str(message).encode(errors="backslashreplace").decode().split())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    _print(f"error: {text}")
    return code


def _print(line: str) -> None:
    if sys.stderr is not None:  # it may be closed, or on a full disk: the exit code still tells
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)
