"""The paper's default experiment in PyTorch + filterpy + SciPy, as a good user of them writes it.

    python benchmarks/torch_federation.py --slots 200 --seed 0            (prints JSON)
    python benchmarks/torch_federation.py --check                         (against fk.estimate)

`plain` is the straightforward program: an RK4 step on NumPy vectors, the losses as printed, Adam as
it comes. `tuned` is the same experiment by a user who profiles: the step on Python floats (half the
time of NumPy on three numbers), both states of a pair through the network in one pass, and the
fused Adam. Not taken, because measured and no faster: two torch threads instead of one, a
DataLoader instead of index batches, torch.compile (0.6 ms a step like eager; 27 s to compile).
filterpy calls the step once per sigma point; its inner loops are its own and are left alone.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter
from scipy.integrate import solve_ivp
from torch import Tensor, nn
from torch.nn.functional import mse_loss

CLIENTS, PROBABILITY, STEPS, DT, THRESHOLD = 5, 0.7, 300, 0.02, 5
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, DECAY = 10, 64, 1e-3, 1e-7, 0.995
COMPONENTS, WIDTH = 12, 30
HELD_OUT, HORIZON, TAIL = 20, 5, 50
TOLERANCE = 1e-8
A, B, C = 10.0, 28.0, 8 / 3

Step = Callable[[np.ndarray, float], np.ndarray | tuple[float, float, float]]


def lorenz(x1: float, x2: float, x3: float) -> tuple[float, float, float]:
    """The vector field, on numbers."""
    return A * (x2 - x1), x1 * (B - x3) - x2, x1 * x2 - C * x3


def trajectory(initial: np.ndarray) -> np.ndarray:
    """The truth x_0 … x_ζ (301, 3) by SciPy's RK45."""
    times = DT * np.arange(STEPS + 1)
    solution = solve_ivp(
        lambda _, x: lorenz(*x.tolist()),
        (0.0, times[-1]),
        initial,
        "RK45",
        t_eval=times,
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    return solution.y.T


def frame(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A client's sensor: rows b₁, b₂ and offset o from a random orthonormal frame."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    rows = (q * np.sign(np.diag(r))).T
    return rows[:2], rows[2]


def rk4_plain(x: np.ndarray, dt: float) -> np.ndarray:
    """One RK4 step on NumPy vectors."""

    def field(x):
        return np.array([A * (x[1] - x[0]), x[0] * (B - x[2]) - x[1], x[0] * x[1] - C * x[2]])

    k1 = field(x)
    k2 = field(x + dt / 2 * k1)
    k3 = field(x + dt / 2 * k2)
    k4 = field(x + dt * k3)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rk4_tuned(x: np.ndarray, dt: float) -> tuple[float, float, float]:
    """The same step on Python floats: no arrays are made for three numbers."""
    x1, x2, x3 = x.tolist()
    h = dt / 2
    a1, a2, a3 = lorenz(x1, x2, x3)
    b1, b2, b3 = lorenz(x1 + h * a1, x2 + h * a2, x3 + h * a3)
    c1, c2, c3 = lorenz(x1 + h * b1, x2 + h * b2, x3 + h * b3)
    d1, d2, d3 = lorenz(x1 + dt * c1, x2 + dt * c2, x3 + dt * c3)
    h = dt / 6
    return (
        x1 + h * (a1 + 2 * (b1 + c1) + d1),
        x2 + h * (a2 + 2 * (b2 + c2) + d2),
        x3 + h * (a3 + 2 * (b3 + c3) + d3),
    )


def smooth(z: np.ndarray, sensor: tuple[np.ndarray, np.ndarray], step: Step) -> np.ndarray:
    """Smoothed states x̃_1 … x̃_ζ: unscented filter without resampling, unscented RTS smoother."""
    rows, offset = sensor
    shift = rows @ offset
    points = MerweScaledSigmaPoints(3, alpha=0.1, beta=2.0, kappa=-1.0)
    kf = UnscentedKalmanFilter(3, 2, DT, lambda x: rows @ x - shift, step, points)
    kf.x, kf.P, kf.Q, kf.R = np.zeros(3), np.eye(3), np.eye(3), np.eye(2)
    mean, cov = kf.batch_filter(z)
    return kf.rts_smoother(mean, cov)[0]


class DeepKoopmanNetwork(nn.Module):
    """Encoder, operator K and decoder of the paper's Section IV-A."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, WIDTH), nn.ReLU(), nn.Linear(WIDTH, COMPONENTS))
        self.operator = nn.Parameter(0.01 * torch.randn(COMPONENTS, COMPONENTS))
        self.decoder = nn.Sequential(nn.Linear(COMPONENTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)


def losses(model: DeepKoopmanNetwork, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ℓ1, ℓ2, ℓ3 as printed."""
    y = model.encoder(x)
    ahead = y @ model.operator.T
    return (
        mse_loss(ahead, model.encoder(target)),
        mse_loss(model.decoder(y), x),
        mse_loss(model.decoder(ahead), target),
    )


def loss_plain(model: DeepKoopmanNetwork, pairs: Tensor) -> Tensor:
    """(ℓ1 + ℓ2 + ℓ3) / 3 of pairs (2, n, 3)."""
    return sum(losses(model, *pairs)) / 3


def loss_tuned(model: DeepKoopmanNetwork, pairs: Tensor) -> Tensor:
    """The same number with one pass through the encoder and one through the decoder."""
    y, target = model.encoder(pairs)
    ahead = y @ model.operator.T
    return (
        mse_loss(ahead, target) + 2 * mse_loss(model.decoder(torch.stack((y, ahead))), pairs)
    ) / 3


def client_update(
    model: DeepKoopmanNetwork, segments: list[np.ndarray], tuned: bool
) -> DeepKoopmanNetwork:
    """Train a copy of the server's model on a client's segments; pairs stay inside a segment."""
    model = copy.deepcopy(model)
    states = np.stack(segments).astype(np.float32)
    pairs = np.stack([states[:, :-1].reshape(-1, 3), states[:, 1:].reshape(-1, 3)])
    pairs = torch.from_numpy(pairs)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=tuned or None
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
    loss = loss_tuned if tuned else loss_plain
    for _ in range(EPOCHS):
        for batch in pairs[:, torch.randperm(pairs.shape[1])].split(BATCH, dim=1):
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()
        scheduler.step()
    return model


@torch.no_grad()
def average(models: list[DeepKoopmanNetwork], sizes: list[int]) -> DeepKoopmanNetwork:
    """FedAvg-M: the mean weighted by the data trained on."""
    mean = copy.deepcopy(models[0])
    every = [list(m.parameters()) for m in models]
    for p, *given in zip(mean.parameters(), *every, strict=True):
        p.copy_(sum(n / sum(sizes) * q for n, q in zip(sizes, given, strict=True)))
    return mean


@torch.no_grad()
def evaluate(model: DeepKoopmanNetwork, x: Tensor) -> dict[str, float]:
    """ℓ1, ℓ2, ℓ3 and E (l₁ = l₂ = 5) on held-out trajectories x (20, 301, 3)."""
    l1, l2, l3 = losses(model, x[:, :-1], x[:, 1:])
    y = ahead = model.encoder(x)
    e = torch.zeros(())
    for k in range(1, HORIZON + 1):
        ahead = ahead[:, : x.shape[1] - k] @ model.operator.T
        e += mse_loss(model.decoder(ahead), x[:, k:]) + mse_loss(ahead, y[:, k:])
    return {"l1": l1.item(), "l2": l2.item(), "l3": l3.item(), "E": e.item() / (2 * HORIZON)}


def run(seed: int, slots: int = 200, tuned: bool = False) -> dict:
    """The whole experiment: seconds per part (imports excluded) and the tail means of the test."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    step = rk4_tuned if tuned else rk4_plain
    seconds = dict.fromkeys(("simulation", "estimation", "training", "evaluation"), 0.0)

    @contextmanager
    def part(name):
        start = time.perf_counter()
        yield
        seconds[name] += time.perf_counter() - start

    begin = time.perf_counter()
    sensors = [frame(rng) for _ in range(CLIENTS)]
    server = DeepKoopmanNetwork()
    buffers: list[list[np.ndarray]] = [[] for _ in range(CLIENTS)]
    records, rounds, dropped = [], 0, 0
    with part("simulation"):
        held_out = [trajectory(rng.uniform(-10, 10, 3)) for _ in range(HELD_OUT)]
        held_out = torch.from_numpy(np.stack(held_out).astype(np.float32))
    for _ in range(slots):
        arrived = np.flatnonzero(rng.random(CLIENTS) < PROBABILITY)
        with part("simulation"):
            x = trajectory(rng.uniform(-10, 10, 3))[1:]
        with part("estimation"):
            for n in arrived:
                rows, offset = sensors[n]
                z = (x - offset) @ rows.T + rng.normal(size=(STEPS, 2))
                try:
                    buffers[n].append(smooth(z, sensors[n], step))
                except np.linalg.LinAlgError:
                    dropped += 1
        active = [n for n in range(CLIENTS) if len(buffers[n]) >= THRESHOLD]
        with part("training"):
            if active:
                models = [client_update(server, buffers[n], tuned) for n in active]
                server = average(models, [STEPS * len(buffers[n]) for n in active])
        for n in active:
            buffers[n] = []
        rounds += len(active)
        with part("evaluation"):
            records.append(evaluate(server, held_out))
    seconds["total"] = time.perf_counter() - begin
    tail = {k: float(np.mean([r[k] for r in records[-TAIL:]])) for k in records[0]}
    return {
        "program": "tuned" if tuned else "plain",
        "seed": seed,
        "slots": slots,
        "seconds": seconds,
        "tail": tail,
        "rounds": rounds,
        "dropped": dropped,
    }


def check() -> None:
    """The smoother equals fk.estimate's; plain and tuned programs compute the same things."""
    import fedkoopman as fk

    rng = np.random.default_rng(0)
    rows, offset = frame(rng)
    x = trajectory(rng.uniform(-10, 10, 3))[1:]
    z = (x - offset) @ rows.T + rng.normal(size=(STEPS, 2))
    ours = fk.estimate(fk.systems.Lorenz63(dt=DT), fk.LinearSensor(rows, offset), z).mean
    gaps = {
        f"smoother, {step.__name__}": np.abs(smooth(z, (rows, offset), step) - ours).max()
        for step in (rk4_plain, rk4_tuned)
    }
    model = DeepKoopmanNetwork()
    states = torch.from_numpy(x.astype(np.float32))
    pairs = torch.stack((states[:-1], states[1:]))
    with torch.no_grad():
        plain, tuned = loss_plain(model, pairs).item(), loss_tuned(model, pairs).item()
    gaps["loss, relative"] = abs(plain - tuned) / plain
    for name, gap in gaps.items():
        print(f"{name}: {gap:.1e}")
    if not max(gaps.values()) < 1e-6:
        raise SystemExit(f"{Path(__file__).name} --check: a difference is above 1e-6")


def main() -> None:
    """Run once and print the result as JSON, or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tuned", action="store_true", help="the program of a user who profiles")
    parser.add_argument("--check", action="store_true", help="compare with fk.estimate and stop")
    arguments = parser.parse_args()
    if arguments.check:
        check()
    else:
        result = run(arguments.seed, arguments.slots, arguments.tuned)
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
