"""Flower's own FedAvg: every site trains, then every site evaluates, in every round."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds; what goes wrong is written down, as Flower shows it to nobody."""
    folder = Path(str(context.run_config["folder"]))
    try:
        _run(grid, context, folder)
    except Exception as error:
        (folder / "failed").write_text(f"{type(error).__name__}: {error}")
        raise


def _run(grid: Grid, context: Context, folder: Path) -> None:
    """FedAvg; when each round ended is written down."""
    sites = int(context.run_config["sites"])

    def ended(slot: int, arrays: ArrayRecord) -> None:
        """Called after each round, and before the first."""
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps({"slot": slot, "time": time.time()}) + "\n")

    strategy = FedAvg(min_train_nodes=sites, min_evaluate_nodes=sites, min_available_nodes=sites)
    with np.load(folder / "model.npz") as model:
        first = ArrayRecord({name: Array(model[name]) for name in model.files})
    found = strategy.start(
        grid, first, num_rounds=int(context.run_config["slots"]), evaluate_fn=ended
    )
    arrays = {name: array.numpy() for name, array in found.arrays.items()}
    np.savez(folder / "learned.partial.npz", **arrays)
    (folder / "learned.partial.npz").rename(folder / "learned.npz")
