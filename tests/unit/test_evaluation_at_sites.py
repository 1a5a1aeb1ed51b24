"""Scores of separate holders add up to what all windows together score."""

import numpy as np
import pytest
from reference.federations import experiment

from fedkoopman.evaluation import (
    Metrics,
    TestSet,
    combined,
    evaluate,
    site_test_set,
    windows_of_site,
)


def walks(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(lengths))
    return [np.cumsum(rng.normal(size=(length, 3)), axis=0) for length in lengths]


def test_a_short_segment_shortens_all_windows_of_its_site() -> None:
    windows = windows_of_site(walks(5, 30), 10, 100)
    assert windows is not None
    assert windows.shape == (1 + 7, 5, 3)


def test_nothing_held_out_is_no_test_set() -> None:
    assert windows_of_site([], 10, 5) is None
    assert site_test_set([], steps=10, most=5, horizon=2, valid_error=0.4) is None


@pytest.mark.parametrize("counts", [(1, 4), (3, 2, 5)])
def test_means_of_sites_combine_to_the_mean_of_all(counts: tuple[int, ...]) -> None:
    e = experiment()
    weights = e.architecture.initialise(seed=3, dtype=np.float64)
    rng = np.random.default_rng(0)
    parts = [np.cumsum(rng.normal(size=(n, 12, 3)), axis=1) for n in counts]
    whole = evaluate(e.architecture, weights, TestSet(np.concatenate(parts), 3, 0.4))
    alone = [(evaluate(e.architecture, weights, TestSet(p, 3, 0.4)), len(p)) for p in parts]
    # How long a rollout stays valid is measured by each site's own spread.
    np.testing.assert_allclose(combined(alone)[:5], whole[:5], rtol=1e-12)


def test_one_holder_keeps_its_scores_exactly() -> None:
    scores = Metrics(0.1, 0.2, 0.3, 0.7, 0.9, 11.3)
    assert combined([(scores, 3)]) is scores
