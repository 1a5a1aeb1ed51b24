"""A site's answers where the server may see only sums: the steps of `deploy.secure`, kept safe.

A session's secrets live in memory only. A site has one session at a time, and a new one replaces
it; whoever restarts the agent in the middle of a session ends the site's part in it.

In one slot a site helps to open one sum of a kind. A server that was killed may begin the slot
anew, and gets the same sum of the same sites; with other sites, or after another request, it gets
none, since the difference of two sums would show what one site sent. This is remembered on disk.
"""

import hashlib
import json
from collections.abc import Callable, Mapping

from fedkoopman.deploy.secure.masks import SECRET
from fedkoopman.deploy.secure.site_session import Keys, SiteSession, begin
from fedkoopman.deploy.site.store import OPENED, Store
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Mask,
    Masked,
    Offer,
    Offered,
    Share,
    Shared,
    Unmask,
    Unmasked,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message, Schema
from fedkoopman.federation.quantised import layout_of
from fedkoopman.federation.slot import fault_of

__all__ = ["Masking", "SiteMasking", "keys_of"]

Masking = Offer | Share | Mask | Unmask
"""Requests of a session."""


class SiteMasking:
    """Takes part in sessions of secure aggregation."""

    def __init__(
        self,
        site: str,
        identity: int,
        secure: bool,
        schemas: Mapping[str, Schema],
        answer: Callable[[Ask], Answered],
        store: Store,
    ) -> None:
        """Arguments:

        identity: the site's place among all, from 0.
        secure: whether the study has secure aggregation.
        schemas: of all messages that can be asked for.
        answer: the site's answer to a message, not masked.
        """
        self._site, self._place, self._secure = site, str(identity), secure
        self._schemas, self._answer, self._store = schemas, answer, store
        self._session: SiteSession | None = None
        self._slot, self._asked = 0, ("", "")
        """Of the session: its slot, and the kind and digest of what was answered."""

    def refuses(self, message: Message) -> bool:
        """Whether this is asked for in the plain, though the server may see only the sum."""
        schema = self._schemas.get(message.kind)
        reply = self._schemas.get(schema.reply) if schema else None
        return self._secure and reply is not None and reply.additive

    def of(self, request: Masking) -> Offered | Shared | Masked | Unmasked:
        """What the site sends in a step."""
        if not self._secure:
            raise InputError("this study has no secure aggregation: refused")
        site, slot, name = self._site, request.slot, request.session
        session = self._of_session(request)
        match request:
            case Offer():
                return Offered(site, slot, name, b"".join(session.public))
            case Share():
                peers = {place: keys_of(both) for place, both in request.keys.items()}
                self._session, shares = session.share(peers, request.threshold)
                return Shared(site, slot, name, shares)
            case Mask():
                return self._masked(request, session)
            case Unmask():
                after, seeds, keys = session.unmask(request.sent)
                self._note_opened(slot, request.sent)
                self._session = after
                return Unmasked(site, slot, name, seeds, keys)

    def _of_session(self, request: Masking) -> SiteSession:
        known = self._session
        if known is not None and (known.name, self._slot) == (request.session, request.slot):
            return known
        if not isinstance(request, Offer):
            raise InputError(
                f"session {request.session[:40]} of slot {request.slot} is not known here, as it "
                "is over or the agent was restarted: begin a new one"
            )
        if not request.session.isalnum() or len(request.session) > 64:
            raise InputError("a session has a name of letters and digits: refused")
        self._session, self._slot = begin(request.session, self._place), request.slot
        self._asked = "", ""
        return self._session

    def _masked(self, request: Mask, session: SiteSession) -> Masked:
        message, base = request.message, message_digest(request.message)
        if session.sent is not None and session.sent[0] != base:
            raise InputError("another vector was sent under the masks of this session: refused")
        schema = self._schemas.get(message.kind)
        if schema is None or not schema.reply:
            raise InputError(f"there is no request {message.kind[:50]!r}: refused")
        if fault := schema.fault(message):
            raise InputError(f"the server sends {fault}: refused")
        layout = layout_of(self._schemas, message)
        found = self._answer(Ask(request.slot, message))
        if fault := fault_of(self._schemas, message, found.message):
            raise InputError(f"nothing is sent, as this site {fault}")
        vector = layout.encoded(message, found.message, found.samples)
        self._session, words = session.mask(request.shares, base, vector)
        self._asked = layout.kind, base
        return Masked(self._site, request.slot, request.session, base, layout.kind, words)

    def _note_opened(self, slot: int, sent: tuple[str, ...]) -> None:
        """Note that a sum is about to be opened; refused if another one was."""
        kind, base = self._asked
        which = hashlib.sha256(json.dumps([base, sorted(sent)]).encode()).hexdigest()
        last, sums = json.loads(self._store.note(OPENED) or "[0, {}]")
        if slot < last:
            raise InputError(f"sums of slot {last} were opened, so that slot {slot} is over")
        known = sums if slot == last else {}
        if known.get(kind, which) != which:
            raise InputError(
                f"another sum was opened in slot {slot}, and the difference of two would show what "
                "one site sent: refused; these data wait for the next slot"
            )
        self._store.notes(**{OPENED: json.dumps([slot, {**known, kind: which}])})


def keys_of(both: bytes) -> Keys:
    """Two public keys."""
    if len(both) != 2 * SECRET:
        raise InputError("public keys are not of the length of keys: refused")
    return both[:SECRET], both[SECRET:]
