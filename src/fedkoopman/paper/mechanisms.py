"""Models seen through sensors, one step ahead: on mechanisms that clients have, and on others.

The paper rejects learning from raw observations: "the results will be confined solely to specific
observation mechanisms" (Section I), and are "valid only for the originating client" (Section II).
Errors of states and of observations have no common unit; seen through one sensor they have. A model
of states predicts a state, which the sensor then shows; a model of observations predicts what the
sensor shows. Both start from the truth without noise. "Valid" is read as: better than holding the
last observation.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.paper.arms import Measured
from fedkoopman.paper.items import Claim, Numbers, Panel, Series
from fedkoopman.paper.verdicts import Values, all_of, compared, ratio

if TYPE_CHECKING:
    from fedkoopman.koopman.model import DeepKoopman

CLIENTS, MECHANISMS = 5, 10
"""Sensors of the paper's clients, and with those that further clients would have."""
PLACES = {
    "the first client's": range(1),
    "the other clients'": range(1, CLIENTS),
    "no client's": range(CLIENTS, MECHANISMS),
}
FIRST, OTHERS, NEW = PLACES.values()
KNOWN = range(CLIENTS)
CONFINED = 2.0
"""Results are confined to a mechanism if errors on others are larger by more than this factor."""
SIMILAR = 2.0
"""Errors within this factor of each other count as similar."""


def through_sensors(study: Study, seed: int, model: "DeepKoopman") -> dict[str, Any]:
    """A model's mean squared one-step error on all test trajectories, and that of holding the last
    observation, seen through each of the mechanisms; what is not finite is None.

    Nothing is claimed of the other schemes, so nothing is measured.
    """
    if study.scheme not in ("kf-fedkl", "observations"):
        return {}
    from fedkoopman.federation.sites import held_out
    from fedkoopman.runs.experiment import experiment_of
    from fedkoopman.sensors import observe

    everybody = study.with_values({"scheme": "kf-fedkl", "clients.count": MECHANISMS})
    experiment = experiment_of(everybody, seed)
    states = held_out(experiment)[0].trajectories
    of_observations = study.scheme == "observations"
    ahead = None if of_observations else _one_step(model, states)
    found: dict[str, Any] = {"error": [], "held": []}
    for client in experiment.clients:
        seen = observe(client.sensor, states)
        guess = _one_step(model, seen) if ahead is None else observe(client.sensor, ahead)
        for name, predicted in (("error", guess), ("held", seen[:, :-1])):
            with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
                error = float(np.mean((predicted - seen[:, 1:]) ** 2))
            found[name].append(error if np.isfinite(error) else None)
    return found


def _one_step(model: "DeepKoopman", x: Values) -> Values:
    """x̂_{k+1} from each x_k but the last, (R, T − 1, d)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(model.predict(x, n_steps=1, relift=0))[:, :-1]


def errors(arm: Measured, mechanisms: range, name: str = "error") -> Values:
    """Means over some mechanisms, by seed: of the model, or of holding (`held`)."""
    rows = np.array([one[name] for one in arm.table["models"]], float)
    return rows[:, list(mechanisms)].mean(axis=1)


def claims(kf: Measured, shared: Measured, alone: Measured) -> tuple[Claim, ...]:
    """The paper's claims on direct use of observations, and ours beside them.

    Arguments:
        kf: KF-FedKL.
        shared: all clients, federated on raw observations.
        alone: the first client, trained on its own raw observations.
    """
    own, new = errors(alone, FIRST), errors(alone, NEW)
    valid = ("own mechanism: holding to model", errors(alone, FIRST, "held"), own)
    everywhere = ratio(errors(shared, NEW), errors(shared, KNOWN)).words
    return (
        all_of(
            "direct use of observations for Koopman learning is feasible (Section I)",
            compared([valid]),
            lead="one client, ",
        ),
        all_of(
            "but its results are confined to specific observation mechanisms (Section I)",
            (
                *compared([("mechanisms of no client to its own", new, own)], CONFINED),
                *compared([("there, model to holding", new, errors(alone, NEW, "held"))]),
            ),
            lead="one client: ",
        ),
        all_of(
            "linearization of local observations is valid only for the originating client "
            "(Section II)",
            compared(
                [
                    valid,
                    (
                        "other clients' mechanisms: model to holding",
                        errors(alone, OTHERS),
                        errors(alone, OTHERS, "held"),
                    ),
                ]
            ),
        ),
        all_of(
            "federated on raw observations, one model serves no mechanism: it is worse than "
            "holding the last observation, and than a client alone",
            compared(
                [
                    (
                        "its clients' mechanisms: model to holding",
                        errors(shared, KNOWN),
                        errors(shared, KNOWN, "held"),
                    ),
                    ("first client's: to that client alone", errors(shared, FIRST), own),
                ]
            ),
            lead=f"mechanisms of no client to its clients' {everywhere}; ",
            ours=True,
        ),
        all_of(
            "KF-FedKL, seen through a sensor, is better than direct use even on the client's own "
            "mechanism, and as good on mechanisms that no client has",
            (
                *compared(
                    [("first client's: that client alone to KF-FedKL", own, errors(kf, FIRST))]
                ),
                ratio(errors(kf, NEW), errors(kf, KNOWN)).within(
                    SIMILAR, "KF-FedKL, mechanisms of no client to its clients'"
                ),
            ),
            ours=True,
        ),
    )


NOTE = (
    f"(d) and the claims on raw observations: mean squared one-step errors of the final models on "
    f"all test trajectories, per observed component, seen through the sensors of the {CLIENTS} "
    f"clients and of {MECHANISMS - CLIENTS} that further clients would have. KF-FedKL starts from "
    "the true state, a model of observations from the true observation, which holds less. “Valid” "
    "is read as better than holding the last observation, “confined” as errors on other mechanisms "
    f"more than {CONFINED:g} times as large. The other scores of models of observations are in "
    "units of observations, on their clients' own sensors, and do not compare with the rest."
)


def panel(arms: dict[str, Measured]) -> Panel:
    """Errors by mechanism: means over seeds, with their standard deviation."""
    places = [float(i) for i in range(len(PLACES))]

    def line(label: str, arm: Measured, name: str, muted: bool = False) -> Series:
        values = np.stack([errors(arm, which, name) for which in PLACES.values()])
        spread = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(values))
        mean = values.mean(axis=1).tolist()
        return Series(label, places, mean, spread.tolist(), style="points", muted=muted)

    first = next(iter(arms.values()))
    lines = [line("holding the last", first, "held", muted=True)]
    lines += [line(label, arm, "error") for label, arm in arms.items()]
    return Panel(
        "seen through sensors (ours)", "observation mechanism", "one-step error", tuple(lines),
        log_y=True, names=tuple(PLACES),
    )  # fmt: skip


def numbers(arms: dict[str, Measured]) -> Numbers:
    """Every seed's errors, by mechanism."""
    rows = [
        (label, seed, i + 1, i < CLIENTS, one["error"][i], one["held"][i])
        for label, arm in arms.items()
        for seed, one in zip(arm.table["seeds"], arm.table["models"], strict=True)
        for i in range(MECHANISMS)
    ]
    columns = ("setting", "seed", "mechanism", "of_a_client", "one_step_error", "holding_error")
    return Numbers("mechanisms", columns, tuple(rows))
