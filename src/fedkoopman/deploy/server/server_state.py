"""What the server must not forget, in one file that is whole or absent.

The run directory is that of a local run: `run.json`, `study.toml`, `records.jsonl`, the checkpoint.
A served run's checkpoint holds more than a model and a slot: for every site, the last slot that has
spent its data, since that is what the site is told and what it drops its data by; and the record of
the slot, which waits for the scores that come with the next round. All of it is one file, so that
no crash can come between two parts of it.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedkoopman.config.study import Study
from fedkoopman.deploy.server.validation import Accepted
from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError, system_error
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.slot import State
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.runs.run_directory import RunDirectory
from fedkoopman.runs.seed_directory import SeedDirectory

FORMAT = 1
STRIKES = 3
"""Rejections in a row after which a site is set aside."""


@dataclass(frozen=True)
class Standing:
    """What the server knows of a site.

    Attributes:
        included: the last slot that has spent its data; 0 if none has.
        heard: the last saved slot that it has answered for, so that it has dropped its data.
        buffered, segments: what waited when it was last asked.
        trained, updates: samples of its accepted updates, and how many those were.
        refused: samples of its updates that were refused.
        rejected, last_rejection: replies that broke a rule, and the last of them.
        strikes: of those, how many since the last accepted update.
        set_aside: the slot since which it is not asked to train; 0 if it is.
        last_seen: when it last answered, as ISO 8601.
        suspect: the slot since which its updates do not count, as the other sites judge them; 0
            while they do.
        trust: what the last record that speaks of its updates says of them.
        owes, owes_base: the slot in which it was first asked for a lasting answer that it has not
            given yet, and the digest of that request; 0 and empty if it owes none.
    """

    included: int = 0
    heard: int = 0
    buffered: int = 0
    segments: int = 0
    trained: int = 0
    updates: int = 0
    refused: int = 0
    rejected: int = 0
    last_rejection: str = ""
    strikes: int = 0
    set_aside: int = 0
    last_seen: str = ""
    suspect: int = 0
    trust: Mapping[str, Any] = field(default_factory=dict)
    owes: int = 0
    owes_base: str = ""

    def accepted(self, slot: int, samples: int, spends: bool = True) -> "Standing":
        """After an answer that is part of a slot's state; `spends`: and has spent its data."""
        after = replace(self, updates=self.updates + 1, strikes=0)
        if not spends:
            return after
        trained = self.trained + samples
        return replace(after, included=slot, buffered=0, segments=0, trained=trained)

    def spent(self, slot: int, samples: int) -> "Standing":
        """After an update that was refused: its data are spent, as in a local run."""
        return replace(self, included=slot, buffered=0, segments=0, refused=self.refused + samples)

    def struck(self, slot: int, reason: str) -> "Standing":
        """After a reply that broke a rule."""
        strikes = self.strikes + 1
        aside = self.set_aside or (slot if strikes >= STRIKES else 0)
        return replace(
            self,
            rejected=self.rejected + 1,
            last_rejection=reason,
            strikes=strikes,
            set_aside=aside,
        )

    def owing(self, slot: int, base: str) -> "Standing":
        """After a lasting request that it did not answer in time; asked anew, it owes that."""
        return self if self.owes_base == base else replace(self, owes=slot, owes_base=base)

    def readmitted(self) -> "Standing":
        """Asked again."""
        return replace(self, strikes=0, set_aside=0)


KNOWN = {one.name for one in fields(Standing)}


@dataclass(frozen=True)
class ServerState:
    """What the next slot needs.

    Attributes:
        slot: the last finished one.
        arrays: the algorithm's state.
        sites: by name.
        updates: norms and sizes of recent accepted updates.
        scores: of these weights; None where they have to be asked for.
        pending: the slot's record, which waits for its scores; None once it is written.
        seconds: how long the run has taken.
    """

    slot: int
    arrays: Arrays
    sites: Mapping[str, Standing] = field(default_factory=dict)
    updates: tuple[Accepted, ...] = ()
    scores: Mapping[str, float | None] | None = None
    pending: Mapping[str, Any] | None = None
    seconds: float = 0.0

    def of(self, site: str) -> Standing:
        """A site's standing; that of a stranger is blank."""
        return self.sites.get(site, Standing())

    def with_sites(self, changes: Mapping[str, Standing]) -> "ServerState":
        """With some sites' standings replaced."""
        return replace(self, sites={**self.sites, **changes})


class ServerDirectory:
    """A served run's directory."""

    def __init__(self, directory: RunDirectory, problem: Problem) -> None:
        self.path = directory.path
        self.study = directory.study
        self._directory = directory
        self._problem = problem
        [seed] = directory.seeds
        self._files: SeedDirectory = directory.of_seed(seed)
        self.untrained: dict[str, Any] = {}
        """Scores of the first model."""
        self.last: dict[str, Any] | None = None
        """The record of the last slot that is scored; all of them are on the disk only."""

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, study: Study, problem: Problem, sites: Sequence[str]
    ) -> Iterator["ServerDirectory"]:
        """Make a run's directory, or take up an old one; nobody else may use it meanwhile.

        Arguments:
            study: what is served; files of its sites are not looked at.
            sites: all that are enrolled, in order.
        """
        with RunDirectory.open(path, study, None, True, sites) as directory:
            yield cls(directory, problem)

    def restore(self) -> ServerState:
        """The last checkpoint's state; of a new run, the untrained model."""
        state, self.untrained, records = self._files.restore()
        self.last = records[-1] if records else None
        if state is None:
            return ServerState(0, self._problem.algorithm.begin(self._problem))
        extra = self._files.extra
        try:
            if extra["format"] != FORMAT:
                raise ValueError(f"format {extra['format']}, not {FORMAT}")
            return ServerState(
                slot=state.slot,
                arrays=state.arrays,
                sites={name: _standing(about) for name, about in extra["sites"].items()},
                updates=tuple(Accepted(*one) for one in extra["updates"]),
                scores=extra["scores"],
                pending=extra["pending"],
                seconds=extra["seconds"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the checkpoint in {self.path} lacks what a served run needs ({error}): serve "
                "with the version of fedkoopman that began it, or choose another --out"
            ) from error

    def save(self, state: ServerState) -> None:
        """Write a checkpoint; when this returns, it outlasts a power cut."""
        extra = {
            "format": FORMAT,
            "sites": {name: dict(vars(standing)) for name, standing in state.sites.items()},
            "updates": [list(one) for one in state.updates],
            "scores": state.scores,
            "pending": state.pending,
            "seconds": round(state.seconds, 3),
        }
        self._files.save(State(state.slot, state.arrays), extra)

    def begin(self, scores: Mapping[str, float | None]) -> None:
        """Keep the scores of the first model."""
        self.untrained = dict(scores)
        self._files.begin(self.untrained)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a scored slot's record."""
        self._files.append(dict(record))
        self.last = dict(record)

    def records(self) -> list[dict[str, Any]]:
        """Of all slots that are scored."""
        path = self._files.path / "records.jsonl"
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise system_error(f"cannot read {path}", error) from error

    def name_sites(self, names: Sequence[str]) -> None:
        """Keep who is meant by the numbers in records."""
        self._directory.name_sites(names)

    def finish(self, model: DeepKoopman, rollout: dict[str, Any], summary: dict[str, Any]) -> None:
        """Write what a finished run leaves; the summary last, as the sign that all is there."""
        self._files.finish(model, rollout, summary)


def server_secret(directory: Path) -> bytes:
    """Of the noise that the server adds; drawn once for a run directory."""
    path = directory / "noise.secret"
    if not path.is_file():
        write_whole(path, os.urandom(64))
        path.chmod(0o600)
    return path.read_bytes()


def _standing(about: Mapping[str, Any]) -> Standing:
    """What a checkpoint says of a site; fields that it does not know yet are blank."""
    return Standing(**{name: value for name, value in about.items() if name in KNOWN})
