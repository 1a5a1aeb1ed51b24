"""The log of a site's agent and its worker: one printable line per record, on standard error."""

import logging
import time

__all__ = ["LOG", "log_lines"]

LOG = logging.getLogger("fedkoopman.agent")


class _OneLine(logging.Formatter):
    """Formats every record as one printable line."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(super().format(record).split())
        return "".join(c if c.isprintable() else "?" for c in text)


def log_lines() -> None:
    """Write the log's lines from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
