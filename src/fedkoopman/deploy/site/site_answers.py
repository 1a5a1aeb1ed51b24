"""A site's answers to the algorithm's requests; what spends data is computed once and kept."""

from contextlib import suppress

from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.work import Work
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Envelope,
    decode_replies,
    encode_replies,
    message_digest,
)
from fedkoopman.errors import InputError

ANSWERS = 8
"""Different requests that spend data which a site answers in one slot."""


class SiteAnswers:
    """Answers from what was counted for a slot, and keeps what spends data."""

    def __init__(self, site: str, work: Work, buffer: Buffer, envelope: Envelope) -> None:
        """Arguments:

        site: its name.
        work: what computes.
        buffer: what was counted, and where answers are kept.
        envelope: with which answers are kept.
        """
        self._site, self._work, self._buffer, self._envelope = site, work, buffer, envelope

    def of(self, request: Ask) -> Answered:
        """The answer that is asked for: the kept one or, to another message, a new one."""
        schema = self._work.check_request(request.message)
        if not schema.spends:
            states = self._buffer.arrived(request.slot) if schema.data == "arrived" else []
            return self._answered(request, states)
        base, kept = message_digest(request.message), self._buffer.kept(request.slot)
        if kept is not None and kept.base == base:
            with suppress(InputError):  # kept by another version: computed again
                (reply,) = decode_replies(kept.reply)[1]
                assert isinstance(reply, Answered)
                return reply
        if kept is not None and kept.trainings >= ANSWERS:
            raise InputError(
                f"{ANSWERS} different requests were answered in slot {request.slot}: a slot has "
                "one, see why the server sends others"
            )
        answered = self._answered(request, self._buffer.states(request.slot))
        self._buffer.keep(request.slot, base, encode_replies(self._envelope, [answered]))
        return answered

    def _answered(self, request: Ask, states: list) -> Answered:
        message = self._work.answer(request.slot, request.message, states)
        base, samples = message_digest(request.message), sum(map(len, states))
        return Answered(self._site, request.slot, base, samples, message)
