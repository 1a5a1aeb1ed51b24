"""How good a model is on what a site holds out."""

from dataclasses import replace

from fedkoopman.deploy.site.intake import Intake
from fedkoopman.deploy.site.work import Work
from fedkoopman.deploy.wire import Evaluate, Evaluated, digest_of
from fedkoopman.evaluation import TestSet


class HeldOutScores:
    """Scores models, the same one only once."""

    def __init__(self, site: str, work: Work, intake: Intake) -> None:
        """Arguments:

        site: its name.
        work: what computes.
        intake: what was held out.
        """
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
