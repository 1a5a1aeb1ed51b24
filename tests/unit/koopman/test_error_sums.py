"""What separate holders of data tell of a model's error adds up to what all data tell."""

import numpy as np
import pytest

from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.forecast import error_sums, lifted_noise, noise_of_sums
from fedkoopman.koopman.kinds.paper import PaperNetwork


def model(window: int = 1, depth: int = 1) -> DeepKoopman:
    architecture = PaperNetwork(2, 5, width=8, window=window, depth=depth)
    return DeepKoopman.from_weights(architecture, architecture.initialise(seed=4), dt=0.1)


def walks(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(len(lengths))
    return [np.cumsum(0.1 * rng.normal(size=(length, 2)), axis=0) for length in lengths]


@pytest.mark.parametrize(("window", "depth"), [(1, 1), (3, 2)])
def test_sums_of_holders_give_the_noise_of_all_data(window: int, depth: int) -> None:
    learned = model(window, depth).learned_
    parts = walks(120, 90, 300, 60, 75)
    groups = [parts[:2], parts[2:3], parts[3:]]
    apart = noise_of_sums(learned, [error_sums(learned, group) for group in groups])
    np.testing.assert_allclose(apart, lifted_noise(learned, parts), rtol=1e-10)


def test_one_holder_gives_its_own_noise_to_the_bit() -> None:
    learned = model().learned_
    parts = walks(120, 90)
    alone = noise_of_sums(learned, [error_sums(learned, parts)])
    assert alone.tobytes() == lifted_noise(learned, parts).tobytes()


def test_a_holder_with_little_data_counts_by_its_data() -> None:
    learned = model().learned_
    many, few = walks(400)[0], walks(6, 6)[1]
    noise = noise_of_sums(learned, [error_sums(learned, [many]), error_sums(learned, [few])])
    np.testing.assert_allclose(noise, lifted_noise(learned, [many, few]), rtol=1e-10)
