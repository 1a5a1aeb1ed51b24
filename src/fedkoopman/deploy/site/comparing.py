"""A site's part in comparing the finished model with what it should beat (`runs.comparison`).

What a site learns alone takes as long as its share of the run, and may take longer than the server
waits for an answer. So the last reply is kept, and given at once when the server asks again.
"""

from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.intake import Intake
from fedkoopman.deploy.wire import Answered, Ask, message_digest
from fedkoopman.errors import InputError
from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.federation.algorithm import Problem
from fedkoopman.runs.comparison import Holdings, answer, schemas

__all__ = ["SiteComparison"]


class SiteComparison:
    """Answers the requests of the comparison, after the last slot."""

    def __init__(
        self, site: str, identity: int, problem: Problem, buffer: Buffer, intake: Intake
    ) -> None:
        """Arguments: identity: the site's place among all, from 0."""
        self._site, self._identity, self._problem = site, identity, problem
        self._buffer, self._intake = buffer, intake
        self.schemas = schemas(problem)
        self._last: Answered | None = None

    def knows(self, request: Ask) -> bool:
        """Whether this is a request of the comparison."""
        schema = self.schemas.get(request.message.kind)
        return schema is not None and bool(schema.reply)

    def of(self, request: Ask) -> Answered:
        """The answer; the kept one, if the same is asked again."""
        if request.slot != self._problem.slots:
            raise InputError(
                f"models are compared after slot {self._problem.slots}, not {request.slot}: refused"
            )
        if fault := self.schemas[request.message.kind].fault(request.message):
            raise InputError(f"the server sends {fault}: refused")
        base = message_digest(request.message)
        if self._last is None or self._last.base != base:
            holdings = self._holdings()
            message = answer(self._problem, request.message, holdings)
            samples = sum(map(kept_samples, holdings.arrived))
            self._last = Answered(self._site, request.slot, base, samples, message)
        return self._last

    def _holdings(self) -> Holdings:
        history = self._buffer.history(self._problem.slots)
        held = self._intake.catalogue.held_out()
        return Holdings(self._identity, history.segments, history.arrivals, held)
