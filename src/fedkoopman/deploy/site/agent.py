"""The site agent: it alone touches a site's data, and answers a closed list of requests.

`agent_process` runs it as a process, which leaves what needs JAX to another one (`worker`).

It owns the data folder, the store and the ledger, and has computed
what it is asked for. Whoever reaches its
socket can ask for what stands in `deploy.wire` and nothing else: how much waits, an answer of the
study's algorithm, scores. Every message is checked, limited in rate and size, and logged; every
answer is in the ledger before it leaves.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.certificates import need_cryptography
from fedkoopman.deploy.provisioning.kit_content import check_servable
from fedkoopman.deploy.site.ledger import Ledger
from fedkoopman.deploy.site.site_socket import Rate
from fedkoopman.deploy.site.store import Store, StoreError, now
from fedkoopman.deploy.site.worker import WorkerFailed
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Mask,
    Offer,
    Poll,
    Polled,
    Refused,
    Reply,
    Request,
    Share,
    Unmask,
    decode_requests,
    encode_replies,
)
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.version import NUMERICS, __version__

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

LOG = logging.getLogger("fedkoopman.agent")
RATE, BURST = 20.0, 40
"""Messages per second, and how many at once after a rest."""


class Agent:
    """A site's side of a study; threads may share it, one message is answered at a time."""

    def __init__(
        self,
        site: SiteFile,
        study: Study,
        identity: int,
        clients: int,
        state: Path,
        *,
        work: "Work | None" = None,
        settle: float = 2.0,
        agreed: Callable[[], str] = lambda: "",
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Open the site's store; with drawn arrivals, all that was recorded is read first.

        Arguments:
            site, study: what the site has, and what it takes part in.
            identity: its place among all sites, from 0.
            work: what computes; None: this process does.
            settle: seconds for which a file must not have changed before it is read.
            agreed: tells why the site does not consent to the study, or nothing; it is asked before
                every answer.
            progress: called with the segments that are read, and how many there are.
        """
        check_servable(study, period=1.0)
        if study.aggregation.secure:
            need_cryptography()
        self.site, self.study, self._agreed = site.name, study, agreed
        self.envelope = Envelope(study.seeded_digest())
        self._turn = threading.Lock()
        self._over = False
        """Whether it was told that the study is finished."""
        self._rate = Rate(RATE, BURST)
        self.times = {"started": now(), "last_intake": "", "last_request": ""}
        self.store = Store(state)  # before JAX is loaded, as it may be refused
        try:
            if self.store.begin_study(self.envelope.study):
                LOG.warning("a new study: data and slots of the one before are forgotten")
            self.ledger = Ledger(self.store)
            if work is None:
                from fedkoopman.deploy.site.work import Work

                work = Work(site, study, identity, clients)
            self.work = work
            self._prepare(site, identity, settle, progress)
        except BaseException:
            self.store.close()
            raise

    def _prepare(
        self,
        site: SiteFile,
        identity: int,
        settle: float,
        progress: Callable[[int, int], None],
    ) -> None:
        """Load what is needed, and read what was recorded."""
        from fedkoopman.deploy.site.answers import HeldOutScores, SiteAnswers
        from fedkoopman.deploy.site.buffer import Buffer
        from fedkoopman.deploy.site.comparing import SiteComparison
        from fedkoopman.deploy.site.intake import Drawn, Intake
        from fedkoopman.deploy.site.live import Live
        from fedkoopman.deploy.site.masking import SiteMasking
        from fedkoopman.deploy.site.mqtt import Receiver
        from fedkoopman.deploy.site.privacy import PrivacyAccount
        from fedkoopman.federation.arrivals import succeeded
        from fedkoopman.federation.slot import looks_again

        study, live = self.study, self.study.sites.arrivals == "live"
        facts = self.work.facts()
        self.intake: Intake
        self.receiver: Receiver | None = None
        if site.mqtt.host and not live:
            raise InputError(
                f'{site.path} has [mqtt], but the study has sites.arrivals = "drawn", which takes '
                'only what was recorded before: ask for a study with "live", or remove the section'
            )
        if live:
            self.intake = Live(site, study, self.store, self.work, settle)
            if site.mqtt.host:
                self.receiver = Receiver(site, self.store, facts.dt)
        else:
            self.intake = drawn = Drawn(site, study, self.store, self.work, settle)
            drawn.prepare(progress)
        chance = facts.probability
        self.buffer = Buffer(
            self.store,
            None if live else lambda slot: succeeded(study.seed, slot, identity, chance),
            repeat=study.sites.repeat and not live,
            keep=looks_again(facts.schemas),
            lasting=any(one.lasting for one in facts.schemas.values()),
        )
        self.account = PrivacyAccount(
            self.store, self.work, facts.privacy, self.envelope.study, site.privacy.limit
        )
        self.ledger.about = self.account.words
        self._answers = SiteAnswers(
            site.name, self.work, facts.schemas, self.buffer, self.intake, self.envelope,
            self.account,
        )  # fmt: skip
        self._scores = HeldOutScores(study, site.name, self.work, self.intake)
        self.comparison = SiteComparison(
            site.name, study.slots, self.work, facts.comparison, self.buffer, self.intake
        )
        schemas = {**facts.schemas, **facts.comparison}
        secure = study.aggregation.secure
        self._masking = SiteMasking(
            site.name, identity, secure, schemas, self._answered, self.store
        )

    def __enter__(self) -> "Agent":
        """The agent itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the store, and of what computes."""
        with self._turn:
            self.store.close()
            self.work.close()

    def scan(self) -> bool:
        """Look for new files, and tell whether there was anything new."""
        changed = self.intake.scan()
        if changed:
            self.times["last_intake"] = now()
        return changed

    def warm(self) -> None:
        """Have everything compiled before it is asked for."""
        self._scores.warm(self.buffer.account().buffered)

    def answer(self, body: bytes, peer: str) -> bytes:
        """Answer one message; the answer is in the ledger before it is returned."""
        if not self._rate.allows():
            self.ledger.count_refusal()
            reason = f"more than {RATE:g} messages a second: wait a little, and ask again"
            return encode_replies(self.envelope, [Refused(self.site, reason)])
        return self.exchange(body, peer)

    def exchange(self, body: bytes, peer: str) -> bytes:
        """As `answer`, for who need not be limited."""
        with self._turn:
            self.times["last_request"] = now()
            replies = self._replies(body)
            try:
                answer = encode_replies(self.envelope, replies)
                self.ledger.write(peer, replies, answer)
            except (InputError, StoreError) as error:
                LOG.error("nothing is sent: %s", error)
                replies = [self._refused(error)]
                answer = encode_replies(self.envelope, replies)
                self.ledger.write(peer, replies, answer)
            return answer

    def status(self) -> dict[str, Any]:
        """What a person wants to know of the agent."""
        account, counts = self.buffer.account(), self.intake.catalogue.counts()
        return {
            "site": self.site,
            "study": self.envelope.study,
            "version": __version__,
            **self.times,
            "buffered": account.buffered,
            "segments": account.segments,
            "delivered": account.delivered,
            "trained": account.trained,
            "unacknowledged": account.unacknowledged,
            "acknowledged": int(self.store.note("acknowledged") or 0),
            "recorded": counts.train,
            "held_out": counts.held_out,
            "dropped": self.intake.catalogue.dropped()[-100:],
            "secure": self.study.aggregation.secure,
            "left_out": self.intake.catalogue.left_out()[-100:],
            "not_settled": self.intake.settling.unsettled,
            "set_aside": self.intake.aside(),
            **(self.receiver.status() if self.receiver else {}),
            **self.account.told(),
        }

    def _replies(self, body: bytes) -> list[Reply]:
        try:
            envelope, requests = decode_requests(body)
            self._check(envelope)
        except InputError as error:
            LOG.warning("refused a message of %d bytes: %s", len(body), error)
            return [self._refused(error)]
        return [self._reply(request) for request in requests]

    def _check(self, envelope: Envelope) -> None:
        if envelope.version != NUMERICS:
            raise InputError(
                f"the server has fedkoopman {envelope.version} and {self.site} has {NUMERICS}: "
                "install the same version on both sides"
            )
        if envelope.study != self.envelope.study:
            raise InputError(
                f"the server runs study {envelope.study[:12]}… but {self.site} agreed to "
                f"{self.envelope.study[:12]}…: give the site the kit of this study"
            )
        if reason := self._agreed():
            raise InputError(reason)

    def _reply(self, request: Request) -> Reply:
        """Do what is asked, or tell why not; nothing that is asked ends the agent."""
        began = time.monotonic()
        kind = type(request).__name__.lower()
        try:
            reply = self._done(request)
        except (InputError, ComputationError) as error:
            LOG.warning("%s of slot %d is refused: %s", kind, request.slot, error)
            return self._refused(error)
        except Exception as error:
            LOG.exception("%s of slot %d failed", kind, request.slot)
            what = error.kind if isinstance(error, WorkerFailed) else type(error).__name__
            return self._refused(f"it failed there ({what}): see the agent's log")
        LOG.info("%s of slot %d in %.3f s", kind, request.slot, time.monotonic() - began)
        return reply

    def _done(self, request: Request) -> Reply:
        last = self.study.slots
        if request.slot > last or not (request.slot or isinstance(request, Evaluate | Acknowledge)):
            raise InputError(f"there is no slot {request.slot}: the study has 1 to {last}")
        match request:
            case Poll() if reason := self.account.stopped():
                raise InputError(reason)
            case Poll():
                counted = self.buffer.poll(request.slot)
                return Polled(self.site, request.slot, counted.samples, counted.segments)
            case Ask() if self._masking.refuses(request.message):
                raise InputError(
                    f"{request.message.kind!r} is asked for in the plain, but this study has "
                    "secure aggregation: only sums leave the sites"
                )
            case Ask() if self.comparison.knows(request) and self.account.mode == "site":
                raise InputError("sums of states do not leave a site that protects its records")
            case Ask():
                return self._answered(request)
            case Offer() | Share() | Mask() | Unmask():
                return self._masking.of(request)
            case Evaluate():
                return self._scores.of(request)
            case Acknowledge():
                told = self.buffer.acknowledge(request.slot, request.included)
                if told:
                    LOG.info("%s", told)
                if request.slot == last and not self._over:
                    self._over = True
                    LOG.info("the study is finished: nothing more is asked of this site")
                return Acknowledged(self.site, request.slot)

    def _answered(self, request: Ask) -> Answered:
        """The answer to a message of the comparison, or of the study's algorithm."""
        if self.comparison.knows(request):
            return self.comparison.of(request)
        return self._answers.of(request)

    def _refused(self, reason: object) -> Refused:
        # Where its files lie is nobody else's business.
        text = str(reason).replace(str(self.store.path), "the site's store")
        text = " ".join(text.split())[:1000]
        return Refused(self.site, "".join(c if c.isprintable() else "?" for c in text))
