"""A fleet's certificate files: made, renewed, read, and the warning before they expire.

The authority's key, `ca.key`, is needed only to make certificates, so it may be kept elsewhere.
"""

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedkoopman.deploy.provisioning.signing import (
    LOOPBACK,
    authority,
    matches,
    need_cryptography,
    read_certificate,
    server_certificate,
)
from fedkoopman.durable import write_private
from fedkoopman.errors import InputError, short, system_error
from fedkoopman.paths import shown

NOTICE = timedelta(days=30)
"""How long before a certificate expires the warning begins."""
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


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


def expires(path: Path) -> datetime:
    """When a certificate expires."""
    return read_certificate(read_file(path), str(path)).not_valid_after_utc


def hosts_of(path: Path) -> tuple[str, ...]:
    """The names and addresses that a server's certificate is for."""
    need_cryptography()
    from cryptography import x509

    certificate = read_certificate(read_file(path), str(path))
    kind = x509.SubjectAlternativeName
    return tuple(
        str(name.value) for name in certificate.extensions.get_extension_for_class(kind).value
    )


def warning(path: Path, now: datetime | None = None) -> str:
    """A line about a server's certificate that expires soon, with the remedy; "" otherwise.

    Arguments:
        path: of the certificate, in a fleet's directory.
        now: by default, the current time.
    """
    until = expires(path)
    left = until - (now or datetime.now(UTC))
    if left > NOTICE:
        return ""
    when = f"expired on {until:%Y-%m-%d}"
    if left > timedelta(0):
        when = f"expires on {until:%Y-%m-%d}, in {left.days} days"
    remedy = f"fedkoopman provision STUDY.toml --fleet {shown(path.parent)} --renew"
    return f"the certificate {shown(path)} {when}: renew it with {remedy}, sites need nothing new"


def read_file(path: Path) -> bytes:
    """A file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error


def certify(
    fleet: Path, name: str, hosts: Sequence[str], renew: bool, days: int, now: datetime
) -> list[str]:
    """Make the authority and the server's certificate if they are missing or must change.

    Arguments:
        fleet: the directory.
        name: of the study.
        hosts: that the certificate must name, beside those that it already names.
        renew: whether the server's certificate is renewed in any case.
        days: how long it is valid.
        now: the current time.

    Returns lines about what was made.
    """
    said = []
    ca_key, ca_crt, key, crt = (
        fleet / file for file in ("ca.key", "ca.crt", "server.key", "server.crt")
    )
    if not ca_crt.exists():
        if (fleet / "roster.json").exists():
            raise InputError(
                f"{shown(ca_crt)}, which sites trust, is missing: put it back from a backup"
            )
        made = authority(f"fedkoopman {name}", now)
        # The certificate is written last: if it exists, so does the key.
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
            f"{shown(ca_key)} is missing, and no certificate can be made without it: put it there "
            "while this runs"
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
