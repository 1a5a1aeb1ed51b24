"""ClientUpdate against its NumPy twin, and that nothing but its arguments decides its bits."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier

import jax
import numpy as np
import pytest
from reference import koopman as twin
from reference.federations import ARCHITECTURE, TRAINING, flat, model_bytes, params_of

from fedkoopman.errors import InputError
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.training import client_update, shuffled, train, window_starts

LENGTHS = (40, 25, 3)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def states(lengths=LENGTHS, dim=3, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(length, dim)) for length in lengths]


def first_weights(architecture=ARCHITECTURE, dtype=np.float64, seed=1):
    """Untrained weights with biases that are not 0, so that these are tested too."""
    weights = architecture.initialise(seed=seed, dtype=np.float64)
    random = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (leaf + 0.1 * random.normal(size=leaf.shape)).astype(dtype), weights
    )


def assert_is_twin(architecture, training, segments, seed=5, learning_rate=None):
    """Our update, the twin's with the same orders, and that they moved away from the start."""
    weights = first_weights(architecture)
    found = client_update(
        architecture, training, weights, segments, seed=seed, learning_rate=learning_rate
    )
    mu, tau = architecture.window, architecture.depth
    starts = twin.window_starts([len(segment) for segment in segments], mu, tau)
    expected = twin.client_update(
        params_of(weights),
        segments,
        shuffled(starts, training.epochs, seed),
        mu=mu,
        tau=tau,
        weights=training.loss_weights,
        batch=training.batch,
        eta=training.learning_rate if learning_rate is None else learning_rate,
        weight_decay=training.weight_decay,
        decay=training.decay,
        proximal=training.proximal,
    )
    for ours, theirs in zip(twin.leaves(params_of(found)), twin.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, **EXACT)
    assert np.abs(flat(found) - flat(weights)).max() > 1e-4
    return found


@pytest.mark.parametrize(
    ("mu", "tau", "hidden_layers"), [(1, 1, 0), (1, 3, 2), (2, 1, 1), (3, 2, 1)]
)
def test_windows_depths_and_layers_are_the_twins(mu, tau, hidden_layers):
    architecture = PaperNetwork(3, 6, hidden_layers, 8, window=mu, depth=tau)
    assert_is_twin(architecture, TRAINING, states())


# 65 samples from segments of 40, 25 and 3 (windows of 1, depth 1): 39 + 24 + 2.
@pytest.mark.parametrize("batch", [1, 13, 65, 200], ids="batch{}".format)
def test_any_batch_is_the_twins(batch):
    """One by one, whole batches only, all at once, room to spare; else the last has one sample."""
    assert_is_twin(ARCHITECTURE, replace(TRAINING, batch=batch), states())


@pytest.mark.parametrize(
    "weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.2, 1.5, 0.7)]
)
def test_any_loss_weights_are_the_twins(weights):
    assert_is_twin(ARCHITECTURE, replace(TRAINING, loss_weights=weights), states())


def test_weight_decay_and_falling_rate_are_the_twins():
    training = replace(TRAINING, epochs=5, weight_decay=0.3, decay=0.5, learning_rate=1e-2)
    decayed = assert_is_twin(ARCHITECTURE, training, states())
    plain = client_update(
        ARCHITECTURE, replace(training, weight_decay=0.0), first_weights(), states(), seed=5
    )
    assert np.abs(flat(decayed) - flat(plain)).max() > 1e-3


@pytest.mark.parametrize("proximal", [1e-3, 0.1, 10.0])
def test_fedprox_is_the_twins(proximal):
    training = replace(TRAINING, epochs=3, learning_rate=1e-2, proximal=proximal)
    near = assert_is_twin(ARCHITECTURE, training, states())
    free = client_update(
        ARCHITECTURE, replace(training, proximal=0.0), first_weights(), states(), seed=5
    )
    assert np.abs(flat(near) - flat(free)).max() > 1e-6


def test_fedprox_holds_weights_where_they_were_received():
    """The stronger the term, the nearer; without it they go thirty steps of η and more."""
    eta, received = 1e-2, flat(first_weights())
    training = replace(TRAINING, epochs=20, learning_rate=eta)

    def farthest(proximal):
        given = replace(training, proximal=proximal)
        found = client_update(ARCHITECTURE, given, first_weights(), states(), seed=5)
        return np.abs(flat(found) - received).max()

    free, weak, strong, rigid = (farthest(mu) for mu in (0.0, 0.1, 10.0, 1e6))
    assert free > weak > strong > rigid
    assert free > 30 * eta and rigid < eta / 100


def test_fedprox_that_is_too_weak_to_count_changes_rounding_only():
    tiny = replace(TRAINING, proximal=1e-300)
    found = [
        client_update(ARCHITECTURE, t, first_weights(), states(), seed=5) for t in (TRAINING, tiny)
    ]
    np.testing.assert_allclose(flat(found[0]), flat(found[1]), **EXACT)


def test_a_clients_own_rate_replaces_the_common_one():
    own = assert_is_twin(ARCHITECTURE, TRAINING, states(), learning_rate=3e-3)
    common = replace(TRAINING, learning_rate=3e-3)
    same = client_update(ARCHITECTURE, common, first_weights(), states(), seed=5)
    assert model_bytes(own) == model_bytes(same)


@pytest.mark.parametrize("length", [63, 64, 65, 128, 129])
def test_room_for_more_data_changes_nothing(length):
    """On both sides of a power of two, where the compiled shape changes."""
    assert_is_twin(ARCHITECTURE, TRAINING, states([length]))


def test_many_segments_are_the_twins():
    assert_is_twin(ARCHITECTURE, TRAINING, states([7, 2, 40, 2, 11]))


def test_a_segment_too_short_for_a_window_is_passed_over():
    """One among others adds no sample; its states lie between those of its neighbours."""
    architecture = PaperNetwork(3, 6, 1, 8, window=3, depth=2)
    assert_is_twin(architecture, TRAINING, states([40, 4, 25]))


@pytest.mark.parametrize(("mu", "tau"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_windows_and_targets_stay_within_a_segment(mu, tau):
    lengths = [9, 4, 1, 12, 5]
    segment_of = np.repeat(np.arange(len(lengths)), lengths)
    starts = window_starts(lengths, mu, tau)
    for start in starts:
        touched = np.r_[start : start + mu, start + tau : start + tau + mu]
        assert len(set(segment_of[touched])) == 1
    assert len(starts) == sum(max(0, length - mu - tau + 1) for length in lengths)
    assert len(np.unique(starts)) == len(starts)
    np.testing.assert_array_equal(starts, twin.window_starts(lengths, mu, tau))


def test_every_epoch_takes_every_sample_once_in_its_own_order():
    starts = window_starts([40, 25], 1, 1)
    order = shuffled(starts, 4, seed=2)
    for epoch in order:
        np.testing.assert_array_equal(np.sort(epoch), starts)
    assert len({epoch.tobytes() for epoch in order}) == 4
    assert not np.array_equal(order, shuffled(starts, 4, seed=3))
    np.testing.assert_array_equal(order[:2], shuffled(starts, 2, seed=2))


@pytest.mark.parametrize("lengths", [[4], [4, 1, 3]])
def test_segments_that_are_all_too_short_are_refused(lengths):
    architecture = PaperNetwork(3, 6, 1, 8, window=3, depth=2)
    with pytest.raises(InputError, match=r"5 samples.*window of 3.*depth of 2.*longer") as caught:
        client_update(architecture, TRAINING, first_weights(architecture), states(lengths), seed=0)
    assert "\n" not in str(caught.value)


def test_no_segments_are_refused():
    with pytest.raises(InputError, match="give longer segments"):
        client_update(ARCHITECTURE, TRAINING, first_weights(), [], seed=0)


def test_single_precision_is_close_to_double():
    double = client_update(ARCHITECTURE, TRAINING, first_weights(), states(), seed=5)
    single = in_float32()
    assert {leaf.dtype for leaf in jax.tree.leaves(double)} == {np.dtype(np.float64)}
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {np.dtype(np.float32)}
    # Adam's step is η whatever the size of the gradient, so a sign lost to rounding costs up to η.
    np.testing.assert_allclose(flat(single), flat(double), atol=1e-4)
    assert np.abs(flat(single) - flat(double)).max() > 0


def in_float32(seed=5):
    single = replace(TRAINING, precision="float32")
    data = [segment.astype(np.float32) for segment in states()]
    return client_update(ARCHITECTURE, single, first_weights(dtype=np.float32), data, seed=seed)


def test_the_callers_precision_changes_nothing_and_is_left_alone():
    for one in (
        in_float32,
        partial(client_update, ARCHITECTURE, TRAINING, first_weights(), states(), seed=5),
    ):
        found = []
        for setting in (True, False):
            with jax.enable_x64(setting):
                found.append(model_bytes(one()))
                assert jax.config.jax_enable_x64 is setting
        assert found[0] == found[1]


def test_the_callers_weights_and_data_are_left_alone():
    weights, data = first_weights(), states()
    before = model_bytes(weights), [segment.tobytes() for segment in data]
    client_update(ARCHITECTURE, TRAINING, weights, data, seed=5)
    assert before == (model_bytes(weights), [segment.tobytes() for segment in data])


def test_the_seed_decides_the_bytes():
    def bytes_of(seed):
        return model_bytes(
            client_update(ARCHITECTURE, TRAINING, first_weights(), states(), seed=seed)
        )

    assert bytes_of(5) == bytes_of(5)
    assert bytes_of(5) != bytes_of(6)
    assert bytes_of(2**62) != bytes_of(2**62 + 1)


def test_an_update_is_training_in_the_order_of_its_seed():
    order = shuffled(window_starts(LENGTHS, 1, 1), TRAINING.epochs, 5)
    joined = np.concatenate(states())
    trained = train(ARCHITECTURE, TRAINING, first_weights(), joined, order)
    updated = client_update(ARCHITECTURE, TRAINING, first_weights(), states(), seed=5)
    assert model_bytes(trained) == model_bytes(updated)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_who_trains_at_the_same_time_changes_no_bit(precision):
    """Two threads, each with data of its own (of another size and precision), many times over."""
    training = replace(TRAINING, precision=precision, epochs=4)
    other = replace(TRAINING, precision="float32" if precision == "float64" else "float64")
    weights = first_weights(dtype=np.dtype(precision))

    def alone(seed):
        return model_bytes(
            client_update(ARCHITECTURE, training, weights, states(seed=seed), seed=seed)
        )

    def disturbance(seed):
        return model_bytes(
            client_update(ARCHITECTURE, other, first_weights(), states([129], seed=seed), seed=seed)
        )

    expected = [alone(seed) for seed in range(20)]
    noise = [disturbance(seed) for seed in range(20)]
    gate = Barrier(2)

    def together(job):
        gate.wait()
        return [job(seed) for seed in range(20)]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(together, [alone, disturbance])
    assert first == expected
    assert second == noise
