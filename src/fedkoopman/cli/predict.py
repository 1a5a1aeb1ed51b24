"""`fedkoopman predict`: what comes after a user's states or observations."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.inspect import ModelFile, ModelKind
from fedkoopman.cli.options import Hold, InputColumns, listed, numbers, whole
from fedkoopman.cli.process import keep_compiled
from fedkoopman.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from fedkoopman.data.observations import SiteStates
    from fedkoopman.koopman import DeepKoopman
    from fedkoopman.runs.prediction import Prediction

EXAMPLE = r"""
python -c "import fedkoopman as fk, numpy as np; s = fk.systems.VanDerPol()
x = fk.simulate(s, steps=300, batch=8); np.save('x.npy', x[:4, :200])
fk.DeepKoopman(8, dt=s.dt, epochs=20).fit(x[4:]).save('m.safetensors')"
fedkoopman predict m.safetensors x.npy --steps 50 --plot forecast.png
"""

SOURCE, OUTPUT = "Data", "Output"
WITHOUT = "--{}-column ''"
"""How to do without a column that is taken unasked."""


def predict(
    model: ModelFile,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="States with the model's names as columns (CSV, Parquet) or as arrays (T, d) or "
            "(B, T, d); with --sensor, raw observations.",
            show_default=False,
        ),
    ] = None,
    *,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=whole(1, 1_000_000),
            metavar="H",
            help="How many steps of K ahead; with --future, as many as it has rows.",
            show_default=False,
        ),
    ] = None,
    relift: Annotated[
        int | None,
        typer.Option(
            parser=whole(0, 1_000_000),
            metavar="N",
            help="Lift the state anew after every N steps; 0: never. Otherwise the way that was "
            "better on held-out data, which the model knows.",
            show_default=False,
        ),
    ] = None,
    kind: ModelKind = None,
    sensor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file that says how the data observe the state: they are filtered first.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="site.toml",
            help="A site file, instead of DATA: its segments are filtered first.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    process_noise: Annotated[
        str | None,
        typer.Option(
            metavar="VARIANCE",
            help="With --sensor or --site: how far off the model is per step, in the states' "
            "units; otherwise as measured in its training.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="The data's columns in the order of the states, or of the sensor.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    segment_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column that tells trajectories apart; otherwise segment, if there is one.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of sampling instants; otherwise time, if there is one.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    inputs: InputColumns = None,
    hold: Hold = "until",
    future: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Inputs to come, a row per step and a column per input, the first from the last "
            "sample on; otherwise the last inputs are held.",
            show_default=False,
            rich_help_panel=SOURCE,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the forecast goes: .csv, .parquet or .npz; without --plot too, it is "
            "printed as CSV.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the forecast with its ±2σ bands: .png, .svg or .pdf.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> Facts:
    """Forecast states, with standard deviations, from states or from raw observations."""
    _check_files((model, site or data, sensor, future), out, plot)
    if steps is None and future is None:
        raise InputError("it is not said how far to forecast: give --steps, or --future")
    if site is not None:
        for name, given in (
            ("DATA", data), ("--sensor", sensor), ("--columns", columns),
            ("--segment-column", segment_column), ("--time-column", time_column),
            ("--inputs", inputs),
        ):  # fmt: skip
            if given is not None:
                raise InputError(f"{name} is given but --site brings its own: leave out one")
    elif data is None:
        raise InputError("there is no DATA to go on from: give a file of states or observations")
    if process_noise is not None and sensor is None and site is None:
        raise InputError("--process-noise is for filtering observations: give --sensor too")
    keep_compiled()

    from fedkoopman.koopman import load_model

    loaded = load_model(model, kind)
    variances = None if process_noise is None else numbers(process_noise, "--process-noise")
    way: dict[str, Any] = {"relift": relift}
    if future is not None:
        way["future"] = _inputs_to_come(loaded, future, steps)
        steps = len(way["future"])
    assert steps is not None
    if site is not None:
        found, note = _from_site(loaded, site, steps, variances, way)
    else:
        assert data is not None
        about = {
            "columns": listed(columns),
            "segment": segment_column,
            "time": time_column,
            "inputs": listed(inputs),
            "hold": hold,
        }
        if sensor is None:
            found, note = _from_states(loaded, data, steps, about, way)
        else:
            found, note = _from_observations(loaded, data, sensor, steps, about, variances, way)
    _write(found, out, plot)
    notes = [note, _way_told(loaded, relift), _range_told(loaded, found)]
    for line in filter(None, notes):
        typer.echo(f"note: {line}", err=True)
    facts = {
        "steps": steps,
        "segments": len(found.future.means),
        "basis": found.basis,
        "filter": found.past.summary if found.past.consistency is not None else None,
        "notes": [*filter(None, notes)],
    }
    if out is None and plot is None:  # then the forecast itself would have been printed
        from fedkoopman.reports.plots import columns as columns_of

        return {**facts, "forecast": columns_of(found.future)}
    return {**facts, "out": out, "plot": plot}


def _way_told(model: "DeepKoopman", relift: int | None) -> str:
    """Which way the model chose, where the user did not."""
    if relift is not None or not model.relift_:
        return ""
    every = "every step" if model.relift_ == 1 else f"every {model.relift_} steps"
    return f"lifted anew after {every}, which was better on held-out data; --relift 0 lifts once"


def _range_told(model: "DeepKoopman", found: "Prediction") -> str:
    """Whether the forecast leaves the states that the model was trained on."""
    if model.range_ is None:
        return ""
    low, high = model.range_
    first = [
        int(outside.argmax()) + 1
        for states in found.future.means
        if (outside := ((states < low) | (states > high)).any(axis=1)).any()
    ]
    if not first:
        return ""
    which = "the forecast" if len(found.future.means) == 1 else f"{len(first)} forecasts"
    return (
        f"{which} leave{'s' if len(first) == 1 else ''} the range of the training states, first "
        f"after {min(first)} steps: beyond it the model knows nothing"
    )


def _inputs_to_come(model: "DeepKoopman", path: Path, steps: int | None) -> "np.ndarray":
    """The inputs of the steps ahead, (steps, m)."""
    from fedkoopman.data.observations import read_inputs

    rows = read_inputs(path, model)
    if steps is not None and len(rows) < steps:
        raise InputError(f"{path} has {len(rows)} rows, but --steps is {steps}: give as many rows")
    return rows[:steps]


def _from_states(
    model: "DeepKoopman",
    data: Path,
    steps: int,
    about: Mapping[str, Any],
    way: Mapping[str, Any],
) -> tuple["Prediction", str]:
    """A forecast, and what is to be told of the file's columns."""
    from fedkoopman.data.observations import columns_taken, read_states
    from fedkoopman.runs.prediction import predict_states

    site, states, stds = read_states(data, model, **about)
    return predict_states(model, states, steps, stds, **way), columns_taken(site, WITHOUT)


def _from_site(
    model: "DeepKoopman", site: Path, steps: int, variances: Any, way: Mapping[str, Any]
) -> tuple["Prediction", str]:
    from fedkoopman.config.site_file import SiteFile
    from fedkoopman.data.observations import columns_taken
    from fedkoopman.runs.prediction import predict_site

    chosen = SiteFile.load(site)
    return predict_site(model, chosen, steps, variances, **way), columns_taken(chosen)


def _from_observations(
    model: "DeepKoopman",
    data: Path,
    sensor: Path,
    steps: int,
    about: Mapping[str, Any],
    variances: Any,
    way: Mapping[str, Any],
) -> tuple["Prediction", str]:
    from fedkoopman.config.sensor_file import in_flat_words, read_sensor
    from fedkoopman.data.observations import columns_taken, observations_of
    from fedkoopman.runs.prediction import predict_site

    with in_flat_words():
        site = read_sensor(sensor, data, **about)
        found = predict_site(model, site, steps, variances, observations_of(site), **way)
    return found, columns_taken(site, WITHOUT)


def _check_files(given: Sequence[Path | None], out: Path | None, plot: Path | None) -> None:
    """Refuse what could not be written, before anything is loaded."""
    from fedkoopman.durable import check_output
    from fedkoopman.reports.plots import PLOTS, TABLES

    seen = {os.path.realpath(path) for path in given if path is not None}
    for path, suffixes in ((out, TABLES), (plot, PLOTS)):
        if path is None:
            continue
        check_output(path, suffixes)
        if os.path.realpath(path) in seen:
            raise InputError(f"{path} is given twice, as input or output: give another name")
        seen.add(os.path.realpath(path))


def _write(found: "Prediction", out: Path | None, plot: Path | None) -> None:
    from fedkoopman.durable import written_whole
    from fedkoopman.reports.plots import plot_forecast, write_states

    targets = [path for path in (out, plot) if path is not None]
    if not targets:
        _print(found.future)
        return
    with written_whole(*targets) as partial:
        if out is not None:
            write_states(partial[0], found.future)
        if plot is not None:
            plot_forecast(partial[-1], found.past, found.future)
    count = len(found.future.means)
    segments = f"{count} segment{'' if count == 1 else 's'}"
    typer.echo(
        f"wrote {' and '.join(map(str, targets))}: {len(found.future.means[0])} steps ahead of "
        f"{segments}; uncertainty from {found.basis}"
    )
    if found.past.consistency is not None:
        typer.echo(f"filter: {found.past.summary}")


def _print(future: "SiteStates") -> None:
    import csv

    from fedkoopman.reports.plots import columns

    table = columns(future)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(values.tolist() for values in table.values()), strict=True))
