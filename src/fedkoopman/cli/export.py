"""`fedkoopman export`: a model for programs that are not Python."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.inspect import ModelFile, ModelKind
from fedkoopman.cli.options import whole
from fedkoopman.errors import InputError

EXAMPLE = r"""
python -c "import fedkoopman as fk; s = fk.systems.VanDerPol()
x = fk.simulate(s, steps=300, batch=8)
fk.DeepKoopman(8, dt=s.dt, epochs=20).fit(x).save('m.safetensors')"
fedkoopman export m.safetensors --onnx m.onnx --steps 50
"""


def export(
    model: ModelFile,
    onnx: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where the ONNX graph goes: x in; lifted, next and ahead out.",
            show_default=False,
        ),
    ],
    steps: Annotated[
        int,
        typer.Option(
            parser=whole(1, 1_000_000),
            metavar="H",
            help="How many steps of K the output ahead holds.",
        ),
    ] = 1,
    kind: ModelKind = None,
) -> None:
    """Write a model as an ONNX graph, which gives the same numbers; needs the package onnx."""
    from fedkoopman.durable import check_output

    check_output(onnx, (".onnx",))
    if os.path.realpath(onnx) == os.path.realpath(model):
        raise InputError(f"{onnx} is the model's file: give another name")

    from fedkoopman.koopman import load_model
    from fedkoopman.koopman.onnx import write_onnx

    loaded = load_model(model, kind)
    write_onnx(onnx, loaded, steps=steps)
    shape = loaded.architecture_
    driven = f", u (batch, {steps}, {shape.inputs})" if shape.inputs else ""
    typer.echo(
        f"wrote {onnx}: x (batch, {shape.input_dim}){driven} → lifted (batch, {shape.components}), "
        f"next (batch, {shape.state_dim}), ahead (batch, {steps}, {shape.state_dim}), in "
        f"{loaded.learned_.training.precision}"
    )
