"""Forecasts of held-out data by the shared model, and by what it should beat, at every site.

On every site's held-out segments five forecasts are compared:

    holding    the last state stays
    alone      what the same study would have learned from this site only (`alone`)
    dmd, edmd  x' = A x + b, and polynomials of degree 3, by least squares over all sites' data
    federated  the shared model

All models are lifted anew as often as the shared one, whose way held-out data chose.
Sites send sums for the two in the middle (`koopman.gram`), and errors at the end: three requests,
which `compared` makes and `answer` answers. Both engines call both, so that a served run has the
table of a local one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.data.triage import HeldOut
from fedkoopman.estimation.left_out import stretches
from fedkoopman.federation.algorithm import Answered, Problem
from fedkoopman.federation.arrivals import schedule
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.messages import ArrayField, Arrays, Message, NumberField, Schema
from fedkoopman.federation.quantised import pooled
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.runs.alone import model_alone
from fedkoopman.runs.benefit import benefit
from fedkoopman.runs.forecast_errors import (
    HORIZONS,
    Rollout,
    diverged,
    errors_of,
    holding,
    rollout_of,
)
from fedkoopman.runs.site_preparation import Sites

__all__ = [
    "EVERYBODY", "MODELS", "Holdings", "answer", "benefit_entry", "compared", "hidden",
    "holdings_of", "schemas",
]  # fmt: skip

MODELS = ("holding", "alone", "dmd", "edmd", "federated")
DEGREE, FUNCTIONS = 3, 1000
"""Of the polynomials, and how many there may be: with many states the degree is lower."""
EVERYBODY = "everybody"
"""Stands for a site where only the sum over sites is known."""
BLOCK = 100_000
"""Samples whose sums are made at once."""

Exchange = Callable[[Message], Mapping[str, Message]]
"""Asks all sites the same; gives the replies that fit their schemas, by site in one order."""


@dataclass(frozen=True, eq=False)
class Holdings:
    """What a site brings to the comparison.

    Attributes:
        identity: its place among all.
        arrived: states (T_i, d), with inputs after them where the model has some, of the training
            segments that arrived during the run, each once.
        arrivals: slots, rising, each with the place in `arrived` of what arrived then.
        held_out: segments that nobody trained on; may be read one by one.
    """

    identity: int
    arrived: Sequence[NDArray[np.float64]]
    arrivals: Sequence[tuple[int, int]]
    held_out: Sequence[HeldOut]


def holdings_of(experiment: Experiment, sites: Sites) -> dict[str, Holdings]:
    """What each site of a local run brings, by name."""
    due, found = schedule(experiment), dict[str, Holdings]()
    for n, site in enumerate(sites.sites):
        arrivals = [(slot, came[n]) for slot, came in enumerate(due) if n in came]
        # Segments arrive in order, so that those that did are the first ones.
        arrived = site.train[: len({place for _, place in arrivals})]
        found[site.name] = Holdings(n, arrived, arrivals, site.held_out)
    return found


def degree_of(state_dim: int) -> int:
    """The degree of the pooled polynomials."""
    sizes = {n: math.comb(state_dim + n, n) for n in range(2, DEGREE + 1)}
    return max((n for n, size in sizes.items() if size <= FUNCTIONS), default=1)


def schemas(problem: Problem) -> dict[str, Schema]:
    """The three requests, and their replies."""
    kinds = _pooled(problem)
    scale = kinds["dmd"]
    sums = {f"{name}.{part}": shape for name, kind in kinds.items()
            for part, shape in kind.sum_shapes().items()}  # fmt: skip
    solved = {f"{name}.{part}": shape for name, kind in kinds.items()
              for part, shape in kind.shapes()}  # fmt: skip
    model = {f"federated.{name}": shape for name, shape in problem.architecture.shapes()}
    found = ArrayField((len(HORIZONS),), "float64", finite=False)
    return {
        "compare-scale": Schema("nothing", reply="scale-to-compare", data="arrived"),
        "scale-to-compare": Schema(
            "counts, sums and squares of states", _fields(scale.scale_shapes()), additive=True
        ),
        "compare-sums": Schema(
            "the scale", _fields(scale.fixed_shapes()), reply="sums-to-compare", data="arrived"
        ),
        "sums-to-compare": Schema("sums of products of states", _fields(sums), additive=True),
        "compare-errors": Schema(
            "models by least squares, and the shared model",
            {**_fields(solved), **_fields(model, str(problem.model_dtype))},
            {"pooled": NumberField(0, 1, whole=True), "relift": NumberField(0, 1e6, whole=True)},
            reply="compared-errors",
            data="arrived",
        ),
        "compared-errors": Schema(
            "errors of forecasts by steps ahead", dict.fromkeys(MODELS, found)
        ),
    }


def answer(problem: Problem, request: Message, holdings: Holdings) -> Message:
    """A site's reply."""
    given, kinds = request.arrays, _pooled(problem)
    if request.kind == "compare-scale":
        return Message("scale-to-compare", _added(
            [kinds["dmd"].scale_sums(part) for part in _blocks(holdings.arrived)]
        ))  # fmt: skip
    if request.kind == "compare-sums":
        sums = {
            f"{name}.{part}": leaf
            for name, kind in kinds.items()
            for part, leaf in _added(
                [kind.sums(given, {}, part) for part in _blocks(holdings.arrived)]
            ).items()
        }
        return Message("sums-to-compare", sums)
    return Message("compared-errors", _errors(problem, request, holdings))


def hidden(
    problem: Problem, request: Message, replies: Mapping[str, Message]
) -> dict[str, Message]:
    """What a server sees of replies: their sum alone, where a study asks for that."""
    known = schemas(problem)
    if not problem.aggregation.secure or not known[known[request.kind].reply].additive:
        return dict(replies)
    everybody = {n: (request, Answered(reply, 0, (n,))) for n, reply in enumerate(replies.values())}
    return {EVERYBODY: pooled(known, everybody).message} if everybody else {}


def compared(
    problem: Problem, model: Arrays, relift: int, exchange: Exchange
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """By site and forecast the errors at `HORIZONS`; NaN where nothing could be compared, and
    infinite where a forecast is not finite.

    Arguments:
        model: the shared one, by name.
        relift: after how many applications of K forecasts are lifted anew; 0: never.
        exchange: how sites are asked.
    """
    kinds = _pooled(problem)
    scales = exchange(Message("compare-scale"))
    fixed = kinds["dmd"].fixed(_added([one.arrays for one in scales.values()]) if scales else None)
    found = exchange(Message("compare-sums", fixed))
    sums = _added([one.arrays for one in found.values()]) if found else {}
    pooled = bool(sums) and sums["dmd.pairs"][0] > 0
    solved: dict[str, NDArray[Any]] = {}
    for name, kind in kinds.items():
        own = kind.solve(fixed, {}, _part(name, sums)) if pooled else kind.unsolved(fixed, {})
        solved |= {f"{name}.{part}": leaf for part, leaf in own.items()}
    shared = {f"federated.{name}": leaf for name, leaf in model.items()}
    how = {"pooled": float(pooled), "relift": float(relift)}
    request = Message("compare-errors", {**solved, **shared}, how)
    return {site: dict(reply.arrays) for site, reply in exchange(request).items()}


def benefit_entry(
    problem: Problem, errors: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> dict[str, Any]:
    """What `compared` found, as it stands in a summary; nothing if no site has compared."""
    found = benefit(
        errors,
        HORIZONS,
        kind=problem.architecture.name,
        degree=degree_of(problem.architecture.state_dim),
        clients=problem.clients,
    )
    return {} if found is None else {"benefit": found}


def _errors(problem: Problem, request: Message, holdings: Holdings) -> dict[str, NDArray[Any]]:
    """The errors of every forecast on a site's held-out segments."""
    given, kind, pooled = request.arrays, problem.architecture, request.numbers["pooled"] > 0
    relift = int(request.numbers["relift"])
    rollouts: dict[str, Rollout | None] = {
        "holding": holding(kind.state_dim),
        "alone": _alone(problem, holdings, relift),
        "federated": rollout_of(kind, kind.from_named(_part("federated", given)), relift),
    }
    for name, least_squares in _pooled(problem).items():
        weights = _part(name, given) if pooled else None
        rollouts[name] = rollout_of(least_squares, weights, relift)
    return {
        name: errors_of(
            rollouts[name],
            holdings.held_out,
            window=kind.window,
            depth=kind.depth,
            inputs=kind.inputs,
        )
        for name in MODELS
    }


def _alone(problem: Problem, holdings: Holdings, relift: int) -> Rollout | None:
    """The forecasts of what a site learns from its own data; nothing where there is no other site,
    or no data."""
    if problem.clients < 2 or not holdings.arrivals:
        return None
    found = model_alone(problem, holdings.identity, holdings.arrived, holdings.arrivals)
    if found is None:
        return diverged
    return rollout_of(problem.architecture, problem.architecture.from_named(found), relift)


def _pooled(problem: Problem) -> dict[str, EDMD]:
    """What is solved by least squares over all sites' data."""
    shared = problem.architecture
    sizes = {"state_dim": shared.state_dim, "depth": shared.depth, "inputs": shared.inputs}
    degrees = {"dmd": 1, "edmd": degree_of(shared.state_dim)}
    return {n: EDMD.of(**sizes, degree=k) for n, k in degrees.items()}


def _blocks(segments: Sequence[NDArray[np.float64]]) -> Iterator[list[NDArray[np.float64]]]:
    """Segments, some at a time, so that no copy of all is made; at least one list."""
    block, samples = list[NDArray[np.float64]](), 0
    for states in segments:
        block += stretches(states)
        samples += len(states)
        if samples >= BLOCK:
            yield block
            block, samples = [], 0
    if block or not len(segments):
        yield block


def _fields(shapes: Mapping[str, tuple[int, ...]], dtype: str = "float64") -> dict[str, ArrayField]:
    return {name: ArrayField(shape, dtype) for name, shape in shapes.items()}


def _part(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    start = f"{prefix}."
    return {n.removeprefix(start): leaf for n, leaf in arrays.items() if n.startswith(start)}


def _added(parts: Sequence[Arrays]) -> dict[str, NDArray[Any]]:
    """The sum, array by array, in the order of the parts."""
    return {name: sum((one[name] for one in parts[1:]), parts[0][name]) for name in parts[0]}
