"""Certificates are what TLS and Flower accept, say for whom they are, and warn before they end."""

import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedkoopman.deploy.provisioning.certificates import (
    authority,
    expires,
    hosts_of,
    matches,
    node_keys,
    server_certificate,
    warning,
)
from fedkoopman.deploy.provisioning.provision import check_host
from fedkoopman.errors import InputError

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTS = ("localhost", "127.0.0.1", "::1", "learn.example.org", "192.0.2.7")
NO_HOSTS = (
    "",
    "a b",
    "host:8443",
    "10.0.0.300",
    "-x.org",
    "../etc",
    "a..b",
    "x" * 64,
    "a;b",
    "é.org",
)


@pytest.fixture(scope="module")
def ca() -> tuple[bytes, bytes]:
    return authority("fedkoopman test", NOW)


@pytest.fixture
def served(tmp_path: Path, ca: tuple[bytes, bytes]) -> Path:
    """A directory with an authority's certificate, and a server's."""
    key, crt = server_certificate(*ca, ["learn.example.org", "192.0.2.7"], NOW)
    (tmp_path / "ca.crt").write_bytes(ca[1])
    (tmp_path / "server.key").write_bytes(key)
    (tmp_path / "server.crt").write_bytes(crt)
    return tmp_path


def handshake(folder: Path, name: str, authority_file: Path, version: ssl.TLSVersion) -> None:
    """Connect to a server that has a folder's certificate; raise what the client says."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=authority_file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    client.maximum_version = version
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "::1", "learn.example.org", "192.0.2.7"]
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_that_trust_the_authority_accept_every_name(
    served: Path, name: str, version: ssl.TLSVersion
) -> None:
    handshake(served, name, served / "ca.crt", version)


def test_another_name_and_another_authority_are_refused(served: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(served, "evil.example.org", served / "ca.crt", ssl.TLSVersion.TLSv1_3)
    (tmp_path / "other.crt").write_bytes(authority("fedkoopman test", NOW)[1])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(served, "localhost", tmp_path / "other.crt", ssl.TLSVersion.TLSv1_3)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees(served: Path) -> None:
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]
    done = subprocess.run(
        [*command, str(served / "ca.crt"), str(served / "server.crt")], capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_a_servers_certificate_signs_nothing(served: Path) -> None:
    certificate = x509.load_pem_x509_certificate((served / "server.crt").read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature and not usage.key_cert_sign
    with pytest.raises(InputError, match="not the key of"):
        server_certificate(
            (served / "server.key").read_bytes(), (served / "ca.crt").read_bytes(), [], NOW
        )


def test_a_servers_certificate_ends_no_later_than_its_authority(tmp_path: Path) -> None:
    ca = authority("short", NOW, days=10)
    (tmp_path / "server.crt").write_bytes(server_certificate(*ca, [], NOW, days=365)[1])
    assert expires(tmp_path / "server.crt") == NOW + timedelta(days=10)
    with pytest.raises(InputError, match="authority expired"):
        server_certificate(*ca, [], NOW + timedelta(days=11))


def test_hosts_and_end_can_be_read_again(served: Path) -> None:
    crt = served / "server.crt"
    assert hosts_of(crt) == HOSTS
    assert expires(crt) == NOW + timedelta(days=365)


@pytest.mark.parametrize(
    ("left", "says"),
    [(31, ""), (29, "expires on .*, in 29 days"), (1, "in 1 days"), (-1, "expired on")],
)
def test_a_warning_comes_thirty_days_before_the_end(served: Path, left: int, says: str) -> None:
    text = warning(served / "server.crt", NOW + timedelta(days=365 - left))
    assert re.search(says, text) if says else text == ""
    if says:
        assert f"--fleet {served}" in text and "--renew" in text and "\n" not in text


def test_node_keys_are_what_a_node_reads() -> None:
    private, public = node_keys("lab-a")
    key = load_ssh_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert load_ssh_public_key(public) == key.public_key()
    assert public.startswith(b"ecdsa-sha2-nistp256 ") and public.endswith(b" lab-a\n")
    assert node_keys("lab-a")[0] != private


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_ssh_keygen_agrees(tmp_path: Path) -> None:
    private, public = node_keys("lab-a")
    (tmp_path / "node.key").write_bytes(private)
    (tmp_path / "node.key").chmod(0o600)
    done = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(tmp_path / "node.key")], capture_output=True, check=True
    )
    assert done.stdout.split()[:2] == public.split()[:2]


def test_a_key_is_told_from_another(served: Path, ca: tuple[bytes, bytes]) -> None:
    crt = (served / "server.crt").read_bytes()
    assert matches((served / "server.key").read_bytes(), crt)
    assert not matches(ca[0], crt)


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Learn.Example.ORG", "learn.example.org"),
        ("learn.example.org.", "learn.example.org"),
        ("server", "server"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
    ],
)
def test_hosts_have_a_normal_form(given: str, normal: str) -> None:
    assert check_host(given) == normal


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a b",
        "host:8443",
        "10.0.0.300",
        "-x.org",
        "../etc",
        "a..b",
        "x" * 64,
        "ex;ample",
        "é.org",
    ],
)
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="give a name such as"):
        check_host(given)


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_damaged_certificate_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "server.crt").write_bytes(content)
    with pytest.raises(InputError, match=r"holds no certificate: put it back"):
        expires(tmp_path / "server.crt")


def test_a_missing_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        expires(tmp_path / "server.crt")


def test_without_the_library_one_line_says_what_to_install() -> None:
    code = """
import sys
sys.modules["cryptography"] = None
from datetime import datetime, UTC
from fedkoopman.errors import InputError
from fedkoopman.deploy.provisioning.certificates import authority
try:
    authority("x", datetime.now(UTC))
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'fedkoopman[deploy]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1
