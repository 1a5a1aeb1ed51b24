"""The recommended study on the paper's default federation, held to the numbers that it promises."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.federation.sites import held_out
from fedkoopman.runs.experiment import experiment_of

pytestmark = pytest.mark.slow

SEEDS = (2000, 2001, 2002)
"""Nothing was chosen on these."""
PROMISED = {12: (1e-3, 6e-3, 12, 0.25), 20: (6e-4, 2.5e-3, 19, 0.13), 40: (6e-4, 2.5e-3, 22, 0.13)}
"""By components: ℓ3, E₁, valid steps, and the mean error at 20 steps over the spread."""
STARTS = 10


def far_error(model, trajectories):
    """The mean over every tenth start of the error norm 20 steps ahead, over the states' spread."""
    ahead = np.asarray(model.predict(trajectories, n_steps=20, relift=0))[:, :-20:STARTS]
    error = np.linalg.norm(ahead - trajectories[:, 20::STARTS], axis=-1)
    flat = trajectories.reshape(-1, trajectories.shape[-1])
    spread = np.sqrt(((flat - flat.mean(axis=0)) ** 2).sum(axis=1).mean())
    return error.mean() / spread


@pytest.mark.parametrize("components", PROMISED)
def test_errors_are_those_promised_and_nothing_can_grow(components):
    found = []
    for seed in SEEDS:
        study = fk.Study.recommended(seed=seed, network={"components": components})
        run = fk.run(study)
        test = held_out(experiment_of(study, seed))[0].trajectories
        last = run.records[-1]
        found.append([last["l3"], last["E1"], last["horizon"], far_error(run.model, test)])
        assert np.abs(run.model.eigenvalues_).max() <= 1 + 1e-12
    l3, e1, horizon, far = np.mean(found, axis=0)
    most_l3, most_e1, least_horizon, most_far = PROMISED[components]
    assert l3 <= most_l3 and e1 <= most_e1 and far <= most_far
    # Seeds scatter by a third: three of them may fall a little short of the mean of many.
    assert horizon >= 0.85 * least_horizon


def test_the_papers_network_is_far_from_that():
    run = fk.run(fk.Study.paper_default(seed=SEEDS[0]))
    assert run.records[-1]["E1"] > 100 * PROMISED[20][1]
