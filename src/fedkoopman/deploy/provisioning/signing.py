"""Keys and certificates as bytes: a fleet's authority, the server's certificate, sites' node keys.

The authority belongs to the fleet and signs only the server's certificate. Sites trust no other
authority, so that no public one can vouch for a false server. A site proves its identity by a node
key (ECDSA P-384, in OpenSSH's form, which Flower reads); the public half is in the roster.

The library `cryptography` is imported only when it is needed.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of the SuperLink on its own machine."""
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
_EARLIER = timedelta(hours=1)
"""Certificates are valid from an hour before now, as sites' clocks may be behind."""


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
    """A new authority: its private key and its certificate, as PEM.

    Arguments:
        name: for people who look at the certificate.
        now: from when it is valid.
        days: for how long.
    """
    need_cryptography()
    from cryptography import x509

    key = _new_key()
    subject = _named(name)
    builder = _builder(subject, subject, key.public_key(), now, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    return _pem(key), _signed(builder, key, key)


def server_certificate(
    ca_key: bytes, ca_crt: bytes, hosts: Sequence[str], now: datetime, days: int = SERVER_DAYS
) -> tuple[bytes, bytes]:
    """A new key for the server, and its certificate by the authority, as PEM.

    It expires no later than the authority does.

    Arguments:
        ca_key: the authority's private key.
        ca_crt: its certificate.
        hosts: names and addresses by which sites reach the server; loopback is always added.
        now: from when it is valid.
        days: for how long.
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
    builder = _builder(subject, issuer.subject, key.public_key(), now, until)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(server, critical=False)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_alternative(host) for host in wanted]), critical=False
    )
    return _pem(key), _signed(builder, key, issuer_key)


def node_keys(name: str) -> tuple[bytes, bytes]:
    """A site's private and public key, both in OpenSSH's form; the name is the latter's comment."""
    need_cryptography()
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = _new_key()
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


def _new_key() -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


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


def _usage(
    digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> "x509.KeyUsage":
    from cryptography import x509

    none = False
    return x509.KeyUsage(
        digital_signature, none, none, none, none, key_cert_sign, crl_sign, none, none
    )


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "ec.EllipticCurvePublicKey",
    since: datetime,
    until: datetime,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    begun = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    numbered = begun.serial_number(x509.random_serial_number())
    return numbered.not_valid_before(since - _EARLIER).not_valid_after(until)


def _signed(
    builder: "x509.CertificateBuilder",
    key: "ec.EllipticCurvePrivateKey",
    signer: "ec.EllipticCurvePrivateKey",
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    # Strict checks, the default since Python 3.13, require both identifiers.
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signers = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(own, critical=False).add_extension(signers, critical=False)
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
