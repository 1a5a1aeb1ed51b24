"""A study: everything that decides an experiment, as frozen data read from strict TOML.

    study = Study.paper_default(slots=50).with_values({"training.epochs": 5})
    study = Study.load("study.toml")

Every way to a `Study` checks it. What can be told without the system is checked without JAX, on
construction; `Study.check` does the rest, and `Study.load` calls it.
"""
# ruff: noqa: RUF009 - what `part` returns is a field with a factory

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedkoopman.config.digest import digest_of, lasting
from fedkoopman.config.loader import Section, key, part, read_toml, unknown_key, value_of
from fedkoopman.config.sections import (
    AggregationSection,
    AlgorithmSection,
    ClientsSection,
    EstimationSection,
    EvaluationSection,
    NetworkSection,
    PolicySection,
    PrivacySection,
    RecordingsSection,
    SegmentsSection,
    ServerSection,
    SitesSection,
    SystemSection,
    TrainingSection,
    per_client,
)
from fedkoopman.config.tables import TABLES
from fedkoopman.errors import InputError, short
from fedkoopman.rules import SEED, Auto, Choice, OneOrEach, Rule, Text, Whole
from fedkoopman.session_objects import is_object

__all__ = ["SCHEMES", "Study", "per_client"]

SCHEMES = ("kf-fedkl", "single-client", "perfect-data", "centralized", "observations")

RECOMMENDED = {
    "network.kind": "spectral",
    "estimation.method": "ukf-resampled",
    "estimation.alpha": 1.0,
    "estimation.kappa": 0.0,
    "estimation.lost_track": "drop",
}
"""What we recommend instead of the paper's values: the kind that forecasts best, and a consistent
filter, whose segments are left out where it lost track."""
RECOMMENDED_SIMULATED = {
    "estimation.initial_mean": "auto",
    "estimation.initial_cov": "auto",
    "clients.process_noise": "auto",
}
"""Also, where clients are simulated: what they know of the initial state, and their own noise."""


@dataclass(frozen=True)
class Study(Section):
    """An experiment: a system, its observers, and how they learn one model together."""

    name: str = key("paper-default", Text(), "The study's name")
    seed: int = key(0, SEED, "Seed of every random draw")
    slots: int = key(200, Whole(1), "Time slots", "M")
    scheme: str = key(
        "kf-fedkl", Choice(SCHEMES), "Who trains on what: the paper's method or a benchmark of it"
    )
    trajectories: str = key(
        "common",
        Choice(("common", "per-client")),
        "Whether all clients watch one trajectory in a slot, or each its own",
    )
    system: SystemSection = part(SystemSection)
    sites: SitesSection = part(SitesSection)
    segments: SegmentsSection = part(SegmentsSection)
    recordings: RecordingsSection = part(RecordingsSection)
    clients: ClientsSection = part(ClientsSection)
    estimation: EstimationSection = part(EstimationSection)
    network: NetworkSection = part(NetworkSection)
    training: TrainingSection = part(TrainingSection)
    algorithm: AlgorithmSection = part(AlgorithmSection)
    aggregation: AggregationSection = part(AggregationSection)
    server: ServerSection = part(ServerSection)
    privacy: PrivacySection = part(PrivacySection)
    policy: PolicySection = part(PolicySection)
    evaluation: EvaluationSection = part(EvaluationSection)
    folder: Path | None = field(default=None, compare=False)
    """Where "file.py:name" and recordings are looked up; the working directory if None. Not part of
    the TOML."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))
        _check_client_lists(self)
        _check_lengths(self)
        _check_recordings(self)
        _check_sites(self)
        _check_aggregation(self)
        _check_privacy(self)

    @classmethod
    def paper_default(cls, slots: int = 200, seed: int = 0, **changes: Any) -> "Study":
        """The paper's default experiment.

        Arguments:
            slots: M.
            seed: of every random draw.
            changes: sections or top-level keys, as `clients={"count": 10}`; a `System` in place
                of the section `system`, and a function in place of `policy`.
        """
        return cls.from_dict({"slots": slots, "seed": seed, **changes})

    @classmethod
    def recommended(cls, slots: int = 200, seed: int = 0, **changes: Any) -> "Study":
        """The same federation with the model kind and the states that we recommend.

        Arguments:
            slots, seed, changes: as for `paper_default`.
        """
        return cls.paper_default(slots, seed, name="recommended", **changes).as_recommended()

    def as_recommended(self) -> "Study":
        """This study with the model kind, and the way to states, that we recommend.

        Sites with data of their own say in their site files what they know of noise and initial
        states, so that is left to them.
        """
        values = dict(RECOMMENDED)
        if not self.sites.files:
            values |= RECOMMENDED_SIMULATED
        # A staged kind is solved in the last tenth of the slots: earlier models are previews.
        values["evaluation.tail_slots"] = min(self.evaluation.tail_slots, max(1, self.slots // 20))
        return self.with_values(values)

    @classmethod
    def load(cls, path: str | Path, values: Mapping[str, Any] | None = None) -> "Study":
        """Read a study file and check all of it, the system included.

        Arguments:
            values: what replaces the file's, by dotted key, as for `with_values`.
        """
        path = Path(path)
        table = read_toml(path)
        for name, value in (values or {}).items():
            _put(table, str(name), value, cls.rules())
        study = cls.from_dict(table, path.absolute().parent)
        study.check()
        return study

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], folder: Path | None = None) -> "Study":
        """A study from nested tables; what is missing takes its default.

        Arguments:
            table: as `tomllib` reads it; sections may also be section objects.
            folder: where "file.py:name" and recordings are looked up.
        """
        if not isinstance(table, Mapping):
            raise InputError(f"a study is {short(table)}: give a table with keys and sections")
        cls.check_keys(table, cls.known())
        return cls(**table, folder=folder)

    def with_values(self, values: Mapping[str, Any]) -> "Study":
        """The study with some values replaced, checked as far as that needs no JAX.

        Arguments:
            values: by dotted key, as "slots", "training.epochs" or "system.parameters.b"; Python
                objects, or text read as TOML ("5", "[1, 2]", "true"), bare words being text. A
                `System` may stand for "system", and a function for "policy" or wherever
                "file.py:name" may. If it is of this Python session only, the study runs in memory
                and has no run directory.
        """
        table = self.to_dict()
        sections = {field.name: field.metadata["section"] for field in self.parts()}
        for name, value in values.items():
            if name in sections and is_object(value):
                value = sections[name].table_of(value)
            _put(table, str(name), value, self.rules())
        return type(self).from_dict(table, self.folder)

    def check(self, sites: bool = True) -> None:
        """Check what needs the system: dimensions, sensors, parameters, files. Loads JAX.

        Arguments:
            sites: whether its site files are here to be looked at.
        """
        from fedkoopman.config.parts import check_parts

        check_parts(self, sites)

    @property
    def root(self) -> Path:
        """The directory in which "file.py:name" and recordings are looked up."""
        return self.folder or Path.cwd()

    def to_dict(self) -> dict[str, Any]:
        """Nested tables with every key, as `from_dict` takes them."""
        return self.table()

    def lasting_dict(self) -> dict[str, Any]:
        """As `to_dict`, without later keys that have their default; see `config.digest`."""
        return lasting(self.to_dict(), type(self)().to_dict())

    def to_toml(self, comments: bool = False, *, lasting: bool = False) -> str:
        """The whole study as TOML; reading it gives an equal study.

        Arguments:
            comments: precede each key with what it means and what it may be.
            lasting: write only the keys of `lasting_dict`.
        """
        table = self.lasting_dict() if lasting else self.to_dict()
        lines = self.lines(table, comments)
        for name in (holder.name for holder in self.parts() if holder.name in table):
            section = getattr(self, name)
            lines += ["", *([f"# {section.__doc__}"] if comments else []), f"[{name}]"]
            lines += section.lines(table[name], comments)
        return "\n".join(lines) + "\n"

    def digest(self) -> str:
        """A sha256 that two studies share if and only if they differ at most in their seeds."""
        return digest_of(self.lasting_dict())

    def seeded_digest(self, seed: int | None = None) -> str:
        """The digest with a seed: what a checkpoint, a site's store and every message name."""
        return f"{self.digest()}:{self.seed if seed is None else seed}"


def _put(table: dict[str, Any], name: str, given: Any, rules: Mapping[str, Rule]) -> None:
    """Set a dotted key in a study's nested table; it may reach into a table that is a value.

    Arguments:
        name: as "slots", "training.epochs" or "system.parameters.b".
        given: the value, or text as for `value_of`; a section takes a table of some of its keys.
    """
    sections = {known.partition(".")[0] for known in rules if "." in known}
    if name in sections:
        part = value_of(given)
        part = part.table() if isinstance(part, Section) else part
        if not isinstance(part, Mapping):
            raise InputError(f"{name} is {short(part)}: give a table, or set one of its keys")
        for inner_name, value in part.items():
            _put(table, f"{name}.{inner_name}", value, rules)
        return
    whole = next((known for known in rules if name == known or name.startswith(f"{known}.")), None)
    if whole is None:
        raise unknown_key(name, [*rules, *sorted(sections)])
    *above, last = whole.split(".")
    for section in above:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"{section} is {short(inner)}: give a table [{section}]")
        table = inner
    rest = name.removeprefix(whole).removeprefix(".").split(".")
    if rest == [""]:
        table[last] = value_of(given, rules[whole])
        return
    rule = rules[whole]
    while isinstance(rule, OneOrEach | Auto):
        rule = rule.rule
    if not isinstance(rule, TABLES) or len(rest) > 1:
        raise unknown_key(name, rules)
    before = table.get(last)
    if isinstance(before, list):
        raise InputError(f"{whole} is a list with one per client: set {whole} itself, not {name}")
    table[last] = {**(before if isinstance(before, dict) else {}), rest[0]: value_of(given)}


def _check_client_lists(study: Study) -> None:
    """Every list with one per client has that many entries."""
    count = study.clients.count
    lists = {
        name: attrgetter(name)(study)
        for name, rule in study.rules().items()
        if isinstance(rule, OneOrEach) and rule.of == "client"
    }
    lists |= {f"clients.dynamics.{name}": v for name, v in study.clients.dynamics.items()}
    for name, value in lists.items():
        if isinstance(value, tuple) and len(value) != count:
            raise InputError(
                f"{name} has {len(value)} entries but clients.count is {count}: give one value for "
                f"all, or a list of {count}"
            )


def _check_lengths(study: Study) -> None:
    """A segment is long enough for a training pair, a trajectory for the longest prediction."""
    steps, window, depth = study.segments.steps, study.network.window, study.network.depth
    if steps < window + depth:
        raise InputError(
            f"segments.steps is {steps}, shorter than network.window + network.depth = {window} + "
            f"{depth}: give at least {window + depth} steps, or a smaller window or depth"
        )
    horizon = study.evaluation.horizon
    longest = (steps - window + 1) // depth
    if horizon > longest:
        raise InputError(
            f"evaluation.horizon is {horizon} but trajectories of segments.steps = {steps} with "
            f"network.window = {window} and network.depth = {depth} hold {longest}: give at most "
            f"{longest}"
        )


def _check_sites(study: Study) -> None:
    """Real sites bring their own data, and so leave nothing to be simulated."""
    files = study.sites.files
    if not files:
        if study.system.unknown:
            raise InputError(
                f"system.unknown names {', '.join(study.system.unknown)} but sites.files is empty: "
                "parameters are estimated from sites' data, name their site files"
            )
        return
    if len(set(files)) < len(files):
        raise InputError(f"sites.files names {short(list(files))}: name each site file once")
    if study.clients.count != len(files):
        raise InputError(
            f"clients.count is {study.clients.count} but sites.files names {len(files)} sites: "
            f"give {len(files)}"
        )
    if study.scheme == "perfect-data":
        raise InputError(
            'scheme is "perfect-data" but real sites do not know the true states: give another'
        )
    if study.scheme == "observations":
        raise InputError(
            'scheme is "observations", which simulated clients train on, but sites.files names '
            'sites, whose recordings have gaps and units of their own: give "kf-fedkl", whose '
            "filter takes them as they are"
        )
    if study.recordings.train:
        raise InputError("both sites.files and recordings.train are given: give one of them")
    for section, names in (
        (study.clients, ("sensor", "observation_noise", "process_noise", "dynamics")),
        (study.estimation, ("initial_mean", "initial_cov")),
    ):
        for name in names:
            if (given := getattr(section, name)) != getattr(type(section)(), name):
                raise InputError(
                    f"{section.dotted(name)} is {short(given)} but every site says this for "
                    "itself: leave it out, and look into the site files"
                )


def _check_aggregation(study: Study) -> None:
    """Where the server may see only sums, nothing is asked for that needs single updates."""
    if not study.aggregation.secure:
        return
    why = "aggregation.secure is true, so that the server sees only sums, but "
    if study.aggregation.rule != "mean":
        raise InputError(
            f'{why}aggregation.rule is "{study.aggregation.rule}", which looks at single updates: '
            'give "mean", or leave out aggregation.secure'
        )
    if study.aggregation.guard == "on":
        raise InputError(
            f'{why}aggregation.guard is "on", which judges single updates: give "off" or "auto", '
            "or leave out aggregation.secure"
        )
    if study.policy.name in ("random", "round-robin"):
        raise InputError(
            f'{why}policy.name is "{study.policy.name}", by which one client trains at a time, and '
            'a sum of one hides nothing: give "threshold"'
        )
    if study.clients.count < 2 or study.scheme in ("single-client", "centralized"):
        raise InputError(
            f'{why}with clients.count = {study.clients.count} and scheme = "{study.scheme}" there '
            "are no two updates to add up: leave out aggregation.secure"
        )


def _check_privacy(study: Study) -> None:
    """Noise of the server goes with the mean only, and noise of sites with data that stay there."""
    mode, rule = study.privacy.mode, study.aggregation.rule
    if mode == "central" and rule != "mean":
        raise InputError(
            f'privacy.mode is "central" but aggregation.rule is {short(rule)}: noise hides one '
            'update in a mean, give rule = "mean", or mode = "site"'
        )
    if mode == "central" and study.aggregation.guard == "on":
        raise InputError(
            'privacy.mode is "central" but aggregation.guard is "on": other sites would judge, and '
            'so see, updates without noise; give guard = "off" or "auto", or mode = "site"'
        )
    if mode != "none" and study.aggregation.secure:
        raise InputError(
            f'privacy.mode is "{mode}" but aggregation.secure is true: the server keeps account of '
            "what each site releases, which it does not see then; leave out one of them"
        )
    if mode != "none" and study.scheme == "centralized":
        raise InputError(
            f'privacy.mode is "{mode}" but scheme is "centralized", where sites send their data: '
            'give another scheme, or mode = "none"'
        )


def _check_recordings(study: Study) -> None:
    """Recordings come in both kinds, and do not start anew from a random state."""
    given = study.recordings
    for missing, other in (("test", "train"), ("train", "test")):
        if getattr(given, other) and not getattr(given, missing):
            raise InputError(
                f"recordings.{missing} is empty but recordings.{other} is not: give files for "
                "both, or for none"
            )
    if given.train and study.segments.restart != 1:
        raise InputError(
            f"segments.restart is {study.segments.restart} but the states are recorded: give 1, "
            'and choose between "random" and "consecutive" by recordings.windows'
        )
