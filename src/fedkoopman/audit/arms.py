"""The arms of an audit: the same federation with less or more that protects it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fedkoopman.audit.raw_observations import METHOD
from fedkoopman.audit.watching import Update
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Problem

__all__ = ["RAW", "SECURE", "SMOOTHED", "Arm", "arms_of", "epsilon_of"]

RAW, SMOOTHED, SECURE = "raw", "smoothed", "secure"
BARE = {"privacy.mode": "none", "aggregation.secure": False}
"""Nothing protects but what is in the data."""
LEVELS = (("sample", 1.0), ("sample", 4.0), ("segment", 4.0))
"""Record and σ of the arms with differential privacy; a quick audit has the last."""
PRIVACY = "fedkoopman.federation.privacy"


@dataclass(frozen=True)
class Arm:
    """One way to run the federation.

    Attributes:
        name: unique.
        title: for people.
        study: what is run.
        summed: whether the server sees a slot's sum only.
    """

    name: str
    title: str
    study: Study
    summed: bool = False


def arms_of(study: Study, quick: bool) -> tuple[list[Arm], list[str]]:
    """All arms, and what is left out with the reason.

    Arguments:
        quick: one level of differential privacy, not several.
    """
    bare = study.with_values(BARE)
    raw = bare.with_values(
        {"estimation.method": METHOD, "estimation.lost_track": "keep", "estimation.gate": 0.0}
    )
    filtered = "smoothed" if study.estimation.smooth else "filtered"
    title = f"{filtered} states ({study.estimation.method})"
    arms = [Arm(RAW, "raw observations", raw), Arm(SMOOTHED, title, bare)]
    notes = []
    if find_spec("fedkoopman.koopman.private_training") is None:
        notes.append("Differential privacy is left out: this version cannot train with it.")
    elif find_spec("dp_accounting") is None:
        notes.append(
            "Differential privacy is left out: the package dp-accounting is not installed "
            "(pip install 'fedkoopman[privacy]')."
        )
    else:
        own = [(study.privacy.record, study.privacy.noise)] if study.privacy.mode == "site" else []
        for record, noise in sorted({*own, *(LEVELS[-1:] if quick else LEVELS)}):
            level = {"privacy.mode": "site", "privacy.record": record, "privacy.noise": noise}
            name, words = f"private-{record}-{noise:g}", f"{filtered}, private, σ = {noise:g}"
            arm = Arm(name, words, study.with_values(BARE | level))
            try:
                arm.study.check()
            except InputError as error:  # as for kinds that cannot be trained with it
                notes.append(f"Differential privacy is left out: {error}.")
                break
            arms.append(arm)
    return [*arms, Arm(SECURE, f"{filtered}, secure sum", bare, summed=True)], notes


def epsilon_of(problem: Problem, updates: Sequence[Update]) -> float | None:
    """ε of the site that released most, over the whole federation; None without privacy."""
    if problem.privacy.mode != "site":
        return None
    privacy: Any = import_module(PRIVACY)
    released: dict[int, list[Any]] = {}
    for update in updates:
        if (one := privacy.release_of(problem.privacy, update.reply)) is not None:
            released.setdefault(update.client, []).append(one)
    options = problem.privacy
    found = [privacy.epsilon(own, options.delta, options.record) for own in released.values()]
    return float(max(found)) if found else None
