"""What a tuning tries: which studies, in how many rungs, with how many slots."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from fedkoopman.config.parts import architecture_of, system_of
from fedkoopman.config.study import Study, per_client
from fedkoopman.errors import InputError
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.koopman.staged import Staged
from fedkoopman.runs.sweep import combination

KEYS = {
    "spectral": ("components", "features", "discount", "ridge", "window"),
    "edmd": ("degree", "ridge", "window"),
    "inclusive": ("components", "width", "window"),
    "paper": ("components", "width", "window"),
}
"""Model kinds that are tried, if there are such, each with the keys of [network] that are varied.
The dimension of edmd comes from its dictionary."""
OTHER_KEYS = ("components", "width", "window")
"""Of any other kind that the study names, as far as it has them."""
PER_STATE = (2, 4, 8, 12)
"""Dimensions of the lifted state that are tried, per state of the system."""
TRIED: dict[str, tuple[float, ...]] = {
    "width": (16, 64, 128),
    "features": (32, 128),
    "degree": (2, 3, 5),
    "window": (1, 2, 4),
    "discount": (1.0, 3.0),
    "ridge": (1e-8, 1e-5),
}
ESTIMATED = ("clients.process_noise", "estimation.initial_mean", "estimation.initial_cov")
"""What simulated clients believe of noise; tried as "auto" all together, where it may be."""
MOST_SENT = 1_000_000
"""Numbers in a site's sums of products; a larger dictionary takes long, and is not tried."""
PARTS = (8, 4, 2, 1)
"""A rung has the study's slots divided by one of these."""
TRAININGS = 2
"""How often a client should have trained in the shortest rung."""
GIVEN = "as-given"


@dataclass(frozen=True)
class Candidate:
    """A study to try.

    Attributes:
        name: of its directory in that of a rung.
        values: what differs from the study as given, TOML texts by dotted key.
    """

    name: str
    values: dict[str, str]
    study: Study


@dataclass(frozen=True)
class Refused:
    """Values with which the study would not be one, and why."""

    values: dict[str, str]
    reason: str


def rungs_of(study: Study) -> tuple[int, ...]:
    """Slots of each rung, the study's own last.

    A rung has so many that most clients are expected to train twice: before, a score says little.
    """
    least = 1.0
    if study.policy.name == "threshold":
        count = study.clients.count
        segments = np.array(per_client(study.policy.segments, count))
        with np.errstate(divide="ignore", invalid="ignore"):  # some may never observe anything
            waits = segments / np.array(per_client(study.clients.probability, count))
        least = TRAININGS * float(np.nan_to_num(np.median(waits), nan=0.0))
    slots = (math.ceil(study.slots / part) for part in PARTS)
    return tuple(sorted({study.slots, *(n for n in slots if n >= least)}))


def sizes_of(rungs: Sequence[int], budget: int) -> tuple[int, ...]:
    """How many candidates run in each rung, beside the study as given, which runs in the last.

    Arguments:
        budget: how many times the slots of the study all trials may take together.
    """

    def halved(count: int) -> tuple[int, ...]:
        return tuple(math.ceil(count / 2**rung) for rung in range(len(rungs)))

    def slots(count: int) -> int:
        return rungs[-1] + sum(size * n for size, n in zip(halved(count), rungs, strict=True))

    count = 1
    while slots(count + 1) <= budget * rungs[-1]:
        count += 1
    return halved(count)


def candidates(study: Study, count: int, seed: int) -> tuple[list[Candidate], list[Refused]]:
    """The study as given and up to `count` others; and those that were refused on the way.

    No two have the same model and noise, however they write it.
    """
    system = system_of(study)

    def essence(one: Study) -> tuple[Kind, str]:
        return architecture_of(one, system), repr((one.clients, one.estimation))

    found, refused, seen = [Candidate(GIVEN, {}, study)], list[Refused](), {essence(study)}
    for values in _drawn(study, system.dim, seed):
        if len(found) > count:
            break
        try:
            one = combination(study, values)
            model, noise = essence(one.study)
            _check_size(model)
        except InputError as error:
            refused.append(Refused(values, str(error)))
            continue
        if (model, noise) not in seen:
            seen.add((model, noise))
            found.append(Candidate(one.name, values, one.study))
    return found, refused


def _check_size(model: Kind) -> None:
    """Refuse a closed form of very many functions."""
    sent = sum(map(math.prod, model.sum_shapes().values())) if isinstance(model, Staged) else 0
    if sent > MOST_SENT:
        raise InputError(
            f"a site would send {sent:,} numbers at once: at most {MOST_SENT:,} are tried, set "
            "these values in the study if they are wanted"
        )


def _drawn(study: Study, dim: int, seed: int) -> Iterator[dict[str, str]]:
    """Values of candidates, from each kind in turn: first the kind with the study's other values,
    then that with estimated noise, then all other combinations of its choices in random order."""
    queues = []
    for place, kind in enumerate(_kinds(study)):
        tried = choices(study, kind, dim)
        every = [
            {key: value for one in chosen for key, value in one.items()}
            for chosen in itertools.product(*tried)
        ]
        last = tried[-1][-1]  # the last list changes fastest
        ahead = 2 if last and set(last) <= set(ESTIMATED) else 1
        order = np.random.default_rng([seed, place]).permutation(len(every) - ahead)
        queues.append([*every[:ahead], *(every[ahead + i] for i in order)])
    for values in itertools.chain.from_iterable(itertools.zip_longest(*queues)):
        if values:  # without any, it is the study as given
            yield values


def _kinds(study: Study) -> list[str]:
    """Model kinds that the study's algorithm can learn."""
    found = [kind for kind in KEYS if kind in KINDS]
    if (name := study.algorithm.name) != "auto":
        found = [kind for kind in found if KINDS.find(kind).algorithm == name]
    return list(dict.fromkeys([*found, study.network.kind]))


def choices(study: Study, kind: str, dim: int) -> list[list[dict[str, str]]]:
    """What is tried with a model kind, one of each list together: TOML texts by dotted key.

    The first of each list leaves the study as it is, but for the kind.

    Arguments:
        dim: the number of the system's states.
    """
    network, keys = study.network, KEYS.get(kind, ())
    if kind not in KEYS:
        known = {field.name for field in fields(KINDS.find(kind, study.root))}
        keys = tuple(key for key in OTHER_KEYS if key in known)
    elif kind == "edmd" and network.dictionary != "polynomial":  # which alone has a degree
        keys = ("features", *keys[1:])
    found: list[list[dict[str, str]]] = [[{} if kind == network.kind else {"network.kind": kind}]]
    for key in keys:
        tried = TRIED[key] if key in TRIED else tuple(dim * n for n in PER_STATE)
        other = [value for value in tried if value != getattr(network, key)]
        found.append([{}, *({f"network.{key}": str(value)} for value in other)])
    if estimated := [key for key in ESTIMATED if _may_be_auto(study, key)]:
        found.append([{}, dict.fromkeys(estimated, "auto")])
    return found


def _may_be_auto(study: Study, key: str) -> bool:
    """Whether the study can have a value estimated and does not.

    Real sites say their noise in files of their own; true states and raw observations need no
    filter.
    """
    if study.sites.files or study.scheme in ("perfect-data", "observations"):
        return False
    try:
        other = study.with_values({key: "auto"})
        other.check()
    except InputError:
        return False
    return other != study
