"""What a site computes on request, by the functions of the local engine: pure functions of arrays.

The same model, data, seed and slot give the same bytes here as in `fedkoopman run`. The agent calls
this in its own process, or by `worker.Worker` in one that comes and goes; whatever is to be kept,
it keeps itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.filter_beliefs import Beliefs
from fedkoopman.data.triage import HeldOut
from fedkoopman.deploy.site.catalogue import Counts
from fedkoopman.deploy.site.estimating import Estimating
from fedkoopman.deploy.site.handover import Facts, Scores
from fedkoopman.errors import InputError
from fedkoopman.evaluation import TestSet, evaluate, site_test_set
from fedkoopman.federation import privacy
from fedkoopman.federation.algorithm import Asked
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.federation.slot import answer, parts_of, usual_samples
from fedkoopman.federation.streams import subseed
from fedkoopman.runs import comparison
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.results import bare_model, measured_sums, scores_of
from fedkoopman.runs.site_preparation import PreparedSite

States = Sequence[NDArray[np.float64]]
"""Segments (T, d) in the order in which they arrived."""


class Work(Estimating):
    """One site's share in a study."""

    def __init__(self, site: SiteFile, study: Study, identity: int, clients: int) -> None:
        """Arguments:

        identity: the site's place among all, from 0.
        clients: how many there are.
        """
        super().__init__(site, study)
        self.problem = problem_of(study, study.seed, clients, self.system)
        self.schemas = self.problem.algorithm.messages(self.problem)
        self._identity = identity

    def facts(self) -> Facts:
        """What the agent must know of the problem."""
        problem = self.problem
        return Facts(
            self.schemas, comparison.schemas(problem), self.dt,
            problem.probability(self._identity), problem.privacy,
        )  # fmt: skip

    def rest(self) -> None:
        """Nothing is given back by resting here; a worker ends."""

    def close(self) -> None:
        """Nothing is left behind here; a worker ends."""

    def answer(self, slot: int, message: Message, states: States, secret: int = 0) -> Message:
        """The algorithm's answer, from the segments that it is asked about.

        Arguments:
            secret: of the noise that protects them, where there is some.
        """
        seed = subseed(self.problem.seed, "training", slot, self._identity)
        asked = Asked(slot, seed, self.problem.rate(self._identity), secret=secret)
        return answer(self.problem, message, states, asked)

    def model(self, arrays: Arrays) -> Any:
        """The weights of a model that came from outside, if it is one of this study's."""
        for name, leaf in arrays.items():
            if leaf.dtype != (expected := self.problem.model_dtype):
                raise InputError(f"{name} is {leaf.dtype}, not {expected}: refused")
            if not np.isfinite(leaf).all():
                raise InputError(f"{name} has entries that are not finite: refused")
        return self.problem.architecture.from_named(arrays)

    def over_budget(
        self, message: Message, states: States, spent: Sequence[privacy.Release], budget: float
    ) -> bool:
        """Whether an answer would take the site over its privacy budget."""
        parts = parts_of(self.problem, states)
        return privacy.over_budget(self.problem, message, parts, spent, budget)

    def epsilon(self, releases: Sequence[privacy.Release]) -> float:
        """ε of all that the site released, at the study's δ, for what it calls a record."""
        options = self.problem.privacy
        return privacy.epsilon(releases, options.delta, privacy.level_of(options))

    def scored(
        self,
        model: Arrays,
        held_out: Sequence[HeldOut],
        steps: int,
        measure: bool = False,
        beliefs: Beliefs | None = None,
        counts: Counts | None = None,
    ) -> Scores:
        """How good a model is on held-out segments.

        Arguments:
            steps: of the windows that are scored on.
            measure: whether to add what the finished model is measured by: sums, and no states.
            beliefs, counts: then also the site's entry in the summary.
        """
        weights, test = self.model(model), self._test_set(held_out, steps)
        if test is None:
            windows, metrics, measured = 0, dict[str, float](), dict[str, NDArray[Any]]()
        else:
            windows = len(test.trajectories)
            metrics = evaluate(self.problem.architecture, weights, test)._asdict()
            measured = {}
        if measure and test is not None:
            measured = measured_sums(bare_model(self.problem, model), test.trajectories)
        table = {}
        if measure and beliefs is not None and counts is not None:
            table = self._table(model, beliefs, held_out, counts)
        return Scores(windows, metrics, measured, table)

    def compare(
        self,
        message: Message,
        arrived: States,
        arrivals: Sequence[tuple[int, int]],
        held_out: Sequence[HeldOut],
    ) -> Message:
        """The answer to a request of the comparison; see `comparison.Holdings`."""
        holdings = comparison.Holdings(self._identity, arrived, arrivals, held_out)
        return comparison.answer(self.problem, message, holdings)

    def warm(self, waiting: int, held_out: Sequence[HeldOut], steps: int) -> None:
        """Have everything compiled before it is asked for.

        Arguments:
            waiting: samples that wait; answers are compiled for these, and for what the policy
                will let come together.
            held_out, steps: what will be scored on.
        """
        problem = self.problem
        for samples in dict.fromkeys((usual_samples(problem, self._identity), waiting)):
            if samples:
                problem.algorithm.warm(problem, samples)
        if held_out:
            first = problem.algorithm.begin(problem)
            self.scored(problem.algorithm.model(problem, first), held_out, steps)

    def _test_set(self, held_out: Sequence[HeldOut], steps: int) -> TestSet | None:
        problem = self.problem
        if not held_out:
            return None
        return site_test_set(
            [one.states for one in held_out],
            steps=steps,
            most=problem.test_trajectories,
            horizon=problem.horizon,
            valid_error=problem.valid_error,
            inputs=problem.architecture.inputs,
        )

    def _table(
        self, model: Arrays, beliefs: Beliefs, held_out: Sequence[HeldOut], counts: Counts
    ) -> dict[str, Any]:
        """The site's entry in the summary, as `runs.results` has it; but no names."""
        site = PreparedSite(
            self.site.name,
            self.sensor,
            beliefs.observation_noise,
            beliefs.process_noise,
            train=(),
            held_out=held_out,  # type: ignore[arg-type]  # may be read one by one
            dropped=(),
        )
        why = "for reasons that the site knows"
        return {
            "train_segments": counts.train,
            "train_samples": counts.samples,
            "held_out_segments": counts.held_out,
            "dropped": [f"{counts.dropped} of its segments, {why}"] if counts.dropped else [],
            "left_out": [f"{counts.left_out:,} samples, {why}"] if counts.left_out else [],
            "observation_noise": np.diag(site.observation_noise).tolist(),
            "process_noise": np.diag(site.process_noise).tolist(),
        } | scores_of(site, bare_model(self.problem, model), self.problem.horizon)
