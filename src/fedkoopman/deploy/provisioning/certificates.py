"""A fleet's certificates as they are read: for whom, until when, and the warning before they end.

`signing` makes them. The library `cryptography` is loaded where it is needed and not before.
"""

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fedkoopman.errors import InputError, short, system_error
from fedkoopman.paths import shown

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "check_host",
    "expires",
    "hosts_of",
    "need_cryptography",
    "read_certificate",
    "read_file",
    "warning",
]

NOTICE = timedelta(days=30)
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


def need_cryptography() -> None:
    """Say in one line what to install, if the library is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InputError(
            "keys and certificates need the library cryptography, which is not installed: "
            "pip install 'fedkoopman[deploy]'"
        ) from error


def check_host(text: str) -> str:
    """A host's name or address in its normal form; anything else is refused."""
    name = text.strip().lower()
    try:
        return str(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    labels = name.removesuffix(".").split(".")
    looks_numeric = labels[-1].isdigit()  # as 10.0.0.300, which is no address
    if len(name) > 253 or looks_numeric or not all(_LABEL.fullmatch(one) for one in labels):
        raise InputError(
            f"--host is {short(text)}: give a name such as learn.example.org or an address such as "
            "192.0.2.7, without a port"
        )
    return ".".join(labels)


def expires(path: Path) -> datetime:
    """Until when a certificate holds."""
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
    """A line about a server's certificate that ends soon, with the remedy; empty if it does not.

    Arguments:
        path: of the certificate, in a fleet's directory.
        now: the present by default.
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


def read_certificate(content: bytes, name: str) -> "x509.Certificate":
    """A certificate from PEM, the first if there are several.

    Arguments:
        content: the file's.
        name: of the file, for messages.
    """
    need_cryptography()
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InputError(f"{name} holds no certificate: put it back from a backup") from error


def read_file(path: Path) -> bytes:
    """A file's content; whatever hinders is told in one line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
