"""Live arrivals: a complete file's segments arrive when it does, each of them once.

A file counts when it has not changed for some seconds and does not bear the name of an unfinished
one. It is taken whole: what is appended to it later is told of and left out, so a recorder writes a
new file for what is new. A file that cannot be read is set aside with the reason, and tried again
when it changes. A file of the same content under another name is not taken twice.
"""

import glob
import json
from dataclasses import replace
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.beliefs import ENOUGH, Knowledge
from fedkoopman.data.estimator import Estimator, estimator_of
from fedkoopman.data.segments import Segment, segments
from fedkoopman.data.triage import holds_out
from fedkoopman.deploy.site.catalogue import Entry, Stamp
from fedkoopman.deploy.site.intake import (
    LOG,
    Intake,
    candidates,
    content_digest,
    file_key,
    made_of,
    stamp_of,
)
from fedkoopman.deploy.site.store import StoreError
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
            estimator = self._estimator_for(path)
            self.catalogue.begin(key, stamp, digest)
            self._read(key, path, estimator)
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
            if not isinstance(error, InputError):
                reason = f"{type(error).__name__}: {reason}"
            LOG.warning("%s is set aside: %s", key, reason)
            self.catalogue.set_aside(key, stamp, reason)
            self.known[key] = Entry(stamp, "", "aside", reason)
            return True
        LOG.info("%s is taken: %d samples to train on", key, samples)
        self.known[key] = Entry(stamp, digest, "taken", "")
        self._stems.setdefault(path.stem, key)
        return True

    def _read(self, key: str, path: Path, estimator: Estimator) -> None:
        first = self.catalogue.count()
        stem = self._stem(key, path)
        stream = segments(_only(self.site, [path]), float(self.system.dt))
        wanted = self.site.data.held_out
        for place, result in enumerate(estimator(stream), first):
            self._check_channels(result.segment)
            names = _names(result.segment, path, stem)
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

    def _estimator_for(self, path: Path) -> Estimator:
        """The site's estimator. What it has to find out comes from the first files, anew each
        time that there are twice as many samples, until there are enough."""
        remembered = self.remembered_noise()
        noise, initial = self.site.noise, self.site.initial
        auto = "auto" in (noise.observation, noise.process, initial.mean, initial.cov)
        samples = self.catalogue.counts().samples
        if remembered is not None:
            self.estimator, rests_on = remembered
            if not auto or rests_on >= ENOUGH or samples < 2 * rests_on:
                return self.estimator
        there = {file_key(self.site, p): p for p in candidates(self.site)}
        good = [p for k, p in there.items() if k in self.known and self._unchanged(k, p)]
        site = _only(self.site, [*good, path])
        held, count = self._first_held_out(site)
        made = estimator_of(self.study, self.system, Knowledge(site, self.sensor, held))
        estimator = replace(made, site=self.site)
        self.remember_noise(estimator, count)
        return estimator

    def _unchanged(self, key: str, path: Path) -> bool:
        return self.known[key].state == "taken" and self.known[key].stamp == stamp_of(path)

    def _first_held_out(self, site: SiteFile) -> tuple[list[str], int]:
        """Which of the first segments are not to be learned from, and the samples of the others,
        as far as noise is estimated from them."""
        held, count = list[str](), 0
        for place, segment in enumerate(segments(site, float(self.system.dt))):
            names = _names(segment, segment.file, segment.file.stem)
            if holds_out(site.data.held_out, place, (*names, segment.name)):
                held.append(segment.name)
            else:
                count += len(segment.observations)
            if count >= ENOUGH:
                break
        return held, count


def _names(segment: Segment, path: Path, stem: str) -> tuple[str, ...]:
    """A segment's name that no other file changes, that of its uncut segment, and its label."""
    base, _, number = segment.name.rpartition(".") if segment.cut else (segment.name, "", "")
    label = base.removeprefix(f"{path.stem}:")
    whole = stem if label == path.stem else f"{stem}:{label}"
    return (f"{whole}.{number}" if segment.cut else whole), whole, label


def _only(site: SiteFile, paths: list[Path]) -> SiteFile:
    """The site as if it had only these files."""
    patterns = tuple(glob.escape(str(path.absolute())) for path in paths)
    return replace(site, data=replace(site.data, files=patterns))
