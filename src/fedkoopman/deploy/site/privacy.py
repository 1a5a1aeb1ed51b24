"""A site's own account of its privacy, over the whole life of its data.

Every private answer is one row in the store, written before the answer leaves. Rows outlast the
study that they belong to: the next study trains on the same data. An answer to the same request in
the same slot is the same answer, noise included, and is one row.

Noise comes from a secret that is drawn once per store and never leaves it. What a store that was
restored from a backup has forgotten, its account has forgotten too: the ledger of the lost store is
then all there is.
"""

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.deploy.site.store import Store, now
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message
from fedkoopman.federation.options import PrivacyOptions
from fedkoopman.federation.privacy import Release, level_of, release_of, secret_number

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

__all__ = ["PrivacyAccount"]

STOPPED = "privacy_budget"
"""The note of a study in which the budget was found to be spent: the budget."""


class PrivacyAccount:
    """What a site has released, and whether it may release more."""

    def __init__(
        self, store: Store, work: "Work", options: PrivacyOptions, study: str, budget: float
    ) -> None:
        """Arguments:

        work: computes ε.
        options: the study's.
        study: digest and seed.
        budget: ε at the study's δ; infinite for no limit.
        """
        self._store, self._work, self._options = store, work, options
        self._study, self._budget = study, budget
        self._epsilon: tuple[tuple[Release, ...], float] = ((), 0.0)

    @property
    def mode(self) -> str:
        """The study's."""
        return self._options.mode

    def secret(self, slot: int, base: str) -> int:
        """Of the noise in an answer; others cannot guess it, and the same question gets the same.

        Arguments:
            base: digest of the message that is answered. Two different ones must not get the same
                noise, or their difference would have none.
        """
        with self._store.writing() as c:
            c.execute("INSERT OR IGNORE INTO secrets VALUES ('noise', ?)", (os.urandom(64),))
            ((value,),) = c.execute("SELECT value FROM secrets WHERE name = 'noise'")
        return secret_number(bytes(value), self._study, slot, base)

    def check(self, request: Message, segments: Sequence[NDArray[np.float64]]) -> None:
        """Refuse what would exceed the budget; from then on the site takes no part."""
        if self.mode == "none" or not math.isfinite(self._budget):
            return
        if self._work.over_budget(request, segments, self.releases(), self._budget):
            self._store.notes(**{STOPPED: repr(self._budget)})
        if reason := self.stopped():
            raise InputError(reason)

    def stopped(self) -> str:
        """Why the site takes part no more; empty if it does."""
        if self.mode == "none" or self._store.note(STOPPED) != repr(self._budget):
            return ""
        return (
            f"its privacy budget, ε = {self._budget:g}, is spent: it takes part no more, unless "
            "its owner allows more (privacy.budget in its site file)"
        )

    def record(self, slot: int, base: str, reply: Message) -> None:
        """Write down what an answer releases, before it leaves."""
        one = release_of(self._options, reply)
        if one is None:
            return
        with self._store.writing() as c:
            c.execute(
                "INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (self._study, slot, base, one.rate, one.noise, one.steps, one.level, now()),
            )

    def releases(self) -> list[Release]:
        """All that ever left this store with noise."""
        with self._store.looking() as c:
            rows = c.execute(
                "SELECT rate, noise, sum(steps), level FROM releases "
                "GROUP BY rate, noise, level ORDER BY rate, noise, level"
            ).fetchall()
        return [Release(rate, noise, steps, level) for rate, noise, steps, level in rows]

    def epsilon(self) -> float:
        """ε of all of it, at the study's δ, for what the study calls a record."""
        found = tuple(self.releases())
        if self._epsilon[0] != found:
            self._epsilon = found, self._work.epsilon(found)
        return self._epsilon[1]

    def words(self) -> str:
        """For the ledger: what is spent so far; empty in studies without privacy."""
        if self.mode == "none":
            return ""
        delta, record = self._options.delta, level_of(self._options)
        return f"ε = {self.epsilon():.4g} so far at δ = {delta:g}, for one {record}"

    def told(self) -> dict[str, Any]:
        """For the site's status; empty in studies without privacy."""
        if self.mode == "none":
            return {}
        with self._store.looking() as c:
            ((trainings,),) = c.execute("SELECT count(*) FROM releases")
        spent = self.epsilon()
        return {
            "privacy": self.words(),
            "epsilon": spent if math.isfinite(spent) else None,
            "private_trainings": int(trainings),
            "privacy_budget": f"{self._budget:g}" if math.isfinite(self._budget) else "none",
            "privacy_stopped": self.stopped(),
        }
