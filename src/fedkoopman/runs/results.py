"""What a finished run leaves: the model, a rollout, the summary, and how sites' data see it.

Sites do not know the truth. Their scores compare predictions with smoothed states and, seen through
the site's sensor, with what it recorded; the latter includes the sensor's noise.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import learned_states
from fedkoopman.config.study import Study
from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.guard.history import trust_entry
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.privacy import privacy_sentence
from fedkoopman.federation.sites import held_out
from fedkoopman.koopman.card import input_rows, state_names
from fedkoopman.koopman.forecast import ErrorSum, error_sums, noise_of_sums
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.koopman.rollout import better_way, way_errors
from fedkoopman.koopman.staged import Staged
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.site_preparation import PreparedSite, Sites

OBSERVATIONS = "what the clients' sensors show (z), not states"
METRICS = ("l1", "l2", "l3", "loss", "E1", "E2", "E", "horizon")


def model_of(
    study: Study,
    experiment: Experiment,
    weights: Arrays,
    records: list[dict[str, Any]],
    private: Mapping[str, Any] | None = None,
) -> DeepKoopman:
    """The shared model as users have it; who trained it is told in counts only.

    Arguments:
        private: of `privacy_told`.
    """
    problem = problem_of(study, experiment.seed, len(experiment.clients), experiment.system)
    bare = bare_model(problem, weights, **_words(study, problem))
    sums = [measured_sums(bare, test.trajectories) for test in held_out(experiment)]
    return finished_model(study, problem, weights, records, sums, private)


def bare_model(problem: Problem, weights: Arrays, **more: Any) -> DeepKoopman:
    """A model around weights, about which nothing has been measured yet."""
    words = {"names": problem.system.names, "units": problem.system.units}
    return DeepKoopman.from_weights(
        problem.architecture,
        problem.architecture.from_named(weights),
        dt=float(problem.system.dt),
        training=problem.training,
        random_state=problem.seed,
        **words | more,
    )


def _words(study: Study, problem: Problem) -> dict[str, tuple[str, ...]]:
    """Names and units of what a study's model predicts, and names of its inputs."""
    words = dict(zip(("names", "units"), learned_states(study, problem.system), strict=True))
    return words | ({"input_names": study.network.inputs} if study.network.inputs else {})


def measured_sums(model: DeepKoopman, windows: NDArray[np.float64]) -> dict[str, NDArray]:
    """What a holder of test windows (R, T, d + m) adds to a finished model: sums, and no states.

    "states" and "count" give the mean state; "moments", "counts" and "spans" tell how far off the
    model is after 1, 2, … steps. Of kinds that are learned in stages, "ways" and "reached" tell how
    good each way to forecast is (`koopman.rollout`); the paper's network is lifted once.
    """
    learned = model.learned_
    dim = learned.architecture.state_dim
    sums = error_sums(learned, list(windows))
    flat = windows.reshape(-1, windows.shape[-1])[:, :dim]
    ways = {}
    if isinstance(learned.architecture, Staged):
        scale = np.asarray(learned.wide["std"])[:dim]
        ways = dict(
            zip(("ways", "reached"), way_errors(learned, list(windows), scale), strict=True)
        )
    return {
        **ways,
        "states": flat.sum(axis=0),
        "count": np.array([float(len(flat))]),
        "moments": np.array([one.moment for one in sums]),
        "counts": np.array([float(one.count) for one in sums]),
        "spans": np.array([float(one.spans) for one in sums]),
    }


def finished_model(
    study: Study,
    problem: Problem,
    weights: Arrays,
    records: list[dict[str, Any]],
    sums: Sequence[Mapping[str, NDArray]],
    private: Mapping[str, Any] | None = None,
) -> DeepKoopman:
    """The shared model with its reference and noise, from what the holders of test data measured.

    Arguments:
        sums: of `measured_sums`, one per holder, in the sites' order.
        private: of `privacy_told`.
    """
    total = sum((one["states"] for one in sums[1:]), sums[0]["states"])
    mean = total / sum(float(one["count"][0]) for one in sums)
    groups = [
        list(map(ErrorSum, one["moments"], map(int, one["counts"]), map(int, one["spans"])))
        for one in sums
    ]
    words = _words(study, problem)
    return bare_model(
        problem,
        weights,
        **words,
        relift=relift_of(sums),
        reference=np.tile(mean, problem.architecture.window),
        noise=noise_of_sums(bare_model(problem, weights, **words).learned_, groups),
        information={
            "study": study.name,
            "digest": study.digest(),
            "seed": problem.seed,
            "scheme": study.scheme,
            "slots": study.slots,
            "clients": problem.clients,
            "rounds": _trainings(study, records),
            "samples": samples_of(records),
            **({"predicts": OBSERVATIONS} if study.scheme == "observations" else {}),
            **({"privacy": privacy_sentence(private["privacy"])} if private else {}),
        },
    )


def relift_of(sums: Sequence[Mapping[str, NDArray]]) -> int:
    """The better way to forecast, by all holders of test data; 0 for the paper's network.

    Arguments:
        sums: of `measured_sums`, one per holder.
    """
    if not sums or not all("ways" in one for one in sums):
        return 0
    squares, reached = (np.sum([one[n] for one in sums], axis=0) for n in ("ways", "reached"))
    return better_way(squares, reached)


def rollout_of(experiment: Experiment, model: DeepKoopman) -> dict[str, Any]:
    """The first held-out trajectory beside the model's predictions, for the report."""
    test = held_out(experiment)[0]
    truth, driven = test.states[0], experiment.architecture.inputs > 0
    U = test.trajectories[0, :, truth.shape[1] :] if driven else None
    window, depth = experiment.architecture.window, experiment.architecture.depth
    # Row k predicts truth[k + 1]; where windows and depth leave none, it stays empty.
    one_step, free = np.full((2, len(truth) - 1, truth.shape[1]), np.nan)
    first = window + depth - 2
    start = truth[:window] if window > 1 else truth[0]
    with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
        one_step[first:] = np.asarray(model.predict(truth, n_steps=1, U=U))[:-depth]
        more: dict[str, Any] = {}
        if U is not None:
            more = {"U": U[window - 1 : -1], "past": U[: window - 1] if window > 1 else None}
        steps = (len(truth) - window) // depth
        free[first::depth] = model.simulate(start, steps, relift=0, **more)
    about: dict[str, Any] = {}
    if U is not None:
        about = {"driven_by": input_rows(model), "inputs": _rounded(U)}
    if model.relift_:
        lifted = np.full_like(free, np.nan)
        lifted[first::depth] = model.simulate(start, steps, **more)
        about |= {"relift": model.relift_, "relifted": _rounded(lifted)}
    return {
        "dt": float(experiment.system.dt),
        "depth": depth,
        "names": list(state_names(model)),
        "units": list(model.units_ or ()),
        "truth": _rounded(truth),
        "one_step": _rounded(one_step),
        "free": _rounded(free),
        **about,
        "eigenvalues": [[float(v.real), float(v.imag)] for v in model.eigenvalues_],
    }


def summarise(
    study: Study,
    records: dict[int, list[dict[str, Any]]],
    untrained: dict[int, dict[str, Any]],
    seconds: float | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Means over the last slots of each seed; mean and standard deviation of these over seeds.

    Slots before a seed's model was first trained do not count, unless there are no others.

    Arguments:
        seconds: how long all of it took; None takes the longest seed's.
        names: of real sites, in the order of their numbers in records.
    """
    tail = study.evaluation.tail_slots
    every = [record for mine in records.values() for record in mine]
    tails = [since_trained(mine, untrained[seed])[-tail:] for seed, mine in records.items()]
    summary: dict[str, Any] = {
        "name": study.name,
        "seeds": list(records),
        "slots": study.slots,
        "scheme": study.scheme,
        "tail_slots": max(map(len, tails)),
    }
    for name in METRICS:
        means = [_mean(record[name] for record in mine) for mine in tails]
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        summary[name] = {"mean": _finite(np.mean(means)), "std": _finite(spread)}
    summary["untrained"] = {
        name: _finite(_mean(first[name] for first in untrained.values())) for name in METRICS
    }
    summary["rounds"] = _trainings(study, every) / len(records)
    summary["samples"] = sum(map(samples_of, records.values())) / len(records)
    summary["dropped"] = sum(len(record["dropped"]) for record in every)
    summary["left_out"] = sum(record.get("left_out", 0) for record in every)
    summary["refused"] = sum(len(record.get("refused", ())) for record in every)
    # Trust is about single sites, whose draws differ from seed to seed: the first seed's is told.
    if trust := trust_entry(next(iter(records.values())), names):
        summary["trust"] = trust
    longest = max(mine[-1]["seconds"] for mine in records.values())
    summary["seconds"] = round(longest if seconds is None else seconds, 3)
    summary["finished"] = True
    return summary


def since_trained(
    records: list[dict[str, Any]], untrained: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Records from the slot on in which a model was first trained; all, if none ever was.

    Arguments:
        untrained: the scores of the first model.
    """
    for place, record in enumerate(records):
        scores = {name: record[name] for name in untrained}
        if scores != untrained and record.get("stage") != "scale":
            return records[place:]
    return records


def site_scores(sites: Sites, model: DeepKoopman, horizon: int) -> dict[str, Any]:
    """By site: counts, noise, and root mean square errors for 1 … horizon applications of K."""
    return {site.name: _about(site) | scores_of(site, model, horizon) for site in sites.sites}


def scores_of(site: PreparedSite, model: DeepKoopman, horizon: int) -> dict[str, Any]:
    """Root mean square errors of a site's held-out segments, by steps ahead.

    `state_error` by state, `observation_error` by channel; None where nothing can be compared.
    `held_error` is the observation error of holding the last state.
    """
    depth, window = model.architecture_.depth, model.architecture_.window
    dim, driven = model.architecture_.state_dim, model.n_inputs_ > 0
    keys = ("state_error", "observation_error", "held_error")
    found: dict[str, list[Any]] = {key: [] for key in keys}
    for steps in range(1, horizon + 1):
        parts: dict[str, list[NDArray[np.float64]]] = {key: [] for key in keys}
        for one in site.held_out:
            ahead, first = steps * depth, window - 1
            count = len(one.states) - first - ahead
            if count < 1:
                continue
            states, U = one.states[:, :dim], one.states[:, dim:] if driven else None
            predicted = np.asarray(model.predict(states, n_steps=steps, relift=0, U=U))[:count]
            truth, z = states[first + ahead :], one.observations[first + ahead :]
            parts["state_error"].append(predicted - truth)
            parts["observation_error"].append(_seen(site, predicted) - z)
            parts["held_error"].append(_seen(site, states[first : first + count]) - z)
        for key, differences in parts.items():
            found[key].append(_root_mean_square(differences))
    return found


def _about(site: PreparedSite) -> dict[str, Any]:
    return {
        "train_segments": len(site.train),
        "train_samples": sum(map(kept_samples, site.train)),
        "held_out_segments": len(site.held_out),
        "dropped": list(site.dropped),
        "left_out": list(site.left_out),
        "observation_noise": np.diag(site.observation_noise).tolist(),
        "process_noise": np.diag(site.process_noise).tolist(),
    }


def _seen(site: PreparedSite, states: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the site's sensor shows of states, without noise."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(site.sensor)(jnp.asarray(states)))


def _root_mean_square(differences: list[NDArray[np.float64]]) -> list[float | None] | None:
    if not differences:
        return None
    joined = np.concatenate(differences)
    counts = (~np.isnan(joined)).sum(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.nansum(joined**2, axis=0) / np.maximum(counts, 1)
    return [
        float(np.sqrt(v)) if n and np.isfinite(v) else None
        for v, n in zip(means, counts, strict=True)
    ]


def samples_of(records: Sequence[Mapping[str, Any]]) -> int:
    """How many samples a model was learned from.

    Stages before the last look at the same data again: of a model that was solved from sums, the
    sums count, in which every sample is once.
    """
    solved = [record for record in records if record.get("stage") == "sums"]
    return sum(record["samples"] for record in solved or records)


def _trainings(study: Study, records: list[dict[str, Any]]) -> int:
    """How often a network was trained: at every active client, or once for all at the server."""
    central = study.scheme == "centralized"
    return sum(bool(r["active"]) if central else len(r["active"]) for r in records)


def _mean(values: Iterable[float | None]) -> float:
    return float(np.mean([np.nan if value is None else value for value in values]))


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rounded(values: np.ndarray) -> list:
    """Numbers as a picture needs them; what is not finite is null."""
    return [[_finite(float(f"{v:.7g}")) for v in row] for row in values]
