"""A site's answers and scores, each computed once.

`SiteAnswers` keeps an answer that spends data, and `HeldOutScores` the scores of the last model, so
that a repeated request is answered without computing again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.catalogue import HeldOutSegments
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
from fedkoopman.federation.messages import HELD_OUT, Message, Schema

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

__all__ = ["ANSWERS", "HeldOutScores", "SiteAnswers"]

ANSWERS = 8
"""Different requests that spend data which a site answers in one slot."""


class SiteAnswers:
    """Answers from what was counted for a slot, and keeps what spends data."""

    def __init__(
        self,
        site: str,
        work: "Work",
        schemas: Mapping[str, Schema],
        buffer: Buffer,
        intake: Intake,
        envelope: Envelope,
        account: PrivacyAccount,
    ) -> None:
        """Arguments:

        schemas: of the algorithm's messages.
        """
        self._site, self._work, self._schemas = site, work, schemas
        self._buffer, self._intake = buffer, intake
        self._envelope, self._account = envelope, account

    def of(self, request: Ask) -> Answered:
        """The answer that is asked for: the kept one or, to another message, a new one."""
        schema = self._check(request.message)
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

    def _check(self, message: Message) -> Schema:
        """The schema of a request of the algorithm; a message that is none is refused."""
        schema = self._schemas.get(message.kind)
        if schema is None or not schema.reply:
            known = [kind for kind, one in self._schemas.items() if one.reply]
            raise InputError(
                f"there is no request {message.kind[:50]!r}: this study's algorithm has "
                f"{', '.join(known)}"
            )
        if fault := schema.fault(message):
            raise InputError(f"the server sends {fault}: refused")
        return schema

    def _states(self, schema: Schema, slot: int) -> list[NDArray[np.float64]]:
        """The segments that a request is answered from."""
        if schema.data == "none":
            return []
        if schema.data == "held-out":
            return [one.states for one in self._intake.catalogue.held_out()[:HELD_OUT]]
        return self._buffer.arrived(slot) if schema.data == "arrived" else self._buffer.states(slot)

    def _answered(self, request: Ask, states: list[NDArray[np.float64]]) -> Answered:
        base, samples = message_digest(request.message), sum(map(kept_samples, states))
        secret = 0
        if self._account.mode != "none":
            self._account.check(request.message, states)
            secret = self._account.secret(request.slot, base)
        message = self._work.answer(request.slot, request.message, states, secret)
        self._account.record(request.slot, base, message)
        return Answered(self._site, request.slot, base, samples, message)


class HeldOutScores:
    """Scores models, the same one only once."""

    def __init__(self, study: Study, site: str, work: "Work", intake: Intake) -> None:
        self._study, self._site, self._work, self._intake = study, site, work, intake
        self._last: tuple[tuple[str, bool, int], Evaluated] | None = None

    def of(self, request: Evaluate) -> Evaluated:
        """What a request asks for: means and counts, and no names."""
        base, held = digest_of(request.model), self._intake.catalogue.held_out()
        key = base, request.measure, len(held)
        if self._last is None or self._last[0] != key:
            self._last = key, self._computed(request, base, held)
        return replace(self._last[1], slot=request.slot)

    def warm(self, waiting: int) -> None:
        """Have everything compiled before it is asked for.

        Arguments:
            waiting: samples that wait.
        """
        held = self._intake.catalogue.held_out()
        steps, needed = self._needed(held.lengths)
        self._work.warm(waiting, held[:needed], steps)

    def _computed(self, request: Evaluate, base: str, held: HeldOutSegments) -> Evaluated:
        intake, measure = self._intake, request.measure
        steps, needed = self._needed(held.lengths)
        found = self._work.scored(
            request.model,
            held if measure else held[:needed],
            steps,
            measure,
            intake.beliefs if measure else None,
            intake.catalogue.counts() if measure else None,
        )
        windows, metrics, measured, table = found
        return Evaluated(
            self._site, request.slot, base, windows, metrics, measured=measured, scores=table
        )

    def _needed(self, lengths: list[int]) -> tuple[int, int]:
        """Steps of the windows that are scored on, and how many segments are needed for them."""
        if not lengths:
            return 0, 0
        steps, windows, needed = min(self._study.segments.steps, min(lengths) - 1), 0, 0
        while needed < len(lengths) and windows < self._study.evaluation.trajectories:
            windows += len(range(0, lengths[needed] - steps, steps))
            needed += 1
        return steps, needed
