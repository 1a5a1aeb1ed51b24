"""A site's updates of a model, each trained once however often it is asked for."""

from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.work import Work
from fedkoopman.deploy.wire import (
    Envelope,
    Train,
    Trained,
    decode_replies,
    encode_replies,
    model_digest,
)
from fedkoopman.errors import InputError

__all__ = ["TRAININGS", "SiteUpdates"]

TRAININGS = 8
"""Models that a site trains in one slot."""


class SiteUpdates:
    """Trains on what was counted for a slot, and keeps what came of it."""

    def __init__(self, site: str, work: Work, buffer: Buffer, envelope: Envelope) -> None:
        """Arguments:

        site: its name.
        work: what computes.
        buffer: what was counted, and where updates are kept.
        envelope: with which replies are kept.
        """
        self._site, self._work, self._buffer, self._envelope = site, work, buffer, envelope

    def of(self, request: Train) -> Trained:
        """The update that is asked for: the kept one or, of another model, a new one."""
        base = model_digest(request.model)
        kept = self._buffer.kept(request.slot)
        if kept is not None and kept.base == base:
            (reply,) = decode_replies(kept.reply)[1]
            assert isinstance(reply, Trained)
            return reply
        if kept is not None and kept.trainings >= TRAININGS:
            raise InputError(
                f"{TRAININGS} models were trained in slot {request.slot}: a slot has one, see why "
                "the server sends others"
            )
        weights = self._work.weights(request.model)
        states = self._buffer.states(request.slot)
        update = self._work.train(request.slot, weights, states)
        trained = Trained(self._site, request.slot, base, sum(map(len, states)), update)
        self._buffer.keep(request.slot, base, encode_replies(self._envelope, [trained]))
        return trained
