"""What a site computes on request: answers and scores, by the functions of the local engine.

The same model, data, seed and slot give the same bytes here as in `fedkoopman run`. `SiteAnswers`
keeps an answer that spends data, and `HeldOutScores` the scores of the last model, so that a
repeated request is answered without computing again.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.data.estimator import Estimator
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.catalogue import Counts, HeldOutSegments
from fedkoopman.deploy.site.intake import Intake
from fedkoopman.deploy.site.privacy import PrivacyAccount
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    decode_replies,
    digest_of,
    encode_replies,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.evaluation import Metrics, TestSet, evaluate, site_test_set
from fedkoopman.federation.algorithm import Asked
from fedkoopman.federation.guard.judging import SEGMENTS
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.slot import answer, parts_of, usual_samples
from fedkoopman.federation.streams import subseed
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.results import bare_model, measured_sums, scores_of
from fedkoopman.runs.site_preparation import PreparedSite
from fedkoopman.systems import System

ANSWERS = 8
"""Different requests that spend data which a site answers in one slot."""


class Work:
    """One site's share in a study."""

    def __init__(self, study: Study, identity: int, clients: int, system: System) -> None:
        """Arguments:

        identity: the site's place among all, from 0.
        clients: how many there are.
        system: what is observed.
        """
        self.problem = problem_of(study, study.seed, clients, system)
        self.schemas = self.problem.algorithm.messages(self.problem)
        self._identity = identity
        self.probability = self.problem.probability(identity)
        """p_n of this site."""

    def check_request(self, message: Message) -> Schema:
        """The schema of a request of the algorithm; a message that is none is refused."""
        schema = self.schemas.get(message.kind)
        if schema is None or not schema.reply:
            known = [kind for kind, one in self.schemas.items() if one.reply]
            raise InputError(
                f"there is no request {message.kind[:50]!r}: this study's algorithm has "
                f"{', '.join(known)}"
            )
        if fault := schema.fault(message):
            raise InputError(f"the server sends {fault}: refused")
        return schema

    def answer(
        self, slot: int, message: Message, states: Sequence[NDArray[np.float64]], secret: int = 0
    ) -> Message:
        """The algorithm's answer, from segments in the order in which they arrived.

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

    def test_set(self, held_out: HeldOutSegments) -> TestSet | None:
        """On what the site scores; no more is read than that takes."""
        problem, lengths = self.problem, held_out.lengths
        if not lengths:
            return None
        steps, windows, needed = min(problem.steps, min(lengths) - 1), 0, 0
        while needed < len(lengths) and windows < problem.test_trajectories:
            windows += len(range(0, lengths[needed] - steps, steps))
            needed += 1
        return site_test_set(
            [one.states for one in held_out[:needed]],
            steps=steps,
            most=problem.test_trajectories,
            horizon=problem.horizon,
            valid_error=problem.valid_error,
            inputs=problem.architecture.inputs,
        )

    def score(self, model: Arrays, test: TestSet) -> Metrics:
        """How good a model is on the site's windows."""
        return evaluate(self.problem.architecture, self.model(model), test)

    def sums(self, model: Arrays, test: TestSet) -> dict[str, NDArray[Any]]:
        """What the site adds to the finished model's reference and noise: sums, and no states."""
        return measured_sums(bare_model(self.problem, model), test.trajectories)

    def table(
        self, model: Arrays, estimator: Estimator, held_out: HeldOutSegments, counts: Counts
    ) -> dict[str, Any]:
        """The site's entry in the summary, as `runs.results` has it; but no names."""
        site = PreparedSite(
            estimator.site.name,
            estimator.sensor,
            estimator.beliefs.observation_noise,
            estimator.beliefs.process_noise,
            train=(),
            held_out=held_out,  # type: ignore[arg-type]  # read one by one
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

    def warm(self, waiting: int, test: TestSet | None) -> None:
        """Have everything compiled before it is asked for.

        Arguments:
            waiting: samples that wait; answers are compiled for these, and for what the policy
                will let come together.
            test: what will be scored on.
        """
        problem = self.problem
        for samples in dict.fromkeys((usual_samples(problem, self._identity), waiting)):
            if samples:
                problem.algorithm.warm(problem, samples)
        if test is not None:
            first = problem.algorithm.begin(problem)
            self.score(problem.algorithm.model(problem, first), test)


class SiteAnswers:
    """Answers from what was counted for a slot, and keeps what spends data."""

    def __init__(
        self,
        site: str,
        work: Work,
        buffer: Buffer,
        intake: Intake,
        envelope: Envelope,
        account: PrivacyAccount,
    ) -> None:
        self._site, self._work, self._buffer, self._envelope = site, work, buffer, envelope
        self._intake, self._account = intake, account

    def of(self, request: Ask) -> Answered:
        """The answer that is asked for: the kept one or, to another message, a new one."""
        schema = self._work.check_request(request.message)
        if not schema.spends:
            return self._answered(request, self._states(schema, request.slot))
        base, kept = message_digest(request.message), self._buffer.kept(request.slot)
        if kept is not None and kept.base == base:
            with suppress(InputError):  # kept by another version: computed again
                (reply,) = decode_replies(kept.reply)[1]
                assert isinstance(reply, Answered)
                return replace(reply, slot=request.slot)  # it may be kept from an earlier one
        if kept is not None and kept.trainings >= ANSWERS:
            raise InputError(
                f"{ANSWERS} different requests were answered in slot {request.slot}: a slot has "
                "one, see why the server sends others"
            )
        answered = self._answered(request, self._states(schema, request.slot))
        self._buffer.keep(request.slot, base, encode_replies(self._envelope, [answered]))
        return answered

    def _states(self, schema: Schema, slot: int) -> list[NDArray[np.float64]]:
        """The segments that a request is answered from."""
        if schema.data == "none":
            return []
        if schema.data == "held-out":
            return [one.states for one in self._intake.catalogue.held_out()[:SEGMENTS]]
        return self._buffer.arrived(slot) if schema.data == "arrived" else self._buffer.states(slot)

    def _answered(self, request: Ask, states: list) -> Answered:
        base, samples = message_digest(request.message), sum(map(kept_samples, states))
        secret = 0
        if self._account.mode != "none":
            self._account.check(request.message, parts_of(self._work.problem, states))
            secret = self._account.secret(request.slot, base)
        message = self._work.answer(request.slot, request.message, states, secret)
        self._account.record(request.slot, base, message)
        return Answered(self._site, request.slot, base, samples, message)


class HeldOutScores:
    """Scores models, the same one only once."""

    def __init__(self, site: str, work: Work, intake: Intake) -> None:
        self._site, self._work, self._intake = site, work, intake
        self._test: tuple[int, TestSet | None] = (-1, None)
        self._last: tuple[tuple[str, bool, int], Evaluated] | None = None

    def test_set(self) -> TestSet | None:
        """On what the site scores; made anew when there is more."""
        held = self._intake.catalogue.held_out()
        if self._test[0] != len(held):
            self._test = len(held), self._work.test_set(held)
        return self._test[1]

    def of(self, request: Evaluate) -> Evaluated:
        """What a request asks for: means and counts, and no names."""
        base, held = digest_of(request.model), self._intake.catalogue.held_out()
        key = base, request.measure, len(held)
        if self._last is None or self._last[0] != key:
            self._last = key, self._computed(request, base)
        return replace(self._last[1], slot=request.slot)

    def _computed(self, request: Evaluate, base: str) -> Evaluated:
        model = request.model
        self._work.model(model)  # refused if it is none of this study's
        test, intake = self.test_set(), self._intake
        found = Evaluated(self._site, request.slot, base, 0, {})
        if test is not None:
            metrics = self._work.score(model, test)._asdict()
            found = replace(found, windows=len(test.trajectories), metrics=metrics)
        if request.measure and test is not None:
            found = replace(found, measured=self._work.sums(model, test))
        if request.measure and intake.estimator is not None:
            held, counts = intake.catalogue.held_out(), intake.catalogue.counts()
            found = replace(found, scores=self._work.table(model, intake.estimator, held, counts))
        return found
