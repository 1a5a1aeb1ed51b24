"""A site that takes part without data: the real node, and in place of the agent a few lines.

    python benchmarks/light_site.py --name NAME --kit DIR --server HOST:PORT --state DIR

It answers every request of the protocol as an agent does, with weights that it has moved at
random in place of trained ones. So a hundred sites fit on one machine, and what is measured is the
cost of messages.
"""

import argparse
import signal
import threading
from pathlib import Path

import numpy as np

from fedkoopman.deploy.flower.node import Node, connected
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Evaluate,
    Evaluated,
    Poll,
    Polled,
    Refused,
    Reply,
    Request,
    decode_requests,
    digest_of,
    encode_replies,
    message_digest,
)
from fedkoopman.federation.messages import Message

SAMPLES = 300
METRICS = {"l1": 1e-3, "l2": 1e-3, "l3": 1e-3, "e1": 1e-2, "e2": 1e-2, "horizon": 5.0}


class LightAgent:
    """Answers requests as an agent does, without data."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._random = np.random.default_rng(abs(hash(name)) % 2**32)

    def __call__(self, body: bytes) -> bytes:
        envelope, requests = decode_requests(body)
        return encode_replies(envelope, [self._reply(one) for one in requests])

    def _reply(self, request: Request) -> Reply:
        match request:
            case Poll():
                return Polled(self.name, request.slot, SAMPLES, 1)
            case Acknowledge():
                return Acknowledged(self.name, request.slot)
            case Evaluate():
                base = digest_of(request.model)
                return Evaluated(self.name, request.slot, base, 10, METRICS)
            case Ask() if request.message.kind == "train":
                moved = {
                    name: (0.98 * x + 0.02 * self._random.standard_normal(x.shape)).astype(x.dtype)
                    for name, x in request.message.arrays.items()
                }
                base, update = message_digest(request.message), Message("update", moved, {})
                return Answered(self.name, request.slot, base, SAMPLES, update)
            case _:
                return Refused(self.name, "a light site has no data")


def main() -> None:
    """Take part until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--kit", required=True, type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--state", required=True, type=Path)
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    client, public = connected(
        given.server, given.name, given.state / "node.json",
        authority=given.kit / "ca.crt", key=given.kit / "node.key",
    )  # fmt: skip
    stop, node = threading.Event(), Node(client, public, LightAgent(given.name), print)

    def end(*_: object) -> None:
        stop.set()
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=node.beat, args=(stop,), daemon=True).start()
    try:
        node.work(stop)
    finally:
        node.sign_off()


if __name__ == "__main__":
    main()
