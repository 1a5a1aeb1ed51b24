"""A site without an agent: whatever a message needs is loaded, and compiled, for that message."""

import json
import time

ENTERED, BUSY = time.time(), time.process_time()  # Flower is loaded by now

import jax  # noqa: E402

LOADED_JAX = time.time()
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402

from fedkoopman.evaluation import TestSet, evaluate  # noqa: E402
from fedkoopman.federation.streams import subseed  # noqa: E402
from fedkoopman.koopman.kinds.paper import PaperNetwork  # noqa: E402
from fedkoopman.koopman.training import Training, client_update  # noqa: E402

LOADED = time.time()
COMPILED = [0.0]


def _compiled(event: str, seconds: float, **_: object) -> None:
    if event.startswith("/jax/core/compile/"):
        COMPILED[0] += seconds


jax.monitoring.register_event_duration_secs_listener(_compiled)
app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the segment that arrives in this slot."""
    about, weights, site = _read(message, context)
    slot = int(message.content["config"]["server-round"])
    states = site[f"train{(slot - 1) % about['segments']}"].astype(about["training"]["precision"])
    began = time.time()
    update = client_update(
        PaperNetwork(**about["architecture"]),
        Training(**about["training"]),
        weights,
        [states],
        seed=subseed(about["seed"], "training", slot, int(context.node_config["place"])),
        learning_rate=about["rate"],
    )
    _write(context, "train", slot, began)
    content = {
        "arrays": ArrayRecord(
            {name: Array(leaf) for name, leaf in PaperNetwork.named(update).items()}
        ),
        "metrics": MetricRecord({"num-examples": len(states)}),
    }
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def test(message: Message, context: Context) -> Message:
    """Score the model on what the site holds out."""
    about, weights, site = _read(message, context)
    windows = TestSet(site["windows"], about["horizon"], about["valid_error"])
    began = time.time()
    metrics = evaluate(PaperNetwork(**about["architecture"]), weights, windows)
    _write(context, "evaluate", int(message.content["config"]["server-round"]), began)
    scores = {name: float(value) for name, value in metrics._asdict().items()}
    record = MetricRecord({**scores, "num-examples": len(windows.trajectories)})
    return Message(RecordDict({"metrics": record}), reply_to=message)


def _read(message: Message, context: Context) -> tuple:
    folder = Path(str(context.node_config["folder"]))
    about = json.loads((folder / "about.json").read_text())
    with np.load(folder / f"{context.node_config['site']}.npz") as site:
        states = dict(site)
    about["training"]["loss_weights"] = tuple(about["training"]["loss_weights"])
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    return about, PaperNetwork(**about["architecture"]).from_named(model), states


def _write(context: Context, kind: str, slot: int, began: float) -> None:
    """Write down where the time of this process went."""
    now = time.time()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    born = now - uptime + ticks / 100
    told = {
        "kind": kind, "slot": slot, "site": context.node_config["site"], "time": now,
        "starting": ENTERED - born, "loading_jax": LOADED_JAX - ENTERED,
        "loading_the_rest": LOADED - LOADED_JAX, "compiling": COMPILED[0],
        "inside": now - began, "processor": time.process_time(), "processor_before": BUSY,
    }  # fmt: skip
    folder = Path(str(context.node_config["folder"]))
    with (folder / f"{context.node_config['site']}.jsonl").open("a") as file:
        file.write(json.dumps(told) + "\n")
