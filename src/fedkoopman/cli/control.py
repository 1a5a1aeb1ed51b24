"""`fedkoopman control`: a learned model steers a system, in a simulated closed loop."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedkoopman.cli.closing import Facts, Json
from fedkoopman.cli.inspect import ModelFile, ModelKind
from fedkoopman.cli.options import numbers, option, real, whole
from fedkoopman.cli.process import keep_compiled
from fedkoopman.errors import InputError, short

EXAMPLE = r"""
echo 'import fedkoopman as fk, jax.numpy as jnp
cart = fk.System.from_function(
    lambda x, u: jnp.stack([x[1], u[0] - 0.1 * x[1]]),
    dim=2, dt=0.1, names=("place", "speed"), units=("m", "m/s"), input_dim=1)' > cart.py
python -c "import numpy as np, fedkoopman as fk; from cart import cart
U = np.random.default_rng(0).normal(size=(5, 50, 1))
X = [fk.simulate(cart, 50, initial=[0, 0], inputs=u) for u in U]
fk.DMD(dt=0.1).fit(X, U=list(U)).save('cart.safetensors')"
fedkoopman control cart.safetensors --reference 1,0 --simulate cart.py:cart \
  --initial 0,0 --u-min -1 --u-max 1 --x-max inf,0.5 --steps 60
"""

METHODS = ("mpc", "lqr", "lqg")
PICTURE = "control.png"
BOUNDS, SEEING, PLANS, OUTPUT = "Bounds", "What the controller sees", "Plans of mpc", "Output"


def _bound(metavar: str, help: str) -> Any:
    return option(metavar, help, BOUNDS, show_default=False)


def control(
    model: ModelFile,
    reference: Annotated[
        str,
        option(
            "X1,X2,…|FILE",
            "The state to be held, one number per state; or a file of states to be followed (mpc), "
            "one row per sample, the first one a sample after the start.",
            show_default=False,
        ),
    ],
    simulate: Annotated[
        str,
        option(
            "FILE.py:NAME",
            "The true system, a fedkoopman.System with inputs.",
            show_default=False,
        ),
    ],
    initial: Annotated[str, option("X1,X2,…", "Where the true system starts.", show_default=False)],
    method: Annotated[
        str,
        option("NAME", "mpc: plans within bounds; lqr: linear; lqg: linear, through a filter."),
    ] = "mpc",
    steps: Annotated[
        int, option("N", "Samples of the closed loop.", parser=whole(1, 1_000_000))
    ] = 200,
    q: Annotated[str, option("Q1,Q2,…", "Weights of the states, one for all or one each.")] = "1",
    r: Annotated[str, option("R1,R2,…", "Weights of the inputs, likewise.")] = "0.1",
    u_min: Annotated[
        str | None, _bound("U1,U2,…", "Least inputs, one for all or one each.")
    ] = None,
    u_max: Annotated[str | None, _bound("U1,U2,…", "Greatest inputs, likewise.")] = None,
    du_max: Annotated[
        str | None, _bound("D1,D2,…", "Greatest changes of the inputs per sample (mpc).")
    ] = None,
    x_min: Annotated[
        str | None, _bound("X1,X2,…", "Least states (mpc); -inf leaves one free.")
    ] = None,
    x_max: Annotated[str | None, _bound("X1,X2,…", "Greatest states, likewise.")] = None,
    softening: Annotated[
        float,
        option("COST", "Of one unit beyond a state's bound.", BOUNDS, parser=real(0, above=True)),
    ] = 1e4,
    horizon: Annotated[
        int, option("H", "Samples that a plan reaches.", PLANS, parser=whole(1, 10_000))
    ] = 20,
    iterations: Annotated[
        int,
        option(
            "N",
            "Linearisations per sample, where the model is not linear.",
            PLANS,
            parser=whole(1, 1000),
        ),
    ] = 2,
    explore: Annotated[
        int,
        option(
            "N",
            "Where it is not linear, try other plans every N samples; 0: never.",
            PLANS,
            parser=whole(0),
        ),
    ] = 0,
    relift: Annotated[
        bool | None,
        typer.Option(
            "--relift/--lift-once",
            help="Predict by lifting anew at every step, or once; otherwise the model's own way.",
            rich_help_panel=PLANS,
            show_default=False,
        ),
    ] = None,
    seen: Annotated[
        str | None,
        option(
            "FILE.py:NAME",
            "A function from the true state to the model's, where the two differ.",
            SEEING,
            show_default=False,
        ),
    ] = None,
    observe: Annotated[
        str | None,
        option(
            "NAME,NAME",
            "States of the model that a sensor shows (lqg); otherwise all.",
            SEEING,
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        str, option("VARIANCE", "Of the noise on what is seen, one for all or one each.", SEEING)
    ] = "0",
    process_noise: Annotated[
        str | None,
        option(
            "VARIANCE",
            "How far off the model is per sample, in the states' units (lqg); "
            "otherwise as measured in its training.",
            SEEING,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, option("N", "Of the noise.", SEEING, parser=whole(0))] = 0,
    plot: Annotated[
        Path | None,
        option(
            "FILE",
            f"Where the picture goes: .png, .svg or .pdf; otherwise {PICTURE}, or the next free "
            "name, and nowhere with --json.",
            OUTPUT,
            show_default=False,
        ),
    ] = None,
    kind: ModelKind = None,
    as_json: Json = False,
) -> Facts:
    """Steer a simulated system with a learned model, and show the closed loop."""
    from fedkoopman.durable import check_output
    from fedkoopman.reports.plots import PLOTS

    picture = _free(Path(PICTURE)) if plot is None and not as_json else plot
    if picture is not None:
        check_output(picture, PLOTS)
    if method not in METHODS:
        raise InputError(f"--method is {short(method)}: give {', '.join(METHODS)}")
    only_mpc = {"--du-max": du_max, "--x-min": x_min, "--x-max": x_max}
    only_lqg = {"--observe": observe, "--process-noise": process_noise}
    for which, given in (("mpc", only_mpc), ("lqg", only_lqg)):
        for name, value in given.items():
            if method != which and value is not None:
                raise InputError(
                    f"{name} is for --method {which}, and it is {method}: leave it out"
                )
    wanted = {"Q": numbers(q, "--q"), "R": numbers(r, "--r")}
    edges = {"u_min": u_min, "u_max": u_max, "du_max": du_max, "x_min": x_min, "x_max": x_max}
    limits = {
        name: numbers(value, f"--{name.replace('_', '-')}")
        for name, value in edges.items()
        if value is not None
    }
    start, variance = numbers(initial, "--initial"), numbers(noise, "--noise")
    keep_compiled()

    from fedkoopman.durable import written_whole
    from fedkoopman.koopman import load_model
    from fedkoopman.reports.loops import loop_data, loop_sentences, plot_loop
    from fedkoopman.runs import steering

    loaded = load_model(model, kind)
    system = steering.driven_system(simulate)
    goal = steering.reference_of(reference, loaded)
    sight = steering.Sight(
        steering.function_of(seen),
        variance,
        None if observe is None else tuple(observe.split(",")),
        None if process_noise is None else numbers(process_noise, "--process-noise"),
        seed,
    )
    plans = {} if method != "mpc" else {
        "horizon": horizon, "iterations": iterations, "explore": explore, "relift": relift,
        "softening": softening,
    }  # fmt: skip
    found = steering.steer(
        loaded, system, goal, start, steps, method=method, sight=sight, **wanted, **limits, **plans
    )
    typer.echo("\n".join(loop_sentences(found)))
    if picture is not None:
        with written_whole(picture) as [partial]:
            plot_loop(partial, found)
        typer.echo(f"wrote {picture}", err=as_json)
    return {**loop_data(found), **({} if picture is None else {"plot": picture})}


def _free(path: Path) -> Path:
    """The path, or the next one with a number that is not taken: no picture is overwritten."""
    found, count = path, 1
    while found.exists():
        count += 1
        found = path.with_stem(f"{path.stem}-{count}")
    return found
