"""`fedkoopman provision`: make a fleet's directory, add and revoke sites, renew certificates.

    done = provision(Path("study.toml"), ["lab-a", "lab-b"], hosts=["learn.example.org"])
    done.said, done.codes

The directory is the only state. Kits and codes are written first, the roster last: every site in
the roster has a kit, and a call that was killed can be repeated. Private node keys are only in the
sealed kits.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fedkoopman.config.loader import read_toml
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.certificates import (
    SERVER_DAYS,
    certify,
    need_cryptography,
    public_host,
    warning,
)
from fedkoopman.deploy.provisioning.fleet_directory import FleetDirectory
from fedkoopman.deploy.provisioning.kit_content import check_servable, shared_files
from fedkoopman.deploy.provisioning.proxy import (
    PUBLIC_PORT,
    SERVER_PORT,
    nginx_conf,
    service_files,
    write_services,
)
from fedkoopman.deploy.provisioning.roster import Roster, check_names
from fedkoopman.errors import InputError, short
from fedkoopman.paths import shown

_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


@dataclass(frozen=True)
class Provisioned:
    """What a call did.

    Attributes:
        study: that the fleet is for.
        fleet: the directory.
        roster: as it is now.
        said: lines about what was made.
        codes: unlock codes of new kits, by site.
        server: HOST:PORT as sites reach it.
    """

    study: Study
    fleet: Path
    roster: Roster
    server: str
    said: tuple[str, ...]
    codes: dict[str, str] = field(default_factory=dict)


def shared_study(path: Path) -> Study:
    """Read a study for a federation; its site files are on other machines, and not read."""
    study = Study.from_dict(read_toml(path), path.absolute().parent)
    if not study.sites.files:
        raise InputError(
            f"{path} names no sites.files: name a site file per site, which need not be on this "
            'machine, as files = ["lab-a/site.toml", "lab-b/site.toml"]'
        )
    check_servable(study, period=1.0)  # the period is an option of serve
    return study


def check_host(text: str) -> str:
    """A host name or address in its normal form; anything else is refused."""
    name = text.strip().lower()
    try:
        return str(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    labels = name.removesuffix(".").split(".")
    looks_numeric = labels[-1].isdigit()  # such as 10.0.0.300, which is no address
    if len(name) > 253 or looks_numeric or not all(_LABEL.fullmatch(one) for one in labels):
        raise InputError(
            f"--host is {short(text)}: give a name such as learn.example.org or an address such as "
            "192.0.2.7, without a port"
        )
    return ".".join(labels)


def provision(
    path: Path,
    sites: Sequence[str] | None = None,
    *,
    fleet: Path | None = None,
    hosts: Sequence[str] = (),
    insecure: bool = False,
    revoke: Sequence[str] = (),
    renew: bool = False,
    days: int = SERVER_DAYS,
    now: datetime | None = None,
) -> Provisioned:
    """Make a fleet, or bring one up to date.

    Arguments:
        sites: names of sites to enrol, also of revoked ones that come back; None takes them from
            the study's site files, if they are on this machine and neither revoke nor renew is
            given; those that were revoked stay so.
        fleet: the directory; `fleet` beside the study by default.
        hosts: names and addresses by which sites reach the server.
        insecure: no keys and no TLS, for one machine.
        revoke: sites that may no longer take part.
        days: for which a new certificate is valid.
    """
    study, now = shared_study(path), now or datetime.now(UTC)
    shared = shared_files(study)
    wanted = [check_host(host) for host in hosts]
    check_names(sites or ())
    if insecure and (renew or wanted):
        raise InputError(
            "--insecure is for one machine, without certificates: leave out --host and --renew"
        )
    place = FleetDirectory(fleet or path.absolute().parent / "fleet")
    with place.locked():
        roster = place.roster() or Roster(study.digest(), not insecure)
        if insecure and roster.secure:
            raise InputError(f"the fleet in {place.path} has keys: leave out --insecure")
        known = _named_by_files(study)
        if sites is None and not (revoke or renew):
            gone = [site.name for site in roster.sites if site.revoked]
            sites = [name for name in known if name not in gone]
        _check_agreement(sites, known, roster, study)
        for name in revoke:
            roster.site(name)
        said: list[str] = []
        if roster.secure:
            need_cryptography()
            said += certify(place.path, study.name, wanted, renew, days, now)
        roster, lines = _revoked(roster, revoke, place, now)
        said += lines
        if not place.issued_for(shared):
            study.check(sites=False)
            roster, lines = place.reissued(roster, study, shared)
            said += lines
        roster, codes, lines = place.enrolled(roster, study, shared, sites or (), now)
        said += lines
        server = f"{public_host(place.path)}:{PUBLIC_PORT if roster.secure else SERVER_PORT}"
        if roster.secure:
            texts = {"nginx.conf": nginx_conf(place.path)}
            texts |= service_files(place.path, path.absolute(), server, SERVER_PORT)
            said += [
                f"wrote {shown(place.path / name)}" for name in write_services(place.path, texts)
            ]
            said += [line for line in [warning(place.path / "server.crt", now)] if line]
    return Provisioned(study, place.path, roster, server, tuple(said), codes)


def _named_by_files(study: Study) -> tuple[str, ...]:
    """Names of the study's sites, in order; empty unless all of their files are on this machine."""
    paths = [study.root / file for file in study.sites.files]
    if not all(path.is_file() for path in paths):
        return ()
    return tuple(SiteFile.load(path).name for path in paths)


def _check_agreement(
    sites: Sequence[str] | None, known: Sequence[str], roster: Roster, study: Study
) -> None:
    """Refuse sites that do not match the study's site files."""
    if sites is None or not sites:
        if sites is not None and not roster.sites:
            raise InputError(
                f"no sites are named, and the site files of {study.name} are not on this machine: "
                "give --sites NAME,NAME"
            )
        return
    order = [*roster.names, *(name for name in sites if name not in roster.names)]
    expected = list(known[: len(order)])
    if expected and order[: len(expected)] != expected:
        raise InputError(
            f"the sites would be {', '.join(order)} but sites.files names {', '.join(known)}, and "
            "sites are known by their order: give --sites in that order, or correct sites.files"
        )


def _revoked(
    roster: Roster, names: Sequence[str], place: FleetDirectory, now: datetime
) -> tuple[Roster, list[str]]:
    said = []
    for name in names:
        if roster.site(name).revoked:
            said.append(f"{name} was revoked already")
            continue
        roster = roster.revoke(name, now.isoformat(timespec="seconds"))
        roster.save(place.path)
        place.forget(name)
        said.append(f"revoked {name}: a running server shuts it out within seconds")
    return roster, said
