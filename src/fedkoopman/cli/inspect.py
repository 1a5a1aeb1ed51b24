"""`fedkoopman inspect`: what a model's file says of itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.process import tell_next

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLE = r"""
python -c "import fedkoopman as fk; s = fk.systems.VanDerPol()
x = fk.simulate(s, steps=300, batch=8)
fk.DeepKoopman(8, dt=s.dt, epochs=20).fit(x).save('m.safetensors')"
fedkoopman inspect m.safetensors --plot spectrum.png
"""

ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model's file, model.safetensors of a run or what DeepKoopman.save wrote.",
        show_default=False,
    ),
]
ModelKind = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME",
        help="The model's kind, if it is not an installed one: a class in a Python file.",
        show_default=False,
    ),
]


def inspect(
    model: ModelFile,
    kind: ModelKind = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the eigenvalues and modes: .png, .svg or .pdf.",
            show_default=False,
        ),
    ] = None,
) -> Facts:
    """Show a model: its states, who trained it (in counts), its spectrum and modes."""
    from fedkoopman.durable import check_output, written_whole
    from fedkoopman.reports.plots import PLOTS

    if plot is not None:
        check_output(plot, PLOTS)

    from fedkoopman.koopman import load_model
    from fedkoopman.koopman.card import facts

    about = facts(load_model(model, kind))
    if plot is not None:
        from fedkoopman.reports.plots import plot_spectrum

        with written_whole(plot) as [partial]:
            plot_spectrum(partial, about["spectrum"])
    _show(about)
    if plot is not None:
        typer.echo(f"wrote {plot}")
    tell_next("predict", model, "--site", "site.toml", "--steps", "50", "--plot", "forecast.png")
    return about if plot is None else {**about, "plot": plot}


def _show(about: dict[str, Any]) -> None:
    from rich.console import Console

    from fedkoopman.koopman.pace import growth_warning

    console = Console(markup=False, highlight=False)
    console.print(_overview(about))
    console.print(_spectrum(about))
    if warning := growth_warning(about["spectrum"]):
        console.print(warning, soft_wrap=True)


def _overview(about: dict[str, Any]) -> "Table":
    from rich import box
    from rich.table import Table

    from fedkoopman.koopman.card import moves_words

    shape, training = about["architecture"], about["training"]
    names = [s["name"] + (f" [{s['unit']}]" if s["unit"] not in ("", "1") else "")
             for s in about["states"]]  # fmt: skip
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_row("states", ", ".join(names))
    if "inputs" in about:
        products = ", which also multiply the lifted state" if shape["bilinear"] else ""
        table.add_row("inputs", ", ".join(row["name"] for row in about["inputs"]) + products)
        for row in about["inputs"]:
            table.add_row(f"one unit of {row['name']}", f"moves {moves_words(row)} in one step")
    table.add_row("dt", f"{about['dt']:g}")
    if shape["depth"] > 1:
        table.add_row("one step of K", f"{about['step']:g}, {shape['depth']} samples")
    if shape["window"] > 1:
        table.add_row("window", f"{shape['window']} samples")
    table.add_row("lifted states", str(shape["components"]))
    table.add_row("kind", f"{about['kind']}: {about['description']}")
    table.add_row("weights", f"{about['weights']:,} in {training['precision']}")
    for name, value in about["information"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(name, " ".join(str(text).split()))
    if about["updates"]:
        table.add_row("trained", f"{about['updates']} times, on {about['windows']:,} windows")
    table.add_row("its own error", "measured" if about["error_known"] else "not measured")
    return table


def _spectrum(about: dict[str, Any]) -> "Table":
    from rich import box
    from rich.table import Table

    from fedkoopman.koopman.pace import pace

    names = [state["name"] for state in about["states"]]
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("eigenvalue", "frequency", "decay rate", "pace"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("moves most")
    for row in about["spectrum"]:
        real, imaginary = row["eigenvalue"]
        value = f"{real:.4f}" + (f" ± {imaginary:.4f}i" if row["pair"] else "")
        moved = sorted(names, key=row["mode"].__getitem__, reverse=True)[:2]
        table.add_row(
            value,
            "" if row["frequency"] is None else f"{row['frequency']:.4g}",
            "∞" if row["decay_rate"] is None else f"{row['decay_rate']:.4g}",
            pace(row),
            ", ".join(f"{name} {row['mode'][name]:.2g}" for name in moved),
        )
    return table
