"""`fedkoopman serve`: coordinate a federation of sites on many machines."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.options import Watch, argument, option, real, whole
from fedkoopman.cli.process import say
from fedkoopman.cli.watch import watching
from fedkoopman.signals import Interrupted

EXAMPLE = """
fedkoopman serve study.toml --out runs/field --period 600
"""


def serve(
    study: Annotated[Path, argument("STUDY.toml", "The study file.")],
    out: Annotated[
        Path, option("DIR", "Directory of the run; an unfinished run in it is continued.")
    ],
    port: Annotated[
        int,
        option(
            "P",
            "The port that sites connect to; without a proxy, the SuperLink's, on loopback.",
            parser=whole(1, 65535),
        ),
    ] = 8443,
    fleet: Annotated[
        Path | None,
        option("DIR", "What fedkoopman provision made; otherwise fleet/ beside the study."),
    ] = None,
    period: Annotated[
        float,
        option(
            "SECONDS",
            "From the beginning of one slot to that of the next; 0: as soon as possible.",
            parser=real(0),
        ),
    ] = 0.0,
    deadline: Annotated[
        float,
        option(
            "SECONDS",
            "How long a site may take to answer; then the slot goes on without it.",
            parser=real(0, above=True),
        ),
    ] = 300.0,
    wait_for: Annotated[
        int | None,
        option(
            "N",
            "Sites that must be connected before the first slot; otherwise all.",
            parser=whole(1),
        ),
    ] = None,
    proxy: Annotated[
        bool | None,
        typer.Option(
            "--proxy/--no-proxy",
            help="Start nginx before the SuperLink; otherwise if it is installed.",
        ),
    ] = None,
    link_port: Annotated[
        int | None,
        option(
            "P",
            "The SuperLink's port behind the proxy; otherwise a free one.",
            parser=whole(1, 65535),
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        option(
            "P",
            "Answer Prometheus on this port of loopback; 0: on a free one.",
            parser=whole(0, 65535),
        ),
    ] = None,
    watch: Watch = False,
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
    with watching(watch, out):
        if not run(given, say):
            raise Interrupted("the run is saved; the same command continues it")
    typer.echo(f"model: {out / 'model.safetensors'}")
    typer.echo(f"report: {out / 'report.html'}")
