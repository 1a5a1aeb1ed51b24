"""What a finished run leaves: the model, a rollout to look at, and the summary."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.sites import held_out
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.koopman.network import Weights
from fedkoopman.studies.config import Study

__all__ = ["METRICS", "model_of", "rollout_of", "summarise"]

METRICS = ("l1", "l2", "l3", "loss", "E1", "E2", "E", "horizon")


def model_of(
    study: Study, experiment: Experiment, weights: Weights, records: list[dict[str, Any]]
) -> DeepKoopman:
    """The shared model as users have it; who trained it is told in counts only."""
    test = held_out(experiment).trajectories
    mean = test.reshape(-1, test.shape[-1]).mean(axis=0)
    model = DeepKoopman.from_weights(
        experiment.architecture,
        weights,
        dt=float(experiment.system.dt),
        reference=np.tile(mean, experiment.architecture.window),
        names=experiment.system.names,
        units=experiment.system.units,
        training=experiment.training,
        random_state=experiment.seed,
        information={
            "study": study.name,
            "digest": study.digest(),
            "seed": experiment.seed,
            "scheme": experiment.scheme,
            "slots": experiment.slots,
            "clients": len(experiment.clients),
            "rounds": _trainings(study, records),
            "samples": sum(record["samples"] for record in records),
        },
    )
    if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        model.measure_noise(list(test))  # what a filter or a forecast must know
    return model


def rollout_of(experiment: Experiment, model: DeepKoopman) -> dict[str, Any]:
    """The first held-out trajectory beside the model's predictions, for the report."""
    truth = held_out(experiment).trajectories[0]
    window, depth = experiment.architecture.window, experiment.architecture.depth
    # Row k predicts truth[k + 1]; where windows and depth leave none, it stays empty.
    one_step, free = np.full((2, len(truth) - 1, truth.shape[1]), np.nan)
    first = window + depth - 2
    start = truth[:window] if window > 1 else truth[0]
    with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
        one_step[first:] = np.asarray(model.predict(truth, n_steps=1))[:-depth]
        free[first::depth] = model.simulate(start, (len(truth) - window) // depth)
    return {
        "dt": float(experiment.system.dt),
        "depth": depth,
        "names": list(experiment.system.names),
        "units": list(experiment.system.units),
        "truth": _rounded(truth),
        "one_step": _rounded(one_step),
        "free": _rounded(free),
        "eigenvalues": [[float(v.real), float(v.imag)] for v in model.eigenvalues_],
    }


def summarise(
    study: Study,
    records: dict[int, list[dict[str, Any]]],
    untrained: dict[int, dict[str, Any]],
    seconds: float | None = None,
) -> dict[str, Any]:
    """Means over the last slots of each seed; mean and standard deviation of these over seeds.

    Arguments:
        records, untrained: by seed, the records and the scores of the first model.
        seconds: how long all of it took; None takes the longest seed's.
    """
    tail = study.evaluation.tail_slots
    every = [record for mine in records.values() for record in mine]
    summary: dict[str, Any] = {
        "name": study.name,
        "seeds": list(records),
        "slots": study.slots,
        "scheme": study.scheme,
        "tail_slots": min(tail, study.slots),
    }
    for name in METRICS:
        means = [_mean(record[name] for record in mine[-tail:]) for mine in records.values()]
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        summary[name] = {"mean": _finite(np.mean(means)), "std": _finite(spread)}
    summary["untrained"] = {
        name: _finite(_mean(first[name] for first in untrained.values())) for name in METRICS
    }
    summary["rounds"] = _trainings(study, every) / len(records)
    summary["samples"] = sum(record["samples"] for record in every) / len(records)
    summary["dropped"] = sum(len(record["dropped"]) for record in every)
    summary["refused"] = sum(len(record.get("refused", ())) for record in every)
    longest = max(mine[-1]["seconds"] for mine in records.values())
    summary["seconds"] = round(longest if seconds is None else seconds, 3)
    summary["finished"] = True
    return summary


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
