"""From a site's files to states in its store.

A file is complete when it has not changed for some seconds. That is measured with a monotonic
clock, and a file's modification time is compared only with its own earlier value: so it does not
matter if the machine's clock jumps.

With drawn arrivals, all that was recorded when the site joined is read once, exactly as
`fedkoopman run` reads it; in which slot which segment arrives is drawn later. Files that come or
change afterwards are reported and left out. For live arrivals see `deploy.site.live`.
"""

import glob
import hashlib
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path

import numpy as np

from fedkoopman.config.parts import sensor_for, site_files, system_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.beliefs import Beliefs, Knowledge
from fedkoopman.data.estimator import Estimator, estimator_of
from fedkoopman.data.segments import segments
from fedkoopman.data.triage import Estimated, triage
from fedkoopman.deploy.site.catalogue import Catalogue, Entry, Made, Stamp
from fedkoopman.deploy.site.store import Store
from fedkoopman.errors import ComputationError, system_error
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.survey.survey import survey
from fedkoopman.systems import System

LOG = logging.getLogger("fedkoopman.agent")
_BELIEFS = tuple(f.name for f in fields(Beliefs))
PATIENCE = 0.05
"""Seconds between two looks at files that are not settled."""
CHANGED = "changed after it was taken: its segments stay as they were, new rows belong in new files"
GONE = "is gone since it was taken: its segments stay"
LATE = (
    'came after the recordings were read, which are all that sites.arrivals = "drawn" takes: use '
    '"live"'
)
UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".crdownload", ".swp", "~")
"""Endings of files that are still being written."""


class Intake(ABC):
    """What a site has recorded, on its way into the store."""

    def __init__(self, site: SiteFile, study: Study, store: Store, settle: float = 2.0) -> None:
        """Arguments:

        site, study: what to read, and what for.
        store: where states are kept.
        settle: seconds for which a file must not have changed.
        """
        self.site, self.study, self.store = site, study, store
        self.system: System = site_system(study, site)
        self.sensor: Sensor = sensor_for(site, self.system.dim)
        self.catalogue = Catalogue(store)
        self.settling = Settling(settle)
        self.catalogue.drop_unfinished()
        self.known = self.catalogue.files()
        self.estimator: Estimator | None = None
        self._looked_at: dict[str, Stamp] = {}

    @abstractmethod
    def scan(self) -> bool:
        """Look at the files, take in what there is to take, and tell whether anything changed."""

    def notice(self, found: dict[str, Path]) -> bool:
        """See what became of files that were looked at before, and tell whether it is new.

        Arguments:
            found: the files that are there, by their names in the store.
        """
        return any([self._notice(key, found) for key in list(self.known)])

    def _notice(self, key: str, found: dict[str, Path]) -> bool:
        entry = self.known[key]
        if entry.state != "taken":
            if key not in found:  # set aside, and gone: as if it had never been
                del self.known[key]
            return False
        stamp = stamp_of(found[key]) if key in found else None
        reason = entry.reason
        if stamp is None:
            reason = GONE
        elif stamp == entry.stamp:
            reason = ""
        elif self._looked_at.get(key) != stamp:
            self._looked_at[key] = stamp
            reason = "" if content_digest(found[key]) == entry.digest else CHANGED
        if reason == entry.reason:
            return False
        if reason:
            LOG.warning("%s %s", key, reason)
        self.catalogue.remark(key, reason)
        self.known[key] = replace(entry, reason=reason)
        return True

    def aside(self) -> dict[str, str]:
        """Files that are left out, with the reasons; and what happened to those that were taken."""
        return {path: entry.reason for path, entry in self.known.items() if entry.reason}

    def remember_noise(self, estimator: Estimator, samples: int) -> None:
        """Keep an estimator's noise and initial state, so that they are the same after a restart.

        Arguments:
            samples: on how many it rests.
        """
        self.estimator = estimator
        noise = {
            "of": self._noise_key,
            "samples": samples,
            **{name: getattr(estimator.beliefs, name).tolist() for name in _BELIEFS},
        }
        self.store.notes(noise=json.dumps(noise))

    def remembered_noise(self) -> tuple[Estimator, int] | None:
        """The estimator with the noise that was kept, and the samples on which that rests; None if
        none was, or the site file has changed."""
        noise = json.loads(self.store.note("noise") or "{}")
        if noise.get("of") != self._noise_key:
            return None
        beliefs = Beliefs(*(np.array(noise[name], float) for name in _BELIEFS))
        estimator = Estimator(self.study, self.system, self.sensor, self.site, beliefs)
        return estimator, int(noise["samples"])

    @property
    def _noise_key(self) -> str:
        site = self.site
        given = (site.noise, site.sensor, site.initial, site.data.scale, site.data.shift)
        return repr((*given, _BELIEFS))  # what an older version kept is not all of them


class Drawn(Intake):
    """All that was recorded, read once."""

    def prepare(self, progress: Callable[[int, int], None] = lambda *_: None) -> None:
        """Read everything, unless that was done; a run that was cut off is taken up again.

        Arguments:
            progress: called with the segments that are done, and how many there are.
        """
        if self.store.note("recorded") is None:
            while not self._read(self._settled(), progress):
                LOG.warning("files changed while they were read: reading them anew")
        remembered = self.remembered_noise()
        if remembered is not None:
            self.estimator = remembered[0]
        else:
            LOG.warning(
                "%s has changed since its data were read: they stay as they are; to read them "
                "anew, move the state directory away and join again",
                shown(self.site.path),
            )

    def scan(self) -> bool:
        """Tell of files that came, changed or went too late; nothing is taken."""
        found = {file_key(self.site, path): path for path in candidates(self.site)}
        changed = self.notice(found)
        for key, path in found.items():
            stamp = stamp_of(path)
            if key not in self.known and stamp is not None:
                LOG.warning("%s %s", key, LATE)
                self.catalogue.set_aside(key, stamp, LATE)
                self.known[key] = Entry(stamp, "", "aside", LATE)
                changed = True
        return changed

    def _settled(self) -> dict[Path, Stamp]:
        """The site's files, once none of them changes."""
        while True:
            files = self.site.files()
            found = self.settling.settled(files)
            if len(found) == len(files):
                return found
            time.sleep(PATIENCE)

    def _read(self, files: dict[Path, Stamp], progress: Callable[[int, int], None]) -> bool:
        """Read all files; whether they stayed the same meanwhile."""
        stamps = json.dumps([[file_key(self.site, p), *stamp] for p, stamp in files.items()])
        if self.store.note("reading") != stamps:
            self.catalogue.clear()
            self.store.notes(reading=stamps, noise="{}")
        facts = survey(self.site, float(self.system.dt)).segments
        held = dict.fromkeys(one.name for one in facts if one.held_out)
        remembered = self.remembered_noise()
        if remembered is None:
            known = Knowledge(self.site, self.sensor, list(held))
            self.remember_noise(estimator_of(self.study, self.system, known), 0)
        else:
            self.estimator = remembered[0]
        done = self.catalogue.count()  # whole files
        stream = islice(segments(self.site, float(self.system.dt)), done, None)
        current = ""
        assert self.estimator is not None
        for result in self.estimator(stream):
            path, name = result.segment.file, result.segment.name
            made = made_of(self.study, result, name, name in held)
            key = file_key(self.site, path)
            if key != current:
                if current:
                    self.catalogue.finish(current, deliver=False)
                self.catalogue.begin(key, files[path], content_digest(path))
                current = key
            self.catalogue.add(key, made)
            done += 1
            progress(done, len(facts))
        if current:
            self.catalogue.finish(current, deliver=False)
        if any(stamp_of(path) != stamp for path, stamp in files.items()):
            self.store.notes(reading="")
            return False
        if not self.catalogue.counts().train:
            raise ComputationError(
                f"{self.site.name} has no segment to train on; dropped: "
                f"{'; '.join(self.catalogue.dropped()[:3])}: run fedkoopman check, and mend "
                f"{shown(self.site.path)}"
            )
        self.store.notes(recorded=stamps)
        self.known = self.catalogue.files()
        return True


def made_of(study: Study, found: Estimated, name: str, held_out: bool) -> Made:
    """A segment as the store keeps it."""
    fate = triage(study, found, held_out)
    return Made(name, fate.kind, fate.reason, fate.states, fate.observations)


def site_system(study: Study, site: SiteFile) -> System:
    """The study's system, as a site alone sees it; what does not fit the site is refused.

    Other sites' files are elsewhere, so that the study is made one of this site only.
    """
    files = (str(site.path.absolute()),)
    alone = Study.from_dict(
        {"system": study.system, "sites": {"files": files}, "clients": {"count": 1}}, study.folder
    )
    system = system_of(alone)
    site_files(alone, system)
    return system


class Settling:
    """Remembers since when files have not changed."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._seen: dict[Path, tuple[Stamp, float]] = {}

    def settled(self, files: Iterable[Path]) -> dict[Path, Stamp]:
        """The files that have not changed for long enough, in their order."""
        now, seen, found = self._clock(), dict[Path, tuple[Stamp, float]](), dict[Path, Stamp]()
        for path in files:
            stamp = stamp_of(path)
            if stamp is None:
                continue
            before, since = self._seen.get(path, (stamp, now))
            seen[path] = stamp, since if before == stamp else now
            if now - seen[path][1] >= self._seconds:
                found[path] = stamp
        self._seen = seen
        return found

    @property
    def unsettled(self) -> int:
        """How many files may still be changing."""
        now = self._clock()
        return sum(now - since < self._seconds for _, since in self._seen.values())


def candidates(site: SiteFile) -> list[Path]:
    """The files that match a site's patterns and are not being written, in the order of `files`."""
    found: dict[str, Path] = {}
    for pattern in site.data.files:
        for name in sorted(glob.glob(pattern, root_dir=site.folder, recursive=True)):
            path = site.folder / name
            hidden = path.name.startswith((".", "~", "#"))
            if not hidden and not path.name.lower().endswith(UNFINISHED) and path.is_file():
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def stamp_of(path: Path) -> Stamp | None:
    """Size and modification time; None if there is no such file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return Stamp(about.st_size, about.st_mtime_ns)


def content_digest(path: Path) -> str:
    """The sha256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise system_error(f"cannot read {shown(path)}", error) from error


def file_key(site: SiteFile, path: Path) -> str:
    """A file's name in the store: relative to the site's folder, if it is below."""
    try:
        name = path.relative_to(site.folder).as_posix()
    except ValueError:
        name = str(path)
    return name.encode("utf-8", "backslashreplace").decode()
