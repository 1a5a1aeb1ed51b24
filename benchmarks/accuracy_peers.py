"""Other Koopman libraries on our data, each called as its own documentation shows.

Every function fits a model to trajectories (runs, time, state) and returns a `Peer`. Their
parameters are fixed, and were chosen for each library on validation draws only.
"""

import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accuracy_baselines import Array, Forecast

HERE = Path(__file__).parent
PYKOOPMAN = Path(
    os.environ.get("FEDKOOPMAN_PYKOOPMAN", HERE.parent / ".venv-pykoopman" / "bin" / "python")
)
"""The Python of the environment that holds pykoopman, which fits no other's pins."""


class Unavailable(Exception):
    """A peer that could not be run here."""


class Peer(NamedTuple):
    """A fitted model."""

    forecast: Forecast
    seconds: float
    """CPU time of the fit, all threads, imports excluded."""
    window: int = 1
    """How many consecutive states it starts from, joined oldest first."""


def _timed(make) -> Peer:
    began = time.process_time()
    forecast = make()
    return Peer(forecast, time.process_time() - began)


def _scale(train: Array) -> tuple[Array, Array]:
    states = train.reshape(-1, train.shape[-1])
    return states.mean(axis=0), states.std(axis=0)


def kooplearn_nystroem(
    train: Array, rank: int = 12, centers: int = 500, gamma: float = 0.02, seed: int = 0
) -> Peer:
    """Reduced-rank Nyström regression, Gaussian kernel of standardised states.

    It takes one trajectory. With the rows of all trajectories at one time next to each other, a
    lag of as many rows makes the right pairs and no wrong one. Its `predict(x, n)` evaluates states
    where the pairs begin, which gives the state after n − 1 steps; the successors as observable
    (`fit(X, y)`, `predict(observable=True)`) give the state after n.
    """
    from kooplearn.kernel import NystroemKernelRidge

    mean, std = _scale(train)

    def make() -> Forecast:
        rows = ((train - mean) / std).swapaxes(0, 1).reshape(-1, train.shape[-1])
        model = NystroemKernelRidge(
            n_components=rank,
            lag_time=len(train),
            kernel="rbf",
            gamma=gamma,
            alpha=1e-8,
            n_centers=centers,
            random_state=seed,
        ).fit(rows, np.concatenate([rows[len(train) :], rows[-len(train) :]]))

        def forecast(states: Array, steps: int) -> Array:
            u = (states - mean) / std
            ahead = [model.predict(u, n_steps=k, observable=True) for k in range(1, steps + 1)]
            return np.stack(ahead, axis=1) * std + mean

        return forecast

    return _timed(make)


def kooplearn_autoencoder(train: Array, rank: int = 12, epochs: int = 300, seed: int = 0) -> Peer:
    """Encoder, K and decoder trained with kooplearn's `autoencoder_loss` by Adam, in JAX."""
    import jax
    import jax.numpy as jnp
    import optax
    from kooplearn.jax.nn import autoencoder_loss

    mean, std = _scale(train)
    d, batch, width = train.shape[-1], 1024, 64

    def layers(key, sizes):
        keys = jax.random.split(key, len(sizes))
        return [
            (jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b))
            for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
        ]

    def run(network, x):
        for w, b in network[:-1]:
            x = jnp.tanh(x @ w + b)
        return x @ network[-1][0] + network[-1][1]

    def loss(weights, x, y):
        encoder, operator, decoder = weights
        lifted = run(encoder, x)
        ahead = lifted @ operator
        return autoencoder_loss(
            x, y, run(decoder, lifted), run(encoder, y), ahead, run(decoder, ahead)
        )

    def make() -> Forecast:
        u = jnp.asarray((train - mean) / std, jnp.float32)
        x, y = u[:, :-1].reshape(-1, d), u[:, 1:].reshape(-1, d)
        first, second, order = jax.random.split(jax.random.key(seed), 3)
        weights = (
            layers(first, [d, width, width, rank]),
            jnp.eye(rank),
            layers(second, [rank, width, width, d]),
        )
        batches = len(x) // batch
        optimiser = optax.adam(optax.cosine_decay_schedule(1e-3, epochs * batches))

        @jax.jit
        def epoch(carry, key):
            rows = jax.random.permutation(key, len(x))[: batches * batch].reshape(batches, batch)

            def step(carry, chosen):
                weights, state = carry
                update, state = optimiser.update(
                    jax.grad(loss)(weights, x[chosen], y[chosen]), state
                )
                return (optax.apply_updates(weights, update), state), None

            return jax.lax.scan(step, carry, rows)[0]

        carry = (weights, optimiser.init(weights))
        for key in jax.random.split(order, epochs):
            carry = epoch(carry, key)
        encoder, operator, decoder = jax.tree.map(lambda a: np.asarray(a, np.float64), carry[0])

        def forecast(states: Array, steps: int) -> Array:
            y, found = np.asarray(run(encoder, (states - mean) / std)), []
            for _ in range(steps):
                y = y @ operator
                found.append(np.asarray(run(decoder, y)) * std + mean)
            return np.stack(found, axis=1)

        return forecast

    return _timed(make)


def pykoop_rbf(train: Array, functions: int = 9, shape: float = 0.05, seed: int = 0) -> Peer:
    """EDMD on the states and some Gaussian radial functions at k-means centres."""
    import pykoop
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import StandardScaler

    def make() -> Forecast:
        centers = pykoop.ClusterCenters(
            estimator=KMeans(n_clusters=functions, n_init=3, random_state=seed)
        )
        rbf = pykoop.RbfLiftingFn(rbf="gaussian", centers=centers, shape=shape)
        model = pykoop.KoopmanPipeline(
            lifting_functions=[
                ("scale", pykoop.SkLearnLiftingFn(StandardScaler())),
                ("rbf", rbf),
            ],
            regressor=pykoop.Edmd(),
        )
        rows = np.concatenate([np.c_[np.full(len(x), i), x] for i, x in enumerate(train)])
        model.fit(rows, n_inputs=0, episode_feature=True)

        def forecast(states: Array, steps: int) -> Array:
            numbered = np.c_[np.arange(len(states)), states]
            lifted, found = model.lift_state(numbered, episode_feature=True), []
            for _ in range(steps):
                lifted = np.c_[lifted[:, 0], lifted[:, 1:] @ model.regressor_.coef_]
                found.append(model.retract_state(lifted, episode_feature=True)[:, 1:])
            return np.stack(found, axis=1)

        return forecast

    return _timed(make)


def pydmd(train: Array, rank: int, window: int = 1) -> Peer:
    """`DMD(svd_rank).fit(X, Y)` on all pairs, of windows of consecutive states where asked."""
    from pydmd import DMD

    d = train.shape[-1]

    def windows(x: Array) -> Array:
        count = x.shape[-2] - window + 1
        return np.concatenate([x[..., i : i + count, :] for i in range(window)], axis=-1)

    def make() -> Forecast:
        rows = windows(train)
        x, y = (part.reshape(-1, rows.shape[-1]) for part in (rows[:, :-1], rows[:, 1:]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of the condition of every X
            model = DMD(svd_rank=rank).fit(x.T, y.T)

        def forecast(states: Array, steps: int) -> Array:
            ahead, found = states.T, []
            for _ in range(steps):
                ahead = model.predict(ahead).real
                found.append(ahead[-d:].T)
            return np.stack(found, axis=1)

        return forecast

    return _timed(make)._replace(window=window)


def kooplearn_own(train: Array) -> dict[str, tuple]:
    """The models of kooplearn's `fit_time.py`, with its parameters and rank 25.

    Each as called there, and with the successors as observable: see `kooplearn_nystroem`.
    """
    from kooplearn.kernel import KernelRidge, NystroemKernelRidge

    common = {"n_components": 25, "reduced_rank": False, "kernel": "rbf", "alpha": 1e-6}
    common["random_state"] = 0
    models = {
        "KernelRidge": KernelRidge(eigen_solver="arpack", **common),
        "Nyström": NystroemKernelRidge(
            eigen_solver="arpack", n_centers=int(np.sqrt(len(train))), **common
        ),
        "KernelRidge, randomized": KernelRidge(
            eigen_solver="randomized", iterated_power=1, n_oversamples=5, **common
        ),
    }
    found = {}
    for name, model in models.items():
        began = time.process_time()
        model.fit(train, np.concatenate([train[1:], train[-1:]]))
        seconds = time.process_time() - began
        found[f"kooplearn {name} (as called there)"] = model.predict, seconds
        found[f"kooplearn {name}"] = partial(model.predict, observable=True), seconds
    return found


def pykoop_own(train: Array) -> Peer:
    """pykoop as kooplearn's `fit_time.py` calls it."""
    import pykoop

    def make() -> Forecast:
        features = pykoop.RandomFourierKernelApprox(
            kernel_or_ft="gaussian",
            n_components=int(np.sqrt(len(train))),
            shape=1 / train.shape[1] / 2,
            method="weight_offset",
            random_state=0,
        )
        model = pykoop.KoopmanPipeline(
            lifting_functions=[("rff", pykoop.KernelApproxLiftingFn(kernel_approx=features))],
            regressor=pykoop.Edmd(alpha=1e-6),
        ).fit(train)
        return lambda states, steps: model.predict(states)[:, None]

    return _timed(make)


def pykoopman(
    train: Array, states: Array, horizons: Sequence[int], what: str = "nndmd"
) -> tuple[dict[int, Array], float]:
    """Forecasts of pykoopman's NNDMD or KDMD, by a process of its own environment.

    Returns:
        The states at each horizon, and CPU seconds of the fit as that process measured them.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        np.savez(given, train=train, states=states, horizons=np.asarray(horizons))
        command = [PYKOOPMAN, HERE / "pykoopman_peer.py", what, given, made]
        try:
            subprocess.run(
                list(map(str, command)), capture_output=True, timeout=1800, cwd=folder, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(str(error)) from error
        with np.load(made) as result:
            found = {h: result[f"at_{h}"] for h in horizons}
            return found, float(result["seconds"])
