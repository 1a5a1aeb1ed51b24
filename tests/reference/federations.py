"""Small federations for the tests, and the way between our weights and the twin's models."""

import jax
import numpy as np

import fedkoopman as fk
from fedkoopman.federation.experiment import Client, Experiment, Filter, scheme_of
from fedkoopman.federation.simulation import first_state, simulate_federation
from fedkoopman.federation.simulation import jobs_of as slot_jobs
from fedkoopman.federation.sites import Address, Sites
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights
from fedkoopman.koopman.training import Training

STEPS = 40
# One architecture and one length for all tests: what is compiled once serves them all.
ARCHITECTURE = PaperNetwork(state_dim=3, components=6, width=8)
TRAINING = Training(epochs=2, batch=16, precision="float64")


def client(identity, **changes):
    """A client with the paper's sensor, drawn by its identity."""
    given = {
        "sensor": fk.LinearSensor.random_frame(3, seed=identity),
        "dynamics": fk.systems.Lorenz63(),
        "probability": 0.7,
        "observation_noise": np.eye(2),
        "process_noise": np.eye(3),
        "learning_rate": 1e-3,
    }
    return Client(identity, **{**given, **changes})


def first_weights(seed=0):
    """Untrained weights of the tests' architecture, by name."""
    return ARCHITECTURE.named(ARCHITECTURE.initialise(seed=seed, dtype=np.float64))


def clients(count, **changes):
    return tuple(client(n, **changes) for n in range(count))


def experiment(**changes):
    """Three clients, four slots; every client trains as soon as it has a segment."""
    given = {
        "seed": 3,
        "system": fk.systems.Lorenz63(),
        "clients": clients(3),
        "architecture": ARCHITECTURE,
        "training": TRAINING,
        "segments": 1,
        "slots": 4,
        "steps": STEPS,
        "filter": Filter(initial_mean=np.zeros(3), initial_cov=np.eye(3)),
        "test_trajectories": 3,
        "horizon": 3,
    }
    return Experiment(**{**given, **changes})


def run(experiment, start=None, threads=2):
    """All slots, as a list of outcomes."""
    with Workers(threads) as pool:
        return list(simulate_federation(experiment, pool, start))


def segments(experiment, addresses, perfect=False):
    """The segments that clients hold, by (slot, client)."""
    wanted = [Address(*address) for address in addresses]
    with Workers(1) as pool:
        return Sites(experiment, perfect).segments(wanted, pool)


def model_bytes(model):
    """The bytes of a model, which is weights or arrays by name."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model))


def measures(outcome):
    """A record without the time it took."""
    return {key: value for key, value in outcome.record.items() if key != "seconds"}


def flat(weights):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)])


def params_of(arrays, architecture=ARCHITECTURE):
    """The twin's form of a model, which is weights or arrays by name."""
    weights = arrays if isinstance(arrays, Weights) else architecture.from_named(arrays)

    def stack(layers):
        return [(np.array(layer.weight), np.array(layer.bias)) for layer in layers]

    return {
        "encoder": stack(weights.encoder),
        "operator": np.array(weights.operator),
        "decoder": stack(weights.decoder),
    }


def weights_of(params, dtype=np.float64):
    """Our form of the twin's model."""

    def stack(layers):
        return tuple(
            Layer(np.concatenate([weight, bias[:, None]], axis=1).astype(dtype))
            for weight, bias in layers
        )

    return Weights(
        stack(params["encoder"]), params["operator"].astype(dtype), stack(params["decoder"])
    )


def final(outcomes):
    """The bytes of the last model."""
    return model_bytes(outcomes[-1].state.arrays)


def assert_same_run(found, expected):
    """Every slot: the same model, byte for byte, buffers and record."""
    for one, other in zip(found, expected, strict=True):
        assert model_bytes(one.state.arrays) == model_bytes(other.state.arrays)
        assert (one.state.slot, one.state.buffers) == (other.state.slot, other.state.buffers)
        assert measures(one) == measures(other)


def jobs_of(e, arrived, state=None):
    """The jobs of the slot after a state, in which these clients arrived."""
    e, scheme = scheme_of(e)
    state = state or first_state(e)
    buffers = tuple(
        (*slots, state.slot + 1) if n in set(arrived) else slots
        for n, slots in enumerate(state.buffers)
    )
    return slot_jobs(e, scheme, state, buffers)[1]
