"""`fedkoopman estimate`: a file of observations in, states with standard deviations out."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import (
    Hold,
    InputColumns,
    assignments,
    listed,
    number,
    numbers,
    option,
    whole,
)
from fedkoopman.cli.progress import progress_bar
from fedkoopman.errors import InputError
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.systems import SYSTEMS

EXAMPLE = r"""
python -c "import fedkoopman as fk, numpy as np; np.save('z.npy',
  fk.observe(fk.LinearSensor(np.eye(3)[:2]),
  fk.simulate(fk.systems.Lorenz63(), steps=300)[1:], noise=1.0))"
printf 'kind = "linear"\nmatrix = [[1, 0, 0], [0, 1, 0]]\n' > sensor.toml
fedkoopman estimate z.npy --system lorenz63 --sensor sensor.toml \
  --out states.csv --plot states.png
"""


MODEL, ESTIMATOR, DATA, OUTPUT = "System and noise", "Estimator", "Data", "Output"


def estimate(
    data: Annotated[
        Path,
        typer.Argument(
            help="Observations: CSV, Parquet or MAT with named columns, NPY or NPZ with (T, m) or "
            "(B, T, m) arrays; HDF5, ULog, ROS bags, MCAP, WFDB, EDF and BDF with their extras. "
            "Blank and NaN are missing.",
        ),
    ],
    system: Annotated[
        str,
        option(
            "NAME",
            f"What is observed: {', '.join(SYSTEMS)}, or file.py:name for a System of your own.",
            MODEL,
        ),
    ],
    sensor: Annotated[Path, option("FILE", "TOML file that says how it is observed.", MODEL)],
    out: Annotated[Path, option("FILE", "Where the states go: .csv, .parquet or .npz.", OUTPUT)],
    method: Annotated[
        str,
        option(
            "NAME",
            f"The filter: {', '.join(ESTIMATORS)}, or file.py:name for an Estimator of your own.",
            ESTIMATOR,
        ),
    ] = "ukf",
    smooth: Annotated[
        bool,
        typer.Option(
            "--smooth/--no-smooth",
            help="Use later observations too, or only those up to each sample.",
            rich_help_panel=ESTIMATOR,
        ),
    ] = True,
    plot: Annotated[
        Path | None,
        option("FILE", "Also draw the states with ±2σ bands: .png, .svg or .pdf.", OUTPUT),
    ] = None,
    process_noise: Annotated[
        str,
        option(
            "VARIANCE",
            "Variance of the process noise: one number, or one per state with commas.",
            MODEL,
        ),
    ] = "1.0",
    set_parameter: Annotated[
        list[str] | None,
        option("NAME=VALUE", "Set a parameter of the system, as in b=25; may be repeated.", MODEL),
    ] = None,
    dt: Annotated[
        float | None,
        option(
            "NUMBER",
            "Sampling interval; otherwise the data's time column, or the system's own.",
            DATA,
            parser=number,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        option(
            "NAME,NAME",
            "The data's columns in the sensor's order; otherwise the sensor file's, or all.",
            DATA,
        ),
    ] = None,
    segment_column: Annotated[
        str | None,
        option(
            "NAME",
            "Column that tells trajectories apart; otherwise segment, if there is one.",
            DATA,
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        option(
            "NAME",
            "Column of sampling instants, regular or not; otherwise time, if there is one.",
            DATA,
        ),
    ] = None,
    inputs: InputColumns = None,
    hold: Hold = "until",
    alpha: Annotated[
        float, option("NUMBER", "Spread of the sigma points, > 0.", ESTIMATOR, parser=number)
    ] = 0.1,
    beta: Annotated[
        float,
        option(
            "NUMBER",
            "Weight of the prior's shape; 2 for Gaussian states.",
            ESTIMATOR,
            parser=number,
        ),
    ] = 2.0,
    kappa: Annotated[
        float,
        option("NUMBER", "Second spread; number of states + κ > 0.", ESTIMATOR, parser=number),
    ] = -1.0,
    particles: Annotated[
        int, option("COUNT", "Of the particle filter.", ESTIMATOR, parser=whole(2))
    ] = 1000,
    seed: Annotated[int, option("SEED", "Of the particle filter.", ESTIMATOR, parser=whole(0))] = 0,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="Show a progress bar; otherwise on a terminal only.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> Facts:
    """Estimate a system's states, with standard deviations, from noisy partial observations."""
    from fedkoopman.config.sensor_file import in_flat_words, read_sensor
    from fedkoopman.data.observations import columns_taken, observations_of
    from fedkoopman.durable import check_output, written_whole
    from fedkoopman.reports.plots import PLOTS, TABLES, plot_states, write_states

    started = time.perf_counter()
    check_output(out, TABLES)
    if plot is not None:
        check_output(plot, PLOTS)
    _refuse_overwriting((data, sensor), (out, plot))
    variances = numbers(process_noise, "--process-noise")
    parameters = assignments(set_parameter or [])
    ESTIMATORS.check_name(method)
    if dt is not None and not 0 < dt < math.inf:
        raise InputError(f"--dt is {dt}: give a sampling interval greater than 0")
    site = read_sensor(
        sensor, data, columns=listed(columns), segment=segment_column, time=time_column,
        inputs=listed(inputs), hold=hold,
    )  # fmt: skip
    with in_flat_words():
        observations = observations_of(site)

    # everything above has checked the input without JAX; from here on it is loaded
    from fedkoopman.runs.site_estimation import estimate_site

    with in_flat_words(), progress_bar(progress, len(observations.trajectories)) as advance:
        states = estimate_site(
            system,
            site,
            observations,
            parameters=parameters,
            dt=dt,
            progress=advance,
            process_noise=variances,
            method=method,
            smooth=smooth,
            alpha=alpha,
            beta=beta,
            kappa=kappa,
            particles=particles,
            seed=seed,
        )
    targets = [out] if plot is None else [out, plot]
    with written_whole(*targets) as partial:
        rows = write_states(partial[0], states)
        if plot is not None:
            plot_states(partial[1], states)
    if note := columns_taken(site, "--{}-column ''"):
        typer.echo(f"note: {note}", err=True)
    if states.diverged:
        typer.echo(
            f"warning: the {method} diverged on segment {', '.join(states.diverged)}: "
            "those rows are left blank",
            err=True,
        )
    seconds = time.perf_counter() - started
    typer.echo(
        f"wrote {' and '.join(map(str, targets))}: {rows:,} rows in "
        f"{seconds:.1f} s, {states.summary}"
    )
    return {
        "rows": rows,
        "segments": len(states.means),
        "seconds": round(seconds, 3),
        "log_likelihood": states.log_likelihood,
        "consistency": states.consistency,
        "diverged": states.diverged,
        "summary": states.summary,
        "out": out,
        "plot": plot,
    }


def _refuse_overwriting(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    seen = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if path is None:
            continue
        if os.path.realpath(path) in seen:
            raise InputError(f"{path} is given twice, as input or output: give another name")
        seen.add(os.path.realpath(path))
