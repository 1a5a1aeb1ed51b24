"""Live arrivals: a complete file's segments arrive when it does, each of them once.

A file counts when it has not changed for some seconds and does not bear the name of an unfinished
one. It is taken whole: what is appended to it later is told of and left out, so a recorder writes a
new file for what is new. A file that cannot be read is set aside with the reason, and tried again
when it changes. A file of the same content under another name is not taken twice.
"""

import json
from pathlib import Path

from fedkoopman.data.filter_beliefs import ENOUGH, Beliefs
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import holds_out
from fedkoopman.deploy.site.catalogue import Entry, Stamp
from fedkoopman.deploy.site.intake import (
    LOG,
    Intake,
    candidates,
    content_digest,
    file_key,
    made_of,
    names_of,
    stamp_of,
)
from fedkoopman.deploy.site.store import StoreError
from fedkoopman.deploy.site.worker import WorkerFailed
from fedkoopman.errors import InputError


class Live(Intake):
    """Files that come one after the other."""

    def __init__(self, *arguments: object, **more: object) -> None:
        """As of `Intake`; files that were set aside are tried again, once."""
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self._tried: set[str] = set()
        self._stems = {Path(k).stem: k for k, e in self.known.items() if e.state == "taken"}

    def scan(self) -> bool:
        """Take what is complete, and tell whether anything changed."""
        paths = candidates(self.site)
        found = {file_key(self.site, path): path for path in paths}
        changed = [self.notice(found)]
        for path, stamp in self.settling.settled(paths).items():
            key = file_key(self.site, path)
            entry = self.known.get(key)
            if entry is None or (
                entry.state == "aside" and (entry.stamp != stamp or key not in self._tried)
            ):
                self._tried.add(key)
                changed.append(self._take(key, path, stamp))
        return any(changed)

    def _take(self, key: str, path: Path, stamp: Stamp) -> bool:
        """Take a file in, or set it aside."""
        try:
            digest = content_digest(path)
            other = self.catalogue.taken_as(digest)
            if other is not None:
                raise InputError(f"holds what {other} holds, which was taken: not counted twice")
            beliefs = self._beliefs_for(path)
            self.catalogue.begin(key, stamp, digest)
            self._read(key, path, beliefs)
            if stamp_of(path) != stamp:
                self.catalogue.set_aside(key, stamp, "changed while it was read")
                self._tried.discard(key)  # and so it is read again
                self.known.pop(key, None)
                return False
            samples = self.catalogue.finish(key, deliver=True)
        except StoreError:
            raise
        except Exception as error:  # whatever a file holds, the agent goes on without it
            reason = " ".join(str(error).split()) or "cannot be read"
            if not isinstance(error, InputError | WorkerFailed):
                reason = f"{type(error).__name__}: {reason}"
            LOG.warning("%s is set aside: %s", key, reason)
            self.catalogue.set_aside(key, stamp, reason)
            self.known[key] = Entry(stamp, "", "aside", reason)
            return True
        LOG.info("%s is taken: %d samples to train on", key, samples)
        self.known[key] = Entry(stamp, digest, "taken", "")
        self._stems.setdefault(path.stem, key)
        return True

    def _read(self, key: str, path: Path, beliefs: Beliefs) -> None:
        first = self.catalogue.count()
        stem = self._stem(key, path)
        wanted = self.site.data.held_out
        found = self.work.estimated(beliefs, [str(path.absolute())], 0)
        for place, result in enumerate(found, first):
            self._check_channels(result.segment)
            names = names_of(result.segment, path, stem)
            held = holds_out(wanted, place, names)
            self.catalogue.add(key, made_of(self.study, result, names[0], held))

    def _stem(self, key: str, path: Path) -> str:
        """The file's name without suffix, or all of it if another file has that one."""
        return path.stem if self._stems.get(path.stem, key) == key else key

    def _check_channels(self, segment: Segment) -> None:
        """All files of a site are seen by one sensor."""
        first = json.loads(self.store.note("channels") or "null")
        if first is None:
            self.store.notes(channels=json.dumps(segment.channels))
        elif list(segment.channels) != first:
            raise InputError(
                f"has the columns {', '.join(segment.channels)} but files before had "
                f"{', '.join(first)}: choose by data.columns"
            )

    def _beliefs_for(self, path: Path) -> Beliefs:
        """Noise and initial state. What the site has to find out comes from the first files, anew
        each time that there are twice as many samples, until there are enough."""
        remembered = self.remembered_noise()
        noise, initial = self.site.noise, self.site.initial
        auto = "auto" in (noise.observation, noise.process, initial.mean, initial.cov)
        samples = self.catalogue.counts().samples
        if remembered is not None:
            self.beliefs, rests_on = remembered
            if not auto or rests_on >= ENOUGH or samples < 2 * rests_on:
                return self.beliefs
        there = {file_key(self.site, p): p for p in candidates(self.site)}
        good = [p for k, p in there.items() if k in self.known and self._unchanged(k, p)]
        files = [str(p.absolute()) for p in (*good, path)]
        held, count = self.work.first_held_out(files)
        beliefs = self.work.learn(files, held)
        self.remember_noise(beliefs, count)
        return beliefs

    def _unchanged(self, key: str, path: Path) -> bool:
        return self.known[key].state == "taken" and self.known[key].stamp == stamp_of(path)
