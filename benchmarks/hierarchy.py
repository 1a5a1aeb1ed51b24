"""Two levels of aggregators beside one: a federation of 10,000 sites, with and without edges.

    python benchmarks/hierarchy.py [--sites 10000] [--edges 100] [--seed 0]

Needs nothing but fedkoopman. Every site watches a Van der Pol oscillator from a start of its own;
segments have 20, 30 or 40 samples, and every fourth site waits for two of them, so that sites count
differently. The engine is that of `fk.run`; edges are `federation.edges.Edged`, in as unequal
groups. Compared are the models after every slot: the largest difference, in units of the largest
entry of its array. Training is in float64, as float32 training makes of any difference a large one
within some slots; a line tells what one slot in float32 differs by. To see that the check could
fail, the same is done with edges that forget how many samples their sites have.

What the server does is timed by itself: the seconds of `conclude`, and the bytes of the replies
that reach it. Writes benchmarks/results/hierarchy.{md,json}.
"""

import argparse
import itertools
import json
import platform
import resource
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fedkoopman as fk
from fedkoopman.federation import edges as edges_module
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.algorithms.staged import StagedLearning
from fedkoopman.federation.arrivals import Deliveries
from fedkoopman.federation.edges import Edged, joined
from fedkoopman.federation.experiment import Client, Experiment
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.training import Training

RESULTS = Path(__file__).parent / "results"
STEPS, LENGTHS = 20, (20, 30, 40)
SLOTS = {"fedavg-m": 3, "edmd": 4}
DT = 0.05


class Measured:
    """An algorithm whose server is timed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.seconds, self.replies, self.bytes = [], [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def conclude(self, problem: Any, state: Any, slot: int, replies: Any) -> Any:
        began = time.perf_counter()
        found = self._inner.conclude(problem, state, slot, replies)
        self.seconds.append(time.perf_counter() - began)
        self.replies.append(len(replies))
        arrays = [leaf for reply in replies.values() for leaf in reply.message.arrays.values()]
        self.bytes.append(sum(leaf.nbytes for leaf in arrays))
        return found


@dataclass
class Played:
    """A federation that was run.

    Attributes:
        models: after every slot.
        samples: that counted in every slot.
        seconds: of the whole run; `server` is the algorithm that was timed.
    """

    models: list[dict[str, np.ndarray]] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    seconds: float = 0.0
    server: Any = None


def van_der_pol(states: np.ndarray) -> np.ndarray:
    """ẋ of many states."""
    x, y = states.T
    return np.stack([y, (1 - x**2) * y - x], axis=1)


def observations(sites: int, seed: int) -> list[tuple[np.ndarray, ...]]:
    """For every site its segments, two of them, of a length that is the site's own."""
    random = np.random.default_rng(seed)
    state, rows = random.uniform(-2, 2, (2 * sites, 2)), []
    for _ in range(max(LENGTHS)):
        rows.append(state + 0.01 * random.standard_normal(state.shape))
        k1 = van_der_pol(state)
        k2 = van_der_pol(state + DT / 2 * k1)
        k3 = van_der_pol(state + DT / 2 * k2)
        k4 = van_der_pol(state + DT * k3)
        state = state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    paths = np.stack(rows, axis=1)
    return [
        tuple(paths[2 * n + k, : LENGTHS[n % len(LENGTHS)]] for k in range(2)) for n in range(sites)
    ]


def federation(kind: str, sites: int, seed: int, precision: str = "float64") -> Experiment:
    """Every site gets a segment per slot; nothing is simulated or estimated by the engine."""
    data, system = observations(sites, seed), fk.systems.VanDerPol(dt=DT)
    sensor = fk.LinearSensor(np.eye(2))
    clients = tuple(
        Client(n, sensor, system, 1.0, np.eye(2), np.eye(2), learning_rate=1e-2)
        for n in range(sites)
    )
    held = tuple(data[n] if n < 10 else () for n in range(sites))
    staged = kind == "edmd"
    return Experiment(
        seed=seed,
        system=system,
        clients=clients,
        architecture=EDMD.of(state_dim=2, degree=3) if staged else PaperNetwork(2, 4, width=8),
        algorithm=StagedLearning() if staged else FedAvgM(),
        training=Training(epochs=2, batch=16, precision=precision),
        segments=tuple(2.0 if n % 4 == 3 else 1.0 for n in range(sites)),
        slots=SLOTS[kind],
        steps=STEPS,
        deliveries=Deliveries(tuple(data), held, every_slot=True, repeat=True),
        test_trajectories=10,
    )


def groups(sites: int, count: int, seed: int) -> list[range]:
    """The sites behind each edge, in groups of unequal sizes."""
    cuts = np.random.default_rng(seed).choice(np.arange(1, sites), count - 1, replace=False)
    ends = [0, *sorted(cuts.tolist()), sites]
    return [range(a, b) for a, b in itertools.pairwise(ends)]


def played(experiment: Experiment, slots: int | None = None) -> Played:
    """Run a federation, with its server timed."""
    server = Measured(experiment.algorithm)
    if isinstance(experiment.algorithm, Edged):  # the server stands behind the edges
        server = Measured(experiment.algorithm.inner)
        experiment = replace(experiment, algorithm=_edged(experiment.algorithm, server))
    else:
        experiment = replace(experiment, algorithm=server)
    found, problem = Played(server=server), experiment.problem
    began = time.perf_counter()
    with Workers(2) as workers:
        for outcome in simulate_federation(experiment, workers):
            if outcome.state.slot:
                model = problem.algorithm.model(problem, outcome.state.arrays)
                found.models.append({name: np.float64(leaf) for name, leaf in model.items()})
                found.samples.append(outcome.record["samples"])
            if outcome.state.slot == slots:
                break
    found.seconds = time.perf_counter() - began
    return found


def _edged(edged: Edged, server: Measured) -> Edged:
    """The same edges before another server."""
    other = Edged(server, [])
    other._edge = edged._edge
    return other


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest, in units of the largest entry of its array."""
    return max(
        float(np.abs(other[name] - leaf).max(initial=0.0))
        / max(float(np.abs(leaf).max(initial=0.0)), 1e-300)
        for name, leaf in one.items()
    )


def forgetful(schema: Any, replies: Any) -> Any:
    """An edge that forgets how many samples its sites have."""
    mean = joined(schema, [one._replace(samples=1) for one in replies])
    return mean._replace(samples=sum(one.samples for one in replies))


def compared(kind: str, sites: int, edges: int, seed: int) -> dict[str, Any]:
    """One level, two levels, and what came of both."""
    flat = federation(kind, sites, seed)
    behind = groups(sites, edges, seed)
    one = played(flat)
    two = played(replace(flat, algorithm=Edged(flat.algorithm, behind)))
    assert one.samples == two.samples
    differences = [difference(a, b) for a, b in zip(one.models, two.models, strict=True)]
    moved = [difference(a, b) for a, b in itertools.pairwise(one.models)]
    row = {
        "kind": kind, "sites": sites, "edges": edges, "slots": flat.slots,
        "smallest_edge": min(map(len, behind)), "largest_edge": max(map(len, behind)),
        "samples": one.samples, "difference": max(differences), "a_slot_moves": max(moved),
    }  # fmt: skip
    for name, run in (("one", one), ("two", two)):
        most = int(np.argmax(run.server.replies))
        row[name] = {
            "seconds": run.seconds,
            "server_seconds": run.server.seconds[most],
            "replies": run.server.replies[most],
            "megabytes": run.server.bytes[most] / 1e6,
        }
    if kind == "fedavg-m":
        try:
            edges_module.joined = forgetful
            wrong = played(replace(flat, algorithm=Edged(flat.algorithm, behind)), slots=1)
        finally:
            edges_module.joined = joined
        row["difference_if_edges_forget_samples"] = difference(one.models[0], wrong.models[0])
        usual = federation(kind, sites, seed, "float32")
        single = played(usual, slots=1)
        double = played(replace(usual, algorithm=Edged(usual.algorithm, behind)), slots=1)
        row["difference_in_float32"] = difference(single.models[0], double.models[0])
    return row


def told(rows: list[dict[str, Any]], seconds: float, memory: float) -> str:
    """The results as a page."""
    lines = [
        "# Two levels of aggregators beside one",
        "",
        f"`python benchmarks/hierarchy.py`: {rows[0]['sites']:,} sites behind {rows[0]['edges']} "
        f"edges of {rows[0]['smallest_edge']} to {rows[0]['largest_edge']} sites; all of it in "
        f"{seconds:.0f} s and {memory:.2f} GiB, in one process on two cores that others used too.",
        "",
        "| | slots | largest relative difference of the models | a slot moves the model by | "
        "replies at the server | MB at the server | its seconds |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        one, two = row["one"], row["two"]
        lines.append(
            f"| {row['kind']} | {row['slots']} | {row['difference']:.1e} | "
            f"{row['a_slot_moves']:.1e} | {one['replies']:,} → {two['replies']:,} | "
            f"{one['megabytes']:.2f} → {two['megabytes']:.3f} | "
            f"{one['server_seconds']:.3f} → {two['server_seconds']:.4f} |"
        )
    first = rows[0]
    lines += [
        "",
        f"Samples per slot: {', '.join(f'{n:,}' for n in first['samples'])} (fedavg-m). In "
        f"float32, one slot of fedavg-m differs by {first['difference_in_float32']:.1e}. If edges "
        "forget how many samples their sites have, the first model differs by "
        f"{first['difference_if_edges_forget_samples']:.1e}.",
        "",
        "Seconds are those of one conclusion in the slot with most replies; what edges compute "
        "themselves, and the network, are not among them.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--edges", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, rows = time.perf_counter(), []
    for kind in SLOTS:
        rows.append(compared(kind, given.sites, given.edges, given.seed))
        print(json.dumps(rows[-1]), flush=True)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    page = told(rows, seconds, memory)
    print(page)
    about = {"python": platform.python_version(), "seconds": seconds, "gibibytes": memory}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "hierarchy.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    (RESULTS / "hierarchy.md").write_text(page)


if __name__ == "__main__":
    main()
