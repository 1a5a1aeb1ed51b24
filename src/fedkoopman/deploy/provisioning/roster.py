"""The roster of a fleet: which sites may take part, their public keys, and which were revoked.

A site's identity is its place in the roster, from 0. Places are never reused. A running server
reads the file again and again, so it is always replaced whole.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedkoopman.config.tables import SiteName
from fedkoopman.durable import write_private
from fedkoopman.errors import InputError, short, system_error, unknown_name

FILE = "roster.json"
FORMAT = 1
BACKUP = "put it back from a backup"


@dataclass(frozen=True)
class Enrolled:
    """An enrolled site.

    Attributes:
        name: of the site.
        identity: its place in the roster.
        public_key: in OpenSSH's form; empty in an insecure fleet.
        added: when, as ISO 8601 in UTC.
        revoked: when, or empty.
    """

    name: str
    identity: int
    public_key: str
    added: str
    revoked: str = ""


@dataclass(frozen=True)
class Roster:
    """All sites that were ever enrolled, in their order.

    Attributes:
        digest: of the study that kits were last made for.
        secure: whether sites have keys; without keys a fleet is for one machine.
        sites: by identity.
    """

    digest: str
    secure: bool = True
    sites: tuple[Enrolled, ...] = field(default=())

    @classmethod
    def load(cls, fleet: Path) -> "Roster":
        """Read a fleet's roster."""
        path = fleet / FILE
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"there is no {path}: make the fleet with fedkoopman provision, or name its "
                "directory with --fleet"
            ) from None
        except OSError as error:
            raise system_error(f"cannot read {path}", error) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged: {BACKUP}") from error
        return _read(table, path)

    def save(self, fleet: Path) -> None:
        """Replace a fleet's roster."""
        table = {
            "format": FORMAT,
            "study": self.digest,
            "secure": self.secure,
            "sites": [vars(site) for site in self.sites],
        }
        text = json.dumps(table, indent=1, ensure_ascii=False) + "\n"
        write_private(fleet / FILE, text.encode())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sites, also of revoked ones."""
        return tuple(site.name for site in self.sites)

    @property
    def active(self) -> tuple[Enrolled, ...]:
        """Sites that may take part."""
        return tuple(site for site in self.sites if not site.revoked)

    def site(self, name: str) -> Enrolled:
        """A site by its name."""
        for site in self.sites:
            if site.name == name:
                return site
        raise unknown_name("site", name, self.names)

    def add(self, name: str, public_key: str, when: str) -> "Roster":
        """The roster with one more site, in the next place."""
        check_names([*self.names, name])
        if self.secure != bool(public_key):
            raise InputError(f"site {name} {'lacks' if self.secure else 'has'} a key: give one")
        return replace(self, sites=(*self.sites, Enrolled(name, len(self.sites), public_key, when)))

    def taken_back(self, name: str, public_key: str, when: str) -> "Roster":
        """The roster with a revoked site enrolled again, in its old place and with a new key."""
        gone = self.site(name)
        if not gone.revoked:
            raise InputError(f"site {name} is not revoked: it takes part with the kit that it has")
        if self.secure and public_key in ("", gone.public_key):
            raise InputError(f"site {name} needs a new key: the old one was revoked")
        again = replace(gone, public_key=public_key, added=when, revoked="")
        return replace(self, sites=tuple(again if one is gone else one for one in self.sites))

    def revoke(self, name: str, when: str) -> "Roster":
        """The roster with a site revoked; the site keeps its place."""
        gone = self.site(name)
        if gone.revoked:
            raise InputError(f"site {name} was revoked already, on {gone.revoked}: nothing to do")
        sites = [replace(one, revoked=when) if one is gone else one for one in self.sites]
        return replace(self, sites=tuple(sites))


class RosterFile:
    """The roster in a fleet's directory, read again when its file has changed."""

    def __init__(self, fleet: Path) -> None:
        self._fleet = fleet
        self._known: tuple[tuple[int, int, int], Roster] | None = None

    def read(self) -> Roster:
        """The roster; the same object while the file is the same."""
        try:
            about = (self._fleet / FILE).stat()
        except OSError:
            return Roster.load(self._fleet)
        stamp = (about.st_mtime_ns, about.st_ino, about.st_size)
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, Roster.load(self._fleet)
        return self._known[1]


def check_names(names: Sequence[str]) -> None:
    """Refuse invalid names, and names that a file system may not distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        SiteName().read(name, "a site's name")
        alike = unicodedata.normalize("NFC", name).casefold()
        if alike in seen:
            other = f", as {seen[alike]!r} and {name!r}" * (seen[alike] != name)
            raise InputError(f"two sites are called {name!r}{other}: give every site its own name")
        seen[alike] = name


def _read(table: Any, path: Path) -> Roster:
    damaged = InputError(f"{path} is damaged: {BACKUP}")
    if not isinstance(table, dict) or "format" not in table:
        raise damaged
    if table["format"] != FORMAT:
        raise InputError(
            f"{path} was written in format {short(table['format'])}, this is format {FORMAT}: use "
            "the version of fedkoopman that made it"
        )
    try:
        sites = tuple(Enrolled(**site) for site in table["sites"])
        roster = Roster(table["study"], table["secure"], sites)
    except (KeyError, TypeError) as error:
        raise damaged from error
    texts = [roster.digest]
    for i, site in enumerate(sites):
        texts += [site.name, site.public_key, site.added, site.revoked]
        if site.identity != i or bool(site.public_key) != roster.secure:
            raise damaged
    if type(roster.secure) is not bool or not all(isinstance(text, str) for text in texts):
        raise damaged
    check_names(roster.names)
    return roster
