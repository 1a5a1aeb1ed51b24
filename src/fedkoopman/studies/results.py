"""What a finished run leaves: the model, a rollout to look at, and the summary."""

from typing import Any

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
    return DeepKoopman.from_weights(
        experiment.architecture,
        weights,
        dt=float(experiment.system.dt),
        reference=np.tile(mean, experiment.architecture.window),
        names=experiment.system.names,
        units=experiment.system.units,
        information={
            "study": study.name,
            "digest": study.digest(),
            "seed": experiment.seed,
            "scheme": experiment.scheme,
            "slots": experiment.slots,
            "clients": len(experiment.clients),
            "rounds": sum(len(record["active"]) for record in records),
            "samples": sum(record["samples"] for record in records),
        },
    )


def rollout_of(experiment: Experiment, model: DeepKoopman) -> dict[str, Any]:
    """The first held-out trajectory beside the model's predictions, for the report."""
    truth = held_out(experiment).trajectories[0]
    window, depth = experiment.architecture.window, experiment.architecture.depth
    applications = (len(truth) - window) // depth
    one_step = np.asarray(model.predict(truth, n_steps=1))[:-depth]
    free = np.asarray(model.simulate(truth[:window] if window > 1 else truth[0], applications))
    return {
        "dt": float(experiment.system.dt),
        "depth": depth,
        "window": window,
        "names": list(experiment.system.names),
        "units": list(experiment.system.units),
        "truth": _rounded(truth),
        "one_step": _rounded(one_step),
        "free": _rounded(free),
        "eigenvalues": [[float(v.real), float(v.imag)] for v in model.eigenvalues_],
    }


def summarise(study: Study, records: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Means over the last slots of each seed; mean and standard deviation of these over seeds."""
    tail = study.evaluation.tail_slots
    trained = {seed: [r for r in mine if r["slot"] > 0] for seed, mine in records.items()}
    summary: dict[str, Any] = {
        "name": study.name,
        "seeds": list(records),
        "slots": study.slots,
        "scheme": study.scheme,
        "tail_slots": min(tail, study.slots),
    }
    for name in METRICS:
        means = [
            np.mean([np.nan if r[name] is None else r[name] for r in mine[-tail:]])
            for mine in trained.values()
        ]
        spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
        summary[name] = {"mean": _finite(np.mean(means)), "std": _finite(spread)}
    each = [
        (
            sum(len(r["active"]) for r in mine),
            sum(r["samples"] for r in mine),
            sum(len(r["dropped"]) for r in mine),
            sum(len(r.get("refused", ())) for r in mine),
        )
        for mine in trained.values()
    ]
    for i, name in enumerate(("rounds", "samples", "dropped", "refused")):
        summary[name] = float(np.mean([counts[i] for counts in each]))
    summary["seconds"] = max(mine[-1]["seconds"] for mine in records.values())
    summary["finished"] = True
    return summary


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rounded(values: np.ndarray) -> list:
    """Numbers as a picture needs them; what is not finite is null."""
    return [[_finite(float(f"{v:.7g}")) for v in row] for row in values]
