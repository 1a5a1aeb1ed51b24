"""A fleet's keys and certificates: made, renewed, read, and the warning before they expire.

The authority belongs to the fleet and signs only the server's certificate. Sites trust no other
authority, so that no public one can vouch for a false server. Its key, `ca.key`, is needed only to
make certificates, so it may be kept elsewhere. A site proves its identity by a node key (ECDSA
P-256, in OpenSSH's form; kits of earlier versions have P-384); the public half is in the roster.

The library `cryptography` is imported only when it is needed.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fedkoopman.durable import write_private
from fedkoopman.errors import InputError, system_error
from fedkoopman.paths import shown

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

NOTICE = timedelta(days=30)
"""How long before a certificate expires the warning begins."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of the server on its own machine."""
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
"""What a key may be used for, in the order of X.509."""
_EARLIER = timedelta(days=1)
"""Certificates are valid from a day before now, as sites' clocks may be hours behind."""


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
    """A line about a server's certificate that expires soon, with the remedy; "" otherwise."""
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
        name: of the study.
        hosts: that the certificate must name, beside those that it already names.
        renew: whether the server's certificate is renewed in any case.

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


def need_cryptography() -> None:
    """Raise an error that says what to install, if the library is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InputError(
            "keys and certificates need the library cryptography, which is not installed: "
            "pip install 'fedkoopman[deploy]'"
        ) from error


def authority(name: str, now: datetime, days: int = AUTHORITY_DAYS) -> tuple[bytes, bytes]:
    """A new authority: its private key and its certificate, as PEM."""
    need_cryptography()
    from cryptography import x509

    key, subject = _new_key(), _named(name)
    parts = {
        x509.BasicConstraints(ca=True, path_length=0): True,
        _usage("key_cert_sign", "crl_sign"): True,
    }
    until = now + timedelta(days=days)
    return _pem(key), _certificate(key, subject, key, subject, now, until, parts)


def server_certificate(
    ca_key: bytes, ca_crt: bytes, hosts: Sequence[str], now: datetime, days: int = SERVER_DAYS
) -> tuple[bytes, bytes]:
    """A new key for the server, and its certificate by the authority, as PEM.

    It expires no later than the authority does.

    Arguments:
        hosts: names and addresses by which sites reach the server; loopback is always added.
    """
    need_cryptography()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer, issuer_key = read_certificate(ca_crt, "ca.crt"), _private(ca_key, "ca.key")
    if issuer_key.public_key() != issuer.public_key():
        raise InputError("ca.key is not the key of ca.crt: put back the one that belongs to it")
    until = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    if until <= now:
        raise InputError(
            f"the fleet's authority expired on {until:%Y-%m-%d}: provision a new fleet with "
            "--fleet, its sites need new kits"
        )
    key = _new_key()
    wanted = dict.fromkeys((*LOOPBACK, *hosts))
    public = [host for host in wanted if host not in LOOPBACK]
    subject = _named(public[0] if public else "localhost")
    parts = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        _usage("digital_signature"): True,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
        x509.SubjectAlternativeName([_alternative(host) for host in wanted]): False,
    }
    return _pem(key), _certificate(key, subject, issuer_key, issuer.subject, now, until, parts)


def node_keys(name: str) -> tuple[bytes, bytes]:
    """A site's private and public key, both in OpenSSH's form; the name is the latter's comment."""
    need_cryptography()
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = _new_key(fast=True)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private, public + f" {name}\n".encode()


def matches(key: bytes, certificate: bytes) -> bool:
    """Whether a private key belongs to a certificate."""
    own = _private(key, "server.key").public_key()
    return own == read_certificate(certificate, "server.crt").public_key()


def read_certificate(content: bytes, name: str) -> "x509.Certificate":
    """A certificate from PEM, the first if there are several.

    Arguments:
        name: of the file, for messages.
    """
    need_cryptography()
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InputError(f"{name} holds no certificate: put it back from a backup") from error


def _new_key(fast: bool = False) -> "ec.EllipticCurvePrivateKey":
    """A key; with P-256, which signs every request, a signature takes a fifth of the time."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1() if fast else ec.SECP384R1())


def _pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _named(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # X.509's limit


def _alternative(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*allowed: str) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(*(name in allowed for name in USES))


def _certificate(
    key: "ec.EllipticCurvePrivateKey",
    subject: "x509.Name",
    signer: "ec.EllipticCurvePrivateKey",
    issuer: "x509.Name",
    since: datetime,
    until: datetime,
    parts: "Mapping[x509.ExtensionType, bool]",
) -> bytes:
    """A signed certificate as PEM.

    Arguments:
        parts: extensions, and whether each is critical.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    begun = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    numbered = begun.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = numbered.not_valid_before(since - _EARLIER).not_valid_after(until)
    # Strict checks, the default since Python 3.13, require both identifiers.
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signers = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for part, critical in {**parts, own: False, signers: False}.items():
        builder = builder.add_extension(part, critical)
    return builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)


def _private(content: bytes, name: str) -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} holds no private key: put it back from a backup") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{name} is not an elliptic-curve key: put back the fleet's own")
    return key
