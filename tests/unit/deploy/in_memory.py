"""A federation in one process: real agents with real stores, and a fleet without a network."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reference.examples import write_example

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.server.loop import federate
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.site_socket import Rate
from fedkoopman.deploy.wire import Failure, decode_replies, decode_requests, encode_replies

LABS = ("lab-a", "lab-b", "lab-c")
SMALL: dict[str, Any] = {
    "slots": 6,
    "clients.probability": 0.7,
    "segments.steps": 100,
    "network.components": 4,
    "network.width": 8,
    "training.epochs": 1,
    "evaluation.trajectories": 2,
    "evaluation.tail_slots": 3,
    "policy.segments": 1,
}
KNOWN = {
    "observation": "0.01",
    "process": "{ diagonal = [1e-6, 1e-4] }",
    "mean": "[1.1, 0.0]",
    "cov": "{ diagonal = [0.4, 0.5] }",
}
"""What sites declare in place of "auto"."""
Twist = Callable[[str, tuple, tuple], "tuple | bytes | Failure | None"]


def small_study(folder: Path, values: Mapping[str, Any] | None = None) -> Study:
    """The pendulum example, made small; its sites' files are written on the first call."""
    if not folder.exists():
        write_example(folder)
        for lab in LABS:  # nothing is estimated, so that agents are ready at once
            file = folder / lab / "site.toml"
            text = file.read_text()
            for key, value in KNOWN.items():
                text = text.replace(f'{key} = "auto"', f"{key} = {value}")
            file.write_text(text)
    return Study.load(folder / "study.toml", {**SMALL, **(values or {})})


@dataclass
class Sites:
    """Agents by name, who is enrolled and who is there, and how replies are twisted on the way."""

    study: Study
    folder: Path
    names: tuple[str, ...] = LABS
    agents: dict[str, Agent] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    twist: Twist = lambda site, requests, replies: replies
    late: int = 0
    duplicates: int = 0
    asked: list[tuple[str, tuple]] = field(default_factory=list)

    def start(self, name: str) -> Agent:
        if name not in self.agents:
            site = SiteFile.load(self.study.root / name / "site.toml")
            identity = self.names.index(name)
            state = self.folder / name
            made = Agent(site, self.study, identity, len(self.names), state, settle=0.0)
            made._rate = Rate(1e9, 10**9)  # slots are short here
            self.agents[name] = made
        return self.agents[name]

    def stop(self, name: str) -> None:
        if name in self.agents:
            self.agents.pop(name).close()

    def close(self) -> None:
        for name in list(self.agents):
            self.stop(name)

    def roster(self) -> Roster:
        sites = [
            Enrolled(name, n, "", "", "now" if name in self.revoked else "")
            for n, name in enumerate(self.names)
        ]
        return Roster(self.study.digest(), False, tuple(sites))

    def online(self) -> dict[str, int]:
        return {
            site.name: site.identity for site in self.roster().active if site.name not in self.away
        }

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            jobs = {pool.submit(self._answer, site, body): site for site, body in bodies.items()}
            for job in as_completed(jobs):
                if (answer := job.result()) is not None:
                    yield jobs[job], answer

    def _answer(self, site: str, body: bytes) -> bytes | Failure | None:
        """A site's reply; None if it is not there in time."""
        if site in self.away:
            return None
        _, requests = decode_requests(body)
        self.asked.append((site, requests))
        envelope, replies = decode_replies(self.start(site).answer(body, "server"))
        twisted = self.twist(site, requests, replies)
        return encode_replies(envelope, twisted) if isinstance(twisted, tuple) else twisted

    def account(self) -> tuple[int, int, int]:
        """Samples that arrived at all sites, were trained on, and wait."""
        told = [self.start(name).buffer.account() for name in self.names]
        return (
            sum(one.delivered for one in told),
            sum(one.trained for one in told),
            sum(one.buffered for one in told),
        )

    def serve(self, out: Path, **options: Any) -> dict[str, Any] | None:
        options = {"deadline": 30.0, "patience": (0.5, 0.5), "say": lambda _: None, **options}
        return federate(self.study, self, self.roster, out, **options)


def only(change: Callable[[Any], Any], site: str, kind: type) -> Twist:
    """One site's replies of a kind, changed."""

    def twist(name: str, requests: tuple, replies: tuple) -> tuple:
        if name != site:
            return replies
        return tuple(change(one) if isinstance(one, kind) else one for one in replies)

    return twist
