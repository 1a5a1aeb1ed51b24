"""A site's part in comparing the finished model with what it should beat (`runs.comparison`).

What a site learns alone takes as long as its share of the run, and may take longer than the server
waits for an answer. So the last reply is kept, and given at once when the server asks again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.intake import Intake
from fedkoopman.deploy.wire import Answered, Ask, message_digest
from fedkoopman.errors import InputError
from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.federation.messages import Schema

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

__all__ = ["SiteComparison"]


class SiteComparison:
    """Answers the requests of the comparison, after the last slot."""

    def __init__(
        self,
        site: str,
        slots: int,
        work: "Work",
        schemas: Mapping[str, Schema],
        buffer: Buffer,
        intake: Intake,
    ) -> None:
        """Arguments:

        slots: of the study.
        schemas: of the comparison's messages.
        """
        self._site, self._slots, self._work, self.schemas = site, slots, work, schemas
        self._buffer, self._intake = buffer, intake
        self._last: Answered | None = None

    def knows(self, request: Ask) -> bool:
        """Whether this is a request of the comparison."""
        schema = self.schemas.get(request.message.kind)
        return schema is not None and bool(schema.reply)

    def of(self, request: Ask) -> Answered:
        """The answer; the kept one, if the same is asked again."""
        if request.slot != self._slots:
            raise InputError(
                f"models are compared after slot {self._slots}, not {request.slot}: refused"
            )
        if fault := self.schemas[request.message.kind].fault(request.message):
            raise InputError(f"the server sends {fault}: refused")
        base = message_digest(request.message)
        if self._last is None or self._last.base != base:
            history = self._buffer.history(self._slots)
            held = self._intake.catalogue.held_out()
            message = self._work.compare(request.message, history.segments, history.arrivals, held)
            samples = sum(map(kept_samples, history.segments))
            self._last = Answered(self._site, request.slot, base, samples, message)
        return self._last
