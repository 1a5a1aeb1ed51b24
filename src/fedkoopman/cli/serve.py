"""`fedkoopman serve`: coordinate a federation of sites on many machines."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.next_step import say
from fedkoopman.cli.values import real, whole
from fedkoopman.signals import Interrupted

EXAMPLE = """
fedkoopman serve study.toml --out runs/field --period 600
"""


def serve(
    study: Annotated[Path, typer.Argument(help="The study file.", metavar="STUDY.toml")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory of the run; an unfinished run in it is continued."
        ),
    ],
    port: Annotated[
        int,
        typer.Option(
            parser=whole(1, 65535),
            metavar="P",
            help="The port that sites connect to; without a proxy, the SuperLink's, on loopback.",
        ),
    ] = 8443,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="What fedkoopman provision made; otherwise fleet/ beside the study.",
            show_default=False,
        ),
    ] = None,
    period: Annotated[
        float,
        typer.Option(
            parser=real(0),
            metavar="SECONDS",
            help="From the beginning of one slot to that of the next; 0: as soon as possible.",
        ),
    ] = 0.0,
    deadline: Annotated[
        float,
        typer.Option(
            parser=real(0, above=True),
            metavar="SECONDS",
            help="How long a site may take to answer; then the slot goes on without it.",
        ),
    ] = 300.0,
    wait_for: Annotated[
        int | None,
        typer.Option(
            parser=whole(1),
            metavar="N",
            help="Sites that must be connected before the first slot; otherwise all.",
            show_default=False,
        ),
    ] = None,
    proxy: Annotated[
        bool | None,
        typer.Option(
            "--proxy/--no-proxy",
            help="Start nginx before the SuperLink; otherwise if it is installed.",
            show_default=False,
        ),
    ] = None,
    link_port: Annotated[
        int | None,
        typer.Option(
            parser=whole(1, 65535),
            metavar="P",
            help="The SuperLink's port behind the proxy; otherwise a free one.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            parser=whole(0, 65535),
            metavar="P",
            help="Answer Prometheus on this port of loopback; 0: on a free one.",
            show_default=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys, on this machine only.")
    ] = False,
) -> None:
    """Coordinate sites that join from other machines, and learn one shared model with them."""
    from fedkoopman.deploy.server.serve import Serving
    from fedkoopman.deploy.server.serve import serve as run

    given = Serving(
        study=study,
        out=out,
        fleet=fleet or study.absolute().parent / "fleet",
        port=port,
        link_port=link_port,
        proxy=proxy,
        period=period,
        deadline=deadline,
        wait_for=wait_for,
        insecure=insecure,
        metrics=metrics,
    )
    if not run(given, say):
        raise Interrupted("the run is saved; the same command continues it")
    typer.echo(f"model: {out / 'model.safetensors'}")
    typer.echo(f"report: {out / 'report.html'}")
