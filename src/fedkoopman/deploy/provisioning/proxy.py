"""Configuration files of a fleet for nginx, systemd and logrotate, made from `templates/`.

Files that exist are not overwritten, as an operator may have changed them.
"""

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from fedkoopman.durable import private_directory, write_private
from fedkoopman.errors import InputError

PUBLIC_PORT = 8443
SERVER_PORT = 9092
LARGEST_MESSAGE = 65
"""MiB of a request: `wire.LARGEST`, and what Flower adds."""
RATE, BURST, CONNECTIONS = 1000, 4000, 400
"""Limits for one address: requests per second, requests at once, connections."""
UNITS = ("fedkoopman-server.service", "fedkoopman-proxy.service", "fedkoopman-site@.service")
_VALUE = re.compile(r"\{\{(\w+)\}\}")


def nginx_conf(
    fleet: Path,
    host: str = "",
    public_port: int = PUBLIC_PORT,
    upstream: int | Path = SERVER_PORT,
    *,
    to_stdout: bool = False,
    rate: int = RATE,
    burst: int = BURST,
) -> str:
    """The configuration of a reverse proxy that lets sites through to the server, and no more.

    Arguments:
        fleet: the fleet's directory, which has server.crt, server.key and ca.crt.
        host: the address to listen at; all addresses if empty.
        upstream: the server's port on loopback, with TLS; or its socket in a directory that only
            its user can enter, without.
        to_stdout: log to standard output, for a parent that rotates logs, instead of to files.
        rate, burst: requests per second from one address, and how many at once beyond that.
    """
    check_path(fleet)
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    places = [bracketed] if host else ["0.0.0.0", *(["[::]"] if _has_ipv6() else [])]
    if isinstance(upstream, Path):
        check_path(upstream)
    upstream_tls = (
        "proxy_ssl_trusted_certificate ca.crt;",
        "proxy_ssl_verify on;",
        "proxy_ssl_name localhost;",
        "proxy_ssl_protocols TLSv1.2 TLSv1.3;",
    )
    values = {
        "fleet": str(fleet),
        # Started as root, nginx would switch to a user who cannot enter private directories.
        "user": "user root;\n" if hasattr(os, "geteuid") and os.geteuid() == 0 else "",
        "listen": "\n".join(f"        listen {place}:{public_port} ssl;" for place in places),
        "upstream": f"unix:{upstream}" if isinstance(upstream, Path) else f"127.0.0.1:{upstream}",
        "scheme": "http" if isinstance(upstream, Path) else "https",
        "upstream_tls": "\n".join(f"            {line}" for line in upstream_tls),
        "error_log": "stderr" if to_stdout else "logs/error.log",
        "access_log": "/dev/stdout" if to_stdout else "logs/access.log",
        "rate": str(rate),
        "burst": str(burst),
        "connections": str(CONNECTIONS),
        "largest": str(LARGEST_MESSAGE),
    }
    if isinstance(upstream, Path):
        values["upstream_tls"] = ""
    text = filled("nginx.conf", values)
    return re.sub(r"\n\n(?= *\})", "\n", text)  # where a value is empty


def service_files(fleet: Path, study: Path, server: str, server_port: int) -> dict[str, str]:
    """Units for systemd, and rotation of the proxy's logs, by name."""
    check_path(fleet)
    check_path(study)
    values = {
        "program": _word(_program()),
        "nginx": _word(find_nginx() or "/usr/sbin/nginx"),
        "study": _word(str(study)),
        "fleet": _word(str(fleet)),
        "proxy": _word(str(fleet / "proxy")),
        "nginx_conf": _word(str(fleet / "nginx.conf")),
        "server": _word(server),
        "server_port": str(server_port),
    }
    found = {f"systemd/{unit}": filled(unit, values) for unit in UNITS}
    return found | {"logrotate.conf": filled("logrotate.conf", {"fleet": str(fleet)})}


def write_services(fleet: Path, content: Mapping[str, str]) -> list[str]:
    """Write those files that are missing; their names are returned."""
    written = [name for name in content if not (fleet / name).exists()]
    for name in written:
        private_directory((fleet / name).parent)
        write_private(fleet / name, content[name].encode())
    for folder in ("proxy", "proxy/logs"):
        private_directory(fleet / folder)
    return written


def check_path(path: Path) -> None:
    """Refuse a path that cannot stand in these files."""
    if any(ord(c) < 32 or c in "\"'\\{}$;*?[]" for c in str(path)):
        raise InputError(
            f"{str(path)!r} has characters with a meaning to nginx or systemd: give a "
            "--fleet without quotes, braces, brackets, backslashes and $"
        )


def filled(name: str, values: Mapping[str, str]) -> str:
    """A template with its values filled in."""
    folder = files("fedkoopman.deploy.provisioning") / "templates"
    text = (folder / name).read_text(encoding="utf-8")
    return _VALUE.sub(lambda match: values[match[1]], text)


def _word(text: str) -> str:
    """A word in a systemd command line or list of paths."""
    escaped = text.replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"\s", escaped) else escaped


def _program() -> str:
    beside = Path(sys.executable).parent / "fedkoopman"
    return str(beside) if beside.exists() else shutil.which("fedkoopman") or str(beside)


def find_nginx() -> str | None:
    """Where nginx is; None if it is not installed."""
    # Debian installs it in a directory that is not on every user's PATH.
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("nginx", path=places)


def _has_ipv6() -> bool:
    """Whether this machine has IPv6; without it, nginx would refuse to listen on [::]."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False
