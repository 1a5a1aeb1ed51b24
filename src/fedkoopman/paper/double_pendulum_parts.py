"""Scores on the test samples before and after the release, told apart.

Before the release of trial 3 a hand lifts and holds the links; after it they move freely. The final
model of every seed is scored on both parts, in windows as long as the run's own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.paper.double_pendulum_motion import FIRST, TEST_LAST

HELD, MOVING = "before the release", "after the release"


def parts_of(test: np.ndarray, release: int) -> dict[str, np.ndarray]:
    """The test states (T, 4), which begin at sample 1000, before and from the release on."""
    return {
        HELD: test[: release - FIRST],
        MOVING: test[release - FIRST : TEST_LAST - FIRST + 1],
    }


def scored(
    study: Study, run: Path, seeds: Sequence[int], parts: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Scores of the final models of a run, by part, metric and seed; persistence's beside them.

    Arguments:
        run: directory of the run.
        parts: states (T, d) by name; what is left of the last window is not scored.
    """
    from fedkoopman.evaluation import evaluate, persistence, scores_of, site_test_set
    from fedkoopman.koopman.files import read_model

    found: dict[str, Any] = {}
    for name, states in parts.items():
        test = site_test_set(
            [states],
            steps=study.segments.steps,
            most=len(states),
            horizon=study.evaluation.horizon,
            valid_error=study.evaluation.valid_error,
        )
        assert test is not None
        by_seed = []
        for seed in seeds:
            learned = read_model(run / f"seed-{seed}" / "model.safetensors")
            scores = evaluate(learned.architecture, learned.weights, test)
            by_seed.append(scores_of(scores, learned.training))
        held = persistence(test)
        found[name] = {
            "windows": len(test.trajectories),
            "models": {metric: [one[metric] for one in by_seed] for metric in by_seed[0]},
            "persistence": {"l3": held.l3, "E1": held.e1},
        }
    return found
