"""What a site computes on request: training and scores, by the functions of the local engine.

The same model, data, seed and slot give the same bytes here as in `fedkoopman run`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.data.estimator import Estimator
from fedkoopman.deploy.site.catalogue import Counts
from fedkoopman.deploy.site.held_out_segments import HeldOutSegments
from fedkoopman.deploy.wire import Tensors, tensors_of, weights_of
from fedkoopman.errors import InputError
from fedkoopman.evaluation import Metrics, TestSet, evaluate
from fedkoopman.federation.policies import Threshold
from fedkoopman.federation.scoring import site_test_set
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.kind import Weights
from fedkoopman.koopman.training import client_update, train
from fedkoopman.runs.experiment import parts_of
from fedkoopman.runs.results import bare_model, measured_sums
from fedkoopman.runs.site_preparation import PreparedSite
from fedkoopman.runs.site_scores import scores_of
from fedkoopman.systems import System

__all__ = ["Work"]


class Work:
    """One site's share in a study."""

    def __init__(self, study: Study, identity: int, clients: int, system: System) -> None:
        """Arguments:

        identity: the site's place among all, from 0.
        clients: how many there are.
        system: what is observed.
        """
        self.parts = parts_of(study, study.seed, clients, system)
        self._dtype = np.dtype(self.parts.training.precision)
        self._identity = identity
        # Of lists with one entry per site, those that were enrolled later have the last.
        self._rate = self.parts.rates[min(identity, len(self.parts.rates) - 1)]
        chances = self.parts.probabilities
        self.probability = chances[min(identity, len(chances) - 1)]
        """p_n of this site."""

    def weights(self, tensors: Tensors) -> Weights:
        """A model that came from outside, if it is one of this study's."""
        weights = weights_of(self.parts.architecture, tensors)
        for name, leaf in tensors.items():
            if leaf.dtype != self._dtype:
                raise InputError(f"tensor {name} is {leaf.dtype}, not {self._dtype}: refused")
            if not np.isfinite(leaf).all():
                raise InputError(f"tensor {name} holds what is not finite: refused")
        return weights

    def train(
        self, slot: int, weights: Weights, states: Sequence[NDArray[np.float64]]
    ) -> dict[str, NDArray[Any]]:
        """What a model becomes on this site's data, in the order in which they arrived."""
        update = client_update(
            self.parts.architecture,
            self.parts.training,
            weights,
            [one.astype(self._dtype) for one in states],
            seed=subseed(self.parts.seed, "training", slot, self._identity),
            learning_rate=self._rate,
        )
        return tensors_of(update)

    def test_set(self, held_out: HeldOutSegments) -> TestSet | None:
        """On what the site scores; no more is read than that takes."""
        parts, lengths = self.parts, held_out.lengths
        if not lengths:
            return None
        steps, windows, needed = min(parts.steps, min(lengths) - 1), 0, 0
        while needed < len(lengths) and windows < parts.test_trajectories:
            windows += len(range(0, lengths[needed] - steps, steps))
            needed += 1
        return site_test_set(
            [one.states for one in held_out[:needed]],
            steps=steps,
            most=parts.test_trajectories,
            horizon=parts.horizon,
            valid_error=parts.valid_error,
        )

    def score(self, weights: Weights, test: TestSet) -> Metrics:
        """How good a model is on the site's windows."""
        return evaluate(self.parts.architecture, weights, test)

    def sums(self, weights: Weights, test: TestSet) -> dict[str, NDArray[Any]]:
        """What the site adds to the finished model's reference and noise: sums, and no states."""
        return measured_sums(bare_model(self.parts, weights), test.trajectories)

    def table(
        self, weights: Weights, estimator: Estimator, held_out: HeldOutSegments, counts: Counts
    ) -> dict[str, Any]:
        """The site's entry in the summary, as `runs.site_scores` has it; but no names."""
        site = PreparedSite(
            estimator.site.name,
            estimator.sensor,
            estimator.observation_noise,
            estimator.process_noise,
            train=(),
            held_out=held_out,  # type: ignore[arg-type]  # read one by one
            dropped=(),
        )
        told = f"{counts.dropped} of its segments, for reasons that the site knows"
        return {
            "train_segments": counts.train,
            "train_samples": counts.samples,
            "held_out_segments": counts.held_out,
            "dropped": [told] if counts.dropped else [],
            "observation_noise": np.diag(site.observation_noise).tolist(),
            "process_noise": np.diag(site.process_noise).tolist(),
        } | scores_of(site, bare_model(self.parts, weights), self.parts.horizon)

    def first_model(self) -> Weights:
        """The untrained model."""
        seed = subseed(self.parts.seed, "weights")
        return self.parts.architecture.initialise(seed=seed, dtype=self._dtype)

    def warm(self, waiting: int, test: TestSet | None) -> None:
        """Have everything compiled before it is asked for.

        Arguments:
            waiting: samples that wait; training is compiled for these, and for what the policy
                will let come together.
            test: what will be scored on.
        """
        parts, weights = self.parts, self.first_model()
        policy = parts.policy
        few = np.ravel(policy.segments) if isinstance(policy, Threshold) else np.ones(1)
        least = few[min(self._identity, len(few) - 1)]
        order = np.zeros((parts.training.epochs, 1), np.int32)
        for samples in dict.fromkeys((max(1, math.ceil(least)) * parts.steps, waiting)):
            if samples:
                nothing = np.zeros((samples, parts.architecture.state_dim))
                train(parts.architecture, parts.training, weights, nothing, order)
        if test is not None:
            self.score(weights, test)
