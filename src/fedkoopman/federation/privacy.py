"""Privacy as a number: what sites have released, and the ε that it comes to.

A release is a number of equal steps, each with Gaussian noise of σ times the longest contribution
of one record, in each of which a record takes part with probability q. Releases of one site are
composed as if every record had been in all of them, which it may not have been: ε is at most what
is told. The composition is that of the package dp-accounting, by Rényi divergences; its other way,
by privacy loss distributions, gives an ε lower by a tenth and takes ten times as long, for every
training of a site's long life.

Two data sets are neighbours if they differ in one record, in whose place there is nothing in the
other. How many records there are, and who takes part in which slot, is not secret.

What a federation has released is part of the server's state, in arrays whose names begin with
`PRIVACY`, so that a run that goes on knows it. A site behind Flower keeps its own account
(`deploy.site.privacy`), over all studies that it ever took part in.
"""

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays, Message, NumberField
from fedkoopman.federation.options import PrivacyOptions

if TYPE_CHECKING:
    from fedkoopman.koopman.private_training import Plan, Private

__all__ = [
    "PRIVACY",
    "Release",
    "accounted",
    "check_accountant",
    "epsilon",
    "numbers_of",
    "over_budget",
    "privacy_sentence",
    "privacy_told",
    "private_of",
    "release_of",
    "secret_number",
    "spent_by",
    "stopped",
]  # fmt: skip

PRIVACY = "privacy."
RELEASES, STOPPED = f"{PRIVACY}releases", f"{PRIVACY}stopped"
LEVELS = ("sample", "segment", "site")
"""What a release protects; each holds all before it."""


class Release(NamedTuple):
    """Equal steps with Gaussian noise."""

    rate: float
    """q, the probability with which a record takes part in a step."""
    noise: float
    """σ."""
    steps: int
    level: str = "sample"
    """What one record is, of `LEVELS`."""


def private_of(problem: Problem, secret: int) -> "Private | None":
    """How sites train by a study; None where they do so without privacy."""
    from fedkoopman.koopman.private_training import Private

    options = problem.privacy
    if options.mode != "site":
        return None
    return Private(options.record, options.clip, options.noise, secret)


def level_of(options: PrivacyOptions) -> str:
    """What the study protects."""
    return "site" if options.mode == "central" else options.record


def secret_number(secret: bytes, *address: object) -> int:
    """128 bits of noise's own seed; another address gives bits that have nothing to do with it."""
    text = "\n".join(map(str, address)).encode()
    return int.from_bytes(hashlib.blake2b(text, key=secret[:64], digest_size=16).digest())


def numbers_of(plan: "Plan") -> dict[str, float]:
    """What a reply tells of its privacy."""
    return {"sampling_rate": plan.rate, "private_steps": float(plan.steps)}


NUMBERS = {
    "sampling_rate": NumberField(0.0, 1.0),
    "private_steps": NumberField(0.0, 1e9, whole=True),
}
"""What replies with privacy tell beside their arrays."""


def release_of(options: PrivacyOptions, reply: Message) -> Release | None:
    """What a site released with a reply; None if nothing that counts."""
    if options.mode == "central":
        return Release(1.0, options.noise, 1, "site")
    if options.mode == "none" or "private_steps" not in reply.numbers:
        return None
    steps = int(reply.numbers["private_steps"])
    return Release(reply.numbers["sampling_rate"], options.noise, steps, options.record)


def check_accountant() -> None:
    """Refuse privacy that nobody can account for."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        raise InputError(
            "privacy is accounted for by the package dp-accounting, which is not installed: "
            "pip install 'fedkoopman[privacy]'"
        ) from error


def epsilon(releases: Sequence[Release], delta: float, level: str = "sample") -> float:
    """ε of all releases together, at a δ, for one record of a level.

    Infinite where some release protects less than that: an example is part of a segment, but that
    one example is protected says little of the segment.
    """
    check_accountant()
    import dp_accounting

    if any(LEVELS.index(one.level) < LEVELS.index(level) for one in releases):
        return math.inf
    steps: dict[tuple[float, float], int] = {}
    for one in releases:
        if one.rate > 0 and one.steps:
            steps[one.rate, one.noise] = steps.get((one.rate, one.noise), 0) + one.steps
    if not steps:
        return 0.0
    accountant = dp_accounting.rdp.RdpAccountant()
    with _quiet():
        for (rate, noise), count in sorted(steps.items()):
            event = dp_accounting.GaussianDpEvent(noise)
            if rate < 1:
                event = dp_accounting.PoissonSampledDpEvent(rate, event)
            accountant.compose(dp_accounting.SelfComposedDpEvent(event, count))
        return float(accountant.get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """The accountant warns of orders that it leaves out; without them ε is larger, not wrong."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


# In the server's state: rows of (client, q, steps, trainings), and by client since when it stopped


def accounted(
    problem: Problem, state: Arrays, slot: int, sent: Mapping[int, Message], out: Sequence[int] = ()
) -> dict[str, NDArray[Any]]:
    """The account after a slot; empty in studies without privacy.

    Arguments:
        sent: by client what it sent, whether it was accepted or not.
        out: clients whose budget does not allow what they were asked.
    """
    if problem.privacy.mode == "none":
        return {}
    rows = {(int(n), q): [t, k] for n, q, t, k in state.get(RELEASES, np.zeros((0, 4)))}
    for client, reply in sent.items():
        if (one := release_of(problem.privacy, reply)) is not None:
            row = rows.setdefault((client, one.rate), [0.0, 0.0])
            row[0] += one.steps
            row[1] += 1
    since = np.zeros(problem.clients)
    before = state.get(STOPPED, since)
    since[: len(before)] = before
    since[[n for n in out if not since[n]]] = slot
    table = [[n, q, *counts] for (n, q), counts in sorted(rows.items())]
    return {RELEASES: np.array(table, np.float64).reshape(-1, 4), STOPPED: since}


def stopped(problem: Problem, state: Arrays) -> list[bool]:
    """By client, whether its budget is spent."""
    since = state.get(STOPPED, np.zeros(0))
    return [n < len(since) and since[n] > 0 for n in range(problem.clients)]


def spent_by(problem: Problem, state: Arrays, client: int) -> list[Release]:
    """What a client has released."""
    rows = state.get(RELEASES, np.zeros((0, 4)))
    noise, level = problem.privacy.noise, level_of(problem.privacy)
    return [Release(q, noise, int(t), level) for n, q, t, _ in rows if int(n) == client]


def over_budget(
    problem: Problem,
    request: Message,
    segments: Sequence[NDArray[Any]],
    spent: Sequence[Release],
    budget: float,
) -> bool:
    """Whether an answer from these segments would take a site over its budget.

    Arguments:
        spent: what the site released before.
        budget: ε at the study's δ.
    """
    options, level = problem.privacy, level_of(problem.privacy)
    if options.mode == "central":
        coming = Release(1.0, options.noise, 1, level)
    else:
        plan = getattr(problem.algorithm, "planned")(problem, request, segments)  # noqa: B009
        if plan is None or not plan.steps:
            return False
        coming = Release(plan.rate, options.noise, plan.steps, level)
    return epsilon([*spent, coming], options.delta, level) > budget


def privacy_told(problem: Problem, state: Arrays, names: Sequence[str]) -> dict[str, Any]:
    """The summary's entry on privacy; empty in studies without.

    Arguments:
        names: of the clients, in order.
    """
    options = problem.privacy
    if options.mode == "none":
        return {}
    rows, since = state.get(RELEASES, np.zeros((0, 4))), state.get(STOPPED, np.zeros(0))
    sites = {}
    for n, name in enumerate(names):
        found = epsilon(spent_by(problem, state, n), options.delta, level_of(options))
        sites[name] = {
            "epsilon": found,
            "trainings": int(sum(k for m, _, _, k in rows if int(m) == n)),
            "stopped": int(since[n]) if n < len(since) else 0,
        }
    told = {
        "mode": options.mode,
        "record": level_of(options),
        "clip": options.clip,
        "noise": options.noise,
        "delta": options.delta,
        "epsilon": max((one["epsilon"] for one in sites.values()), default=0.0),
        "sites": sites,
    }
    if options.mode == "site" and options.record == "sample":
        from fedkoopman.koopman.private_training import occurrences

        told["examples_per_state"] = occurrences(problem.architecture)
    return {"privacy": told}


def privacy_sentence(told: Mapping[str, Any]) -> str:
    """The summary's entry as a line on the model's card."""
    who = "noise from the server" if told["mode"] == "central" else "noise from the sites"
    return (
        f"(ε, δ) = ({told['epsilon']:.3g}, {told['delta']:g}) for one {told['record']} of the site "
        f"that released most; {who}"
    )
