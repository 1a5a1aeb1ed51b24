"""`fedkoopman control`: a learned model steers a system, in a simulated closed loop."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.inspect import ModelFile, ModelKind
from fedkoopman.cli.options import number, numbers, option, real, whole
from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    import numpy as np

    from fedkoopman.control.controller import Controller
    from fedkoopman.control.loop import ClosedLoop
    from fedkoopman.koopman.fitted import Fitted
    from fedkoopman.systems import System

EXAMPLE = r"""
echo 'import fedkoopman as fk
cart = fk.System.from_function(
    lambda x, u: fk.systems.jnp.stack([x[1], u[0] - 0.1 * x[1]]),
    2, 0.1, ["place", "speed"], input_dim=1)' > cart.py
python -c "import numpy as np, fedkoopman as fk; from cart import cart
U = np.random.default_rng(0).normal(size=(5, 50, 1))
X = [fk.simulate(cart, 50, initial=[0, 0], inputs=u) for u in U]
fk.DMD(dt=0.1).fit(X, U=list(U)).save('cart.safetensors')"
fedkoopman control cart.safetensors --reference 1,0 --simulate cart.py:cart \
  --initial 0,0 --u-min -1 --u-max 1 --steps 80 --plot cart.png
"""


def control(
    model: ModelFile,
    reference: Annotated[str, option("X1,X2,…", "The state to be held, one number per state.")],
    simulate: Annotated[
        str, option("FILE.py:NAME", "The true system, a fedkoopman.System with inputs.")
    ],
    initial: Annotated[str, option("X1,X2,…", "Where the true system starts.")],
    method: Annotated[str, option("NAME", "mpc, within bounds; or lqr, linear.")] = "mpc",
    steps: Annotated[
        int, option("N", "Samples of the closed loop.", parser=whole(1, 1_000_000))
    ] = 200,
    horizon: Annotated[
        int, option("H", "Samples that a plan of mpc reaches.", parser=whole(1, 10_000))
    ] = 20,
    q: Annotated[str, option("Q1,Q2,…", "Weights of the states, one for all or one each.")] = "1",
    r: Annotated[str, option("R1,R2,…", "Weights of the inputs, likewise.")] = "0.1",
    u_min: Annotated[float, option("U", "Lower bound of the inputs.", parser=number)] = -float(
        "inf"
    ),
    u_max: Annotated[float, option("U", "Upper bound of the inputs.", parser=number)] = float(
        "inf"
    ),
    seen: Annotated[
        str | None,
        option(
            "FILE.py:NAME",
            "A function from the true state to the model's, where the two differ.",
            show_default=False,
        ),
    ] = None,
    explore: Annotated[
        int,
        option(
            "N", "Try other plans every N samples, for models that are not linear.", parser=whole(0)
        ),
    ] = 0,
    softening: Annotated[
        float,
        option("COST", "Of one unit beyond a state's bound.", parser=real(0, above=True)),
    ] = 1e4,
    plot: Annotated[
        Path | None, option("FILE", "Where a picture of the loop goes.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print states and inputs as JSON.")
    ] = False,
    kind: ModelKind = None,
) -> None:
    """Steer a simulated system with a learned model, and show the closed loop."""
    from fedkoopman.durable import check_output

    if plot is not None:
        check_output(plot, (".png", ".pdf", ".svg"))
    if method not in ("mpc", "lqr"):
        raise InputError(f"--method is {short(method)}: give mpc or lqr")
    goal, start = _listed(reference, "--reference"), _listed(initial, "--initial")
    weights = numbers(q, "--q"), numbers(r, "--r")

    from fedkoopman import control as controls
    from fedkoopman.koopman import load_model

    loaded, system = load_model(model, kind), _system(simulate)
    look = _function(seen)
    _check_widths(loaded, system, start, look is None)
    regulator = controls.lqr(loaded, goal, *weights, u_min=u_min, u_max=u_max)
    controller: Controller = regulator
    if method == "mpc":
        controller = controls.MPC(
            loaded, goal, horizon, *weights, u_min=u_min, u_max=u_max, explore=explore,
            softening=softening,
        )  # fmt: skip
    loop = controls.closed_loop(system, controller, start, steps, seen=look)
    if as_json:
        typer.echo(json.dumps({"states": loop.states.tolist(), "inputs": loop.inputs.tolist()}))
    else:
        for sentence in controls.facts(loaded, goal, regulator).sentences:
            typer.echo(sentence)
        _tell(loop, system)
    if plot is not None:
        _draw(plot, loop, system, goal if look is None else None)
        typer.echo(f"wrote {plot}", err=as_json)


def _listed(text: str, name: str) -> list[float]:
    found = numbers(text, name)
    return found if isinstance(found, list) else [found]


def _system(name: str) -> "System":
    from fedkoopman.runs.site_estimation import load_system

    system = load_system(name)
    if not system.input_dim:
        raise InputError(
            f"--simulate is {name!r}, which takes no inputs: give a System with input_dim > 0"
        )
    return system


def _function(name: str | None):  # type: ignore[no-untyped-def]
    from fedkoopman.user_code import load_object, plain_function

    if name is None:
        return None
    return plain_function(load_object(name, Path.cwd()), name, "f(x)", "a function f(x)")


def _check_widths(model: "Fitted", system: "System", start: list[float], same: bool) -> None:
    if len(start) != system.dim:
        raise InputError(
            f"--initial has {len(start)} numbers: give one for each of the system's {system.dim} "
            "states"
        )
    if model.n_inputs_ not in (0, system.input_dim):
        raise InputError(
            f"the model has {model.n_inputs_} inputs and the system {system.input_dim}: give the "
            "system that the model was learned from"
        )
    if same and model.n_features_in_ != system.dim:
        raise InputError(
            f"the model has {model.n_features_in_} states and the system {system.dim}: give --seen,"
            " a function from the one to the other"
        )


def _tell(loop: "ClosedLoop", system: "System") -> None:
    last = ", ".join(
        f"{name} {value:.4g}" for name, value in zip(system.names, loop.states[-1], strict=True)
    )
    typer.echo(f"After {loop.time[-1]:g}: {last}.")
    typer.echo(f"Inputs were between {loop.inputs.min():.4g} and {loop.inputs.max():.4g}.")


def _draw(
    path: Path, loop: "ClosedLoop", system: "System", goal: "list[float] | np.ndarray | None"
) -> None:
    """States with what they should be, and inputs, over time."""
    from matplotlib.figure import Figure

    count = system.dim
    figure = Figure(figsize=(7, 1.6 * (count + 1)), layout="constrained")
    axes = figure.subplots(count + 1, 1, sharex=True)
    for i, name in enumerate(system.names):
        unit = system.units[i]
        axes[i].plot(loop.time, loop.states[:, i], label="state")
        if goal is not None:
            axes[i].axhline(goal[i], color="black", linestyle=":", label="reference")
        axes[i].set_ylabel(name + (f" [{unit}]" if unit not in ("", "1") else ""))
    if goal is not None:
        axes[0].legend(loc="best", fontsize="small")
    axes[-1].step(loop.time[:-1], loop.inputs, where="post")
    axes[-1].set_ylabel("inputs")
    axes[-1].set_xlabel("time")
    figure.savefig(path)
