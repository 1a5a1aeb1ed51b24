"""A served run's status in Prometheus's format, offered on loopback only."""

import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedkoopman.errors import InputError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

RUN = {
    "slot": ("gauge", "slot", "The last finished slot."),
    "slots": ("gauge", "slots", "How many slots the study has."),
    "late": ("counter", "late", "Replies that came after their deadline."),
    "duplicates": ("counter", "duplicates", "Replies that came more than once."),
    "updated": ("gauge", "status_written_seconds", "When this was written, in Unix time."),
    "certificate_expires": (
        "gauge",
        "certificate_expires_seconds",
        "When the server's certificate ends, in Unix time.",
    ),
}
"""Metrics of the run, by keys of the status: kind, name and meaning."""
SITE = {
    "online": ("gauge", "online", "Whether the site's node is connected."),
    "buffered": ("gauge", "buffered_samples", "Samples that waited when it was last asked."),
    "segments": ("gauge", "buffered_segments", "Segments that waited when it was last asked."),
    "trained_samples": ("counter", "trained_samples", "Samples of its accepted updates."),
    "refused_samples": ("counter", "refused_samples", "Samples of its refused updates."),
    "updates": ("counter", "updates", "Its accepted updates."),
    "rejected": ("counter", "rejected", "Its replies that broke a rule."),
    "set_aside": ("gauge", "set_aside", "Whether it is set aside."),
    "included": ("gauge", "included_slot", "The last slot that trained on its data."),
    "last_seen": ("gauge", "last_seen_seconds", "When it last answered, in Unix time."),
}
"""Metrics of every site, by keys of the status: kind, name and meaning."""


def metrics_text(status: Mapping[str, Any]) -> str:
    """A status in Prometheus's text format."""
    return "".join(f"{line}\n" for line in _lines(status))


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    for key, (kind, word, meaning) in RUN.items():
        if status.get(key) not in (None, ""):
            name = f"fedkoopman_{word}{'_total' * (kind == 'counter')}"
            yield from _head(name, kind, meaning)
            yield f"{name} {_number(status[key])}"
    for key, (kind, word, meaning) in SITE.items():
        name = f"fedkoopman_site_{word}{'_total' * (kind == 'counter')}"
        yield from _head(name, kind, meaning)
        for site, about in status.get("sites", {}).items():
            value = bool(about.get(key)) if key in ("online", "set_aside") else about.get(key)
            if value not in (None, ""):
                yield f'{name}{{site="{_escaped(site)}"}} {_number(value)}'


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _number(value: Any) -> str:
    """A number as text; an ISO 8601 time as Unix time."""
    if isinstance(value, str):
        try:
            then = datetime.fromisoformat(value)
        except ValueError:
            return "NaN"
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        return f"{then.timestamp():.0f}"
    return str(int(value)) if isinstance(value, bool) else f"{value:.15g}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve_metrics(path: Path, port: int) -> ThreadingHTTPServer:
    """Answer GET /metrics on 127.0.0.1, in a thread; `shutdown` ends it.

    Arguments:
        path: of the status file, which is read at every request.
        port: 0 for any free one; `server_port` tells which.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version = "fedkoopman"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            try:
                status = json.loads(path.read_text(encoding="utf-8"))
                body = metrics_text(status).encode()
            except (OSError, ValueError, AttributeError, TypeError):
                self.send_error(503, "there is no status yet")
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing: requests come every few seconds."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on 127.0.0.1:{port} for metrics ({cause}): choose another port"
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
