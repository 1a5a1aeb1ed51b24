"""A fleet's certificates, made where they are missing and made anew when asked for.

The authority's key is needed for nothing else, so that it may be kept away from the machine.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from fedkoopman.deploy.provisioning.certificates import expires, hosts_of, read_file
from fedkoopman.deploy.provisioning.signing import LOOPBACK, authority, matches, server_certificate
from fedkoopman.durable import write_private
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

__all__ = ["certify", "public_host"]


def certify(
    fleet: Path, name: str, hosts: Sequence[str], renew: bool, days: int, now: datetime
) -> list[str]:
    """Make the authority and the server's certificate where they are missing, or asked for.

    Arguments:
        fleet: the directory.
        name: of the study.
        hosts: that the certificate has to be for, beside those that it was for.
        renew: whether it is made anew in any case.
        days: how long it holds.
        now: the present.
    """
    said = []
    ca_key, ca_crt, key, crt = (
        fleet / file for file in ("ca.key", "ca.crt", "server.key", "server.crt")
    )
    if not ca_crt.exists():
        if (fleet / "roster.json").exists():
            raise InputError(
                f"{shown(ca_crt)} is missing, which sites trust: put it back from a backup"
            )
        made = authority(f"fedkoopman {name}", now)
        # The certificate last: with it, both are there.
        write_private(ca_key, made[0])
        write_private(ca_crt, made[1])
        said.append(
            f"made {shown(ca_crt)}: the fleet's own authority, until {expires(ca_crt):%Y-%m-%d}"
        )
    whole = key.exists() and crt.exists() and matches(read_file(key), read_file(crt))
    before = hosts_of(crt) if crt.exists() else ()
    if whole and not renew and set(hosts) <= set(before):
        return said
    if not ca_key.exists():
        raise InputError(
            f"{shown(ca_key)} is not there, without which no certificate is made: put it there for "
            "as long as this takes"
        )
    names = list(dict.fromkeys((*LOOPBACK, *before, *hosts)))
    made = server_certificate(read_file(ca_key), read_file(ca_crt), names, now, days)
    write_private(key, made[0])
    write_private(crt, made[1])
    said.append(f"made {shown(crt)}: for {', '.join(names)}, until {expires(crt):%Y-%m-%d}")
    if before:
        said.append("reload the proxy and restart serve to use it; sites need nothing new")
    return said


def public_host(fleet: Path) -> str:
    """The first name or address by which other machines reach the server, for HOST:PORT."""
    crt = fleet / "server.crt"
    found = [host for host in hosts_of(crt) if host not in LOOPBACK] if crt.exists() else []
    host = found[0] if found else "127.0.0.1"
    return f"[{host}]" if ":" in host else host
