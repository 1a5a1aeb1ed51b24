"""A whole audit: every attack on every arm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedkoopman.audit.arms import Arm, arms_of, epsilon_of
from fedkoopman.audit.features import sample_of
from fedkoopman.audit.gradient_inversion import gradient_attack
from fedkoopman.audit.membership import Membership, membership_attack
from fedkoopman.audit.noise_level import NoiseLevel, levels_of, noise_attack, with_noise_levels
from fedkoopman.audit.reconstruction import Reconstruction
from fedkoopman.audit.source import Source, source_attack
from fedkoopman.audit.statistics import Measured
from fedkoopman.audit.update_inversion import update_attack
from fedkoopman.audit.watching import Update, watched
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.experiment import SCHEMES, Experiment
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.site_preparation import Sites, prepared_sites

__all__ = ["ATTACKS", "Audit", "Effort", "Result", "audit", "check_auditable"]

ATTACKS = ("source", "membership", "gradient", "update", "noise")
Tell = Callable[[str, int, int], None]
"""What is at work, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Effort:
    """How much an audit does.

    Attributes:
        slots: at most so many of the study's.
        victims, shadows: of the membership attack.
        gradients: pieces of segments that are reconstructed from one gradient.
        updates, iterations: real updates that are followed back, and steps of it.
        noisy_sites: sites of the federation with several noise levels.
    """

    slots: int = 10**9
    victims: int = 8
    shadows: int = 48
    gradients: int = 24
    updates: int = 4
    iterations: int = 60
    noisy_sites: int = 16


FULL = Effort()
QUICK = Effort(
    slots=80, victims=3, shadows=16, gradients=8, updates=3, iterations=12, noisy_sites=12
)


@dataclass(frozen=True)
class Result:
    """One arm; in place of an attack that could not be made stands the reason.

    Attributes:
        updates: that the server saw.
        epsilon: with differential privacy, of the site that released most.
        record: what ε is of, one sample or one whole segment.
        single: share of the slots with updates in which one site was alone.
    """

    name: str
    title: str
    updates: int
    epsilon: float | None
    record: str
    single: float
    source: Source | str
    membership: Membership | str
    gradient: Reconstruction | str
    update: Reconstruction | str
    noise: NoiseLevel | str

    @property
    def label(self) -> str:
        """The title, with ε where there is one."""
        if self.epsilon is None:
            return self.title
        return f"{self.title}, ε = {self.epsilon:.3g} per {self.record}"

    def main(self, attack: str) -> Measured | None:
        """The number by which an attack is judged; None where it was not made."""
        found: Any = getattr(self, attack)
        names = {"source": "area", "membership": "area", "noise": "pairs"}
        return None if isinstance(found, str) else getattr(found, names.get(attack, "ratio"))


@dataclass(frozen=True)
class Audit:
    """What a server could learn of a federation.

    Attributes:
        study: that was audited, with its seed.
        slots: that were run.
        sites: how many.
        results: by arm, the least protected first.
        notes: what was left out, and why.
    """

    study: Study
    slots: int
    sites: int
    quick: bool
    results: tuple[Result, ...]
    notes: tuple[str, ...] = field(default=())

    def arm(self, name: str) -> Result:
        """By its name."""
        return next(result for result in self.results if result.name == name)


def check_auditable(study: Study) -> None:
    """Refuse studies in which there is nothing to tell apart."""
    scheme = SCHEMES[study.scheme]
    if scheme.central:
        raise InputError(
            f'scheme is "{study.scheme}", in which sites send their data: there is nothing to '
            'audit, give "kf-fedkl"'
        )
    if scheme.raw:
        raise InputError(
            f'scheme is "{study.scheme}", whose model knows no states to look for: give '
            '"kf-fedkl", which is audited beside an arm that does not filter'
        )
    if study.network.inputs:
        raise InputError(
            "network.inputs is not empty, and the attacks of an audit know no inputs yet: audit "
            "the study without them"
        )
    if scheme.alone or study.clients.count < 2:
        count = 1 if scheme.alone else study.clients.count
        raise InputError(
            f"the study has {count} site, and an audit asks which site an update came from: give "
            "at least 2 (clients.count, or sites.files)"
        )


def audit(
    study: Study, *, quick: bool = False, effort: Effort | None = None,
    tell: Tell = lambda *_: None,
) -> Audit:  # fmt: skip
    """Run the federation in every arm, and attack what its server sees.

    Arguments:
        quick: fewer slots, shadows and victims.
        effort: how much to do, where that is neither of the two usual amounts.
        tell: called as the work goes on.
    """
    check_auditable(study)
    chosen = effort or (QUICK if quick else FULL)
    slots = min(study.slots, chosen.slots)
    arms, notes = arms_of(study.with_values({"slots": slots}), quick)
    results, seen = list[Result](), dict[str, _Seen]()
    with Workers(cores()) as workers:
        for arm in arms:
            key = arm.study.to_toml()
            if key not in seen:
                seen[key] = _seen(arm, chosen, workers, tell)
            results.append(_attacked(arm, seen[key], chosen, workers, tell))
    return Audit(study, slots, study.clients.count, quick, tuple(results), tuple(notes))


@dataclass(frozen=True, eq=False)
class _Seen:
    """A federation with its updates, and one whose sites have different noise."""

    experiment: Experiment
    updates: list[Update]
    noisy: Experiment
    noisy_updates: list[Update]


def _seen(arm: Arm, effort: Effort, workers: Workers, tell: Tell) -> _Seen:
    study, seed = arm.study, arm.study.seed
    sites: Sites | None = None
    if study.sites.files:
        sites = prepared_sites(study, lambda what, *at: tell(f"{arm.title}: {what}", *at))
    experiment = experiment_of(study, seed, sites)
    updates = watched(experiment, workers, lambda *at: tell(f"{arm.title}: federation", *at))
    if not updates:
        raise InputError(
            f"no site ever trained in {study.slots} slots, so there is nothing to audit: give more "
            "slots, or a smaller policy.segments"
        )
    if sites is not None:  # their noise is what it is
        return _Seen(experiment, updates, experiment, updates)
    noisy = with_noise_levels(experiment, effort.noisy_sites, seed=seed)
    told = watched(noisy, workers, lambda *at: tell(f"{arm.title}: several noise levels", *at))
    return _Seen(experiment, updates, noisy, told)


def _attacked(arm: Arm, seen: _Seen, effort: Effort, workers: Workers, tell: Tell) -> Result:
    problem, updates, seed = seen.experiment.problem, seen.updates, arm.study.seed
    schemas = problem.algorithm.messages(problem)
    noisy = seen.noisy.problem
    together = _usual_sum(updates) if arm.summed else 1

    def telling(what: str) -> Callable[[int, int], None]:
        return lambda done, of: tell(f"{arm.title}: {what}", done, of)

    return Result(
        name=arm.name,
        title=arm.title,
        updates=len(updates),
        epsilon=epsilon_of(problem, updates),
        record=problem.privacy.record,
        single=_alone(updates),
        source=source_attack(sample_of(schemas, updates, seed=seed, summed=arm.summed), seed=seed),
        membership=membership_attack(
            problem, updates, workers, victims=effort.victims, shadows=effort.shadows,
            together=together, seed=seed, tell=telling("membership"),
        ),
        gradient=gradient_attack(
            problem, updates, victims=effort.gradients, together=together, seed=seed,
            tell=telling("reconstruction from a gradient"),
        ),
        update=update_attack(
            problem, updates, victims=effort.updates, iterations=effort.iterations,
            summed=arm.summed, seed=seed, tell=telling("reconstruction from an update"),
        ),
        noise=noise_attack(
            sample_of(
                noisy.algorithm.messages(noisy), seen.noisy_updates, seed=seed, summed=arm.summed
            ),
            levels_of(seen.noisy), seed=seed,
        ),
    )  # fmt: skip


def _usual_sum(updates: Sequence[Update]) -> int:
    """Sites in a usual sum of several."""
    sizes = sorted(size for size in _sizes(updates) if size > 1)
    return sizes[len(sizes) // 2] if sizes else 2


def _alone(updates: Sequence[Update]) -> float:
    """The share of slots with updates in which there was one only."""
    sizes = _sizes(updates)
    return sizes.count(1) / len(sizes)


def _sizes(updates: Sequence[Update]) -> list[int]:
    """Updates of each slot, of that kind of reply of which most came."""
    kinds = [update.reply.kind for update in updates]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    slots = [update.slot for update in updates if update.reply.kind == most]
    return [slots.count(slot) for slot in dict.fromkeys(slots)]
