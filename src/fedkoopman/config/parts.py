"""A study's system, sensors and noise as objects; what does not fit is refused by its key.

This is where a study meets JAX: `check_parts` is all of `Study.check`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedkoopman.config.loader import Section
from fedkoopman.config.recordings import recordings_of
from fedkoopman.config.sections import ServerSection, per_client
from fedkoopman.covariance import covariance
from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.estimation import ESTIMATORS, Options
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.guard.guarded import Guarded
from fedkoopman.federation.options import (
    AggregationOptions,
    BufferOptions,
    PrivacyOptions,
    ServerOptions,
)
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.paths import shown
from fedkoopman.sensors import SENSORS, Sensor
from fedkoopman.systems import System, by_name
from fedkoopman.systems.user import check_own_system
from fedkoopman.user_code import is_reference, load_object, plain_function

USUAL_HORIZON = 30
"""Of the kind spectral, in steps; where a third of a segment holds fewer, it has those."""

if TYPE_CHECKING:
    from fedkoopman.config.site_file import SiteFile
    from fedkoopman.config.study import Study
    from fedkoopman.federation.algorithm import Algorithm
    from fedkoopman.koopman.kind import Kind

Chosen = TypeVar("Chosen", AggregationOptions, BufferOptions, ServerOptions, PrivacyOptions)


def system_of(study: "Study", inputs: int | None = None) -> System:
    """The true system.

    Arguments:
        inputs: how many known inputs it takes, where the site files that say so are elsewhere.
    """
    name, parameters = study.system.name, study.system.parameters
    if not is_reference(name):
        with _naming("system.parameters"):
            return by_name(name, **parameters)
    with _naming("system.name"):
        found = load_object(name, study.root)
    is_class = isinstance(found, type) and issubclass(found, System)
    if not isinstance(found, System) and not is_class:
        with _naming("system.name"):
            f = plain_function(found, name, "f(x)", "a function f(x) or a fedkoopman.System")
        return _from_function(study, f, inputs)
    with _naming("system.parameters"):
        system = by_name(name, study.root, **parameters)
    if system.input_dim and not study.sites.files:
        raise InputError(
            f"system.name is {name!r}, which takes {system.input_dim} inputs: a study has none to "
            "give, write the system without"
        )
    with _naming("system.name"):
        check_own_system(system, name)
    return system


def _from_function(study: "Study", f: Callable[..., Any], inputs: int | None) -> System:
    """ẋ = f(x), or f(x, u) where sites have inputs, with its keywords as parameters."""
    name, states, options = study.system.name, study.system.states, dict(study.system.parameters)
    if not states:
        raise InputError(
            f"system.name: {name!r} is a function, which does not say how many states there are: "
            'name them, as system.states = ["theta", "omega"]'
        )
    dt = options.pop("dt", None)
    if dt is None:
        raise InputError("system.parameters has no dt: give the sampling interval, as dt = 0.02")
    with _naming(f"system.name {name!r}"):
        parameters, positional = _signature(f)
    for option in options:
        if option not in parameters:
            raise unknown_name("parameter in system.parameters", option, parameters)
    if positional == 1:
        inputs = 0
    elif inputs is None:
        inputs = input_count(study)
    if positional > 1 and not inputs:
        raise InputError(
            f"system.name {name!r} takes {positional} arguments, so a state and inputs, but the "
            "study's sites have no data.inputs: name their columns, or write f(x)"
        )
    with _naming(f"system.name {name!r}"):
        return System.from_function(
            f, len(states), dt, states, parameters=parameters | options, input_dim=inputs
        )


def _signature(f: Callable[..., Any]) -> tuple[dict[str, float], int]:
    """A function's keywords with their defaults, and how many arguments come before them."""
    try:
        given = inspect.signature(f).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(f"its arguments are not known ({error}): write def f(x): …") from error
    defaults = {p.name: p.default for p in given if p.default is not inspect.Parameter.empty}
    for name, value in defaults.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"its parameter {name} is {short(value)}: give a number")
    return {name: float(v) for name, v in defaults.items()}, len(given) - len(defaults)


def input_count(study: "Study") -> int:
    """How many known inputs the study's sites record."""
    from fedkoopman.config.site_file import SiteFile

    counts = {len(SiteFile.load(study.root / file).data.inputs) for file in study.sites.files}
    if len(counts) > 1:
        raise InputError(
            f"sites record {sorted(counts)} inputs: name the same inputs in all site files"
        )
    return counts.pop() if counts else 0


def believed_systems(study: "Study", system: System) -> tuple[System, ...]:
    """The system that each client's filter believes in, f_n.

    Arguments:
        study: whose `clients.dynamics` is meant.
        system: the true one.
    """
    believed = study.clients.dynamics
    if not believed:
        return (system,) * study.clients.count
    columns = [per_client(value, study.clients.count) for value in believed.values()]
    rows = list(zip(*columns, strict=True))
    with _naming("clients.dynamics"):
        distinct = {
            row: system.with_parameters(**dict(zip(believed, row, strict=True)))
            for row in dict.fromkeys(rows)
        }
    return tuple(distinct[row] for row in rows)


def sensor_of(
    table: Mapping[str, Any], state_dim: int, *, seed: int, folder: Path, key: str
) -> Sensor:
    """The sensor that a table of `clients.sensor` describes.

    Arguments:
        table: the kind and its keys.
        state_dim: the number of states.
        seed: of a random kind; a seed in the table is not looked at here.
        folder: where a function's file is looked up.
        key: the table's dotted key, for messages.
    """
    with _naming(key):
        kind = SENSORS.find(table["kind"], folder)
        if is_reference(table["kind"]):  # its keys could not be read before the file was found
            table = kind.read(table, "its table")
        values = kind.values(table)
        values.pop("seed", None)
        sensor = kind.make(values, state_dim, seed, folder)
        sensor.check_state(state_dim)
        return sensor


def site_files(study: "Study", system: System | None = None) -> tuple["SiteFile", ...]:
    """The study's site files, checked against its system and against each other."""
    from fedkoopman.config.site_file import SiteFile

    system = system or system_of(study)
    files = [SiteFile.load(study.root / file) for file in study.sites.files]
    seen: dict[str, Path] = {}
    for site in files:
        if site.name in seen:
            raise InputError(
                f"{shown(site.path)} and {shown(seen[site.name])} are both called "
                f"{site.name!r}: give every site a name of its own"
            )
        seen[site.name] = site.path
        check_site(study, site, system)
    return tuple(files)


def check_site(study: "Study", site: "SiteFile", system: System) -> None:
    """Refuse a site file that does not fit a study and its system."""
    site.check_states(system.names)
    # Where there are no equations with inputs, inputs may be for the model alone.
    wanted = system.input_dim or (len(site.data.inputs) if study.network.inputs else 0)
    if len(site.data.inputs) != wanted:
        raise InputError(
            f"{shown(site.path)}: data.inputs names {len(site.data.inputs)} columns but the "
            f"system takes {system.input_dim} inputs: name one column per input"
        )
    model_inputs(study, site)
    sensor_for(site, system.dim)


def model_inputs(study: "Study", site: "SiteFile") -> list[int]:
    """Where the inputs of the study's model stand among a site's inputs."""
    wanted, given = study.network.inputs, site.data.inputs
    places = input_places(wanted, len(wanted), given)
    if places is not None:
        return places
    raise InputError(
        f"{shown(site.path)}: data.inputs names {short(list(given))}, but the study's model has "
        f"the inputs {short(list(wanted))}: name the columns that hold them"
    )


def input_places(names: Sequence[str], count: int, given: Sequence[str]) -> list[int] | None:
    """Where a model's inputs stand among those given: by their names or, if there are as many, in
    their order; None if neither fits."""
    if len(names) == count and set(names) <= set(given):
        return [given.index(name) for name in names]
    return list(range(count)) if len(given) == count else None


def sensor_for(site: "SiteFile", state_dim: int) -> Sensor:
    """The site's sensor, for so many states."""
    key, seed = f"{shown(site.path)}: sensor", site.sensor.get("seed", 0)
    return sensor_of(site.sensor, state_dim, seed=seed, folder=site.folder, key=key)


def noise_of(form: Any, dim: int, key: str) -> np.ndarray:
    """The covariance matrix (dim, dim) that a variance, a diagonal or a matrix stands for.

    Arguments:
        form: as it stands in the study.
        dim: the number of components.
        key: the dotted key, for messages.
    """
    [(kind, value)] = form.items() if isinstance(form, Mapping) else [("variance", form)]
    if kind != "variance" and len(value) != dim:
        size = f"{dim} numbers" if kind == "diagonal" else f"{dim} rows of {dim} numbers"
        raise InputError(
            f"{key}.{kind} is for {len(value)} components but there are {dim}: give {size}"
        )
    return covariance(value, dim, key)


def check_parts(study: "Study", sites: bool = True) -> None:
    """Refuse a study whose values do not fit its system.

    Arguments:
        sites: whether to look at its site files; they may be elsewhere.
    """
    system = system_of(study, None if sites else len(study.network.inputs) or 1)
    _check_learning(study, system)
    _check_estimation(study, system)
    if study.sites.files:
        if sites:
            site_files(study, system)
        with _naming("system.unknown"):
            system.with_parameters(**study.system.unknown)
    else:
        believed_systems(study, system)
        _check_clients(study, system)
    recordings_of(study, system)
    for key, registry, name in (
        ("policy.name", POLICIES, study.policy.name),
        ("aggregation.rule", AGGREGATORS, study.aggregation.rule),
    ):
        with _naming(key):
            registry.find(name, study.root)


def method_of(study: "Study") -> str:
    """The study's method of estimation, as `fk.estimate` takes it in any working directory."""
    method = study.estimation.method
    return str(study.root.resolve() / method) if is_reference(method) else method


def drops_lost(study: "Study") -> bool:
    """Whether segments on which the filter lost track are left out."""
    wanted = study.estimation.lost_track
    if wanted == "auto":
        return bool(study.sites.files) and ESTIMATORS.find(method_of(study)).consistent
    return wanted == "drop"


def learned_states(study: "Study", system: System) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units of what the study's model predicts.

    These are the system's states or, with the scheme "observations", what all sensors show: z1, z2
    and so on, whose units no study knows.
    """
    if study.scheme != "observations":
        return system.names, system.units
    dims = set(_observed(study, system))
    if len(dims) > 1:
        shown_dims = " and ".join(map(str, sorted(dims)))
        raise InputError(
            f'scheme is "observations" but the sensors of clients.sensor show {shown_dims} '
            'components: give sensors that show as many, or scheme = "kf-fedkl"'
        )
    names = tuple(f"z{i + 1}" for i in range(dims.pop()))
    return names, ("",) * len(names)


def _observed(study: "Study", system: System) -> Iterator[int]:
    """How many components each sensor of `clients.sensor` shows."""
    known: dict[str, int] = {}
    for key, table in _entries(study.clients.sensor, "clients.sensor"):
        if repr(table) not in known:
            sensor = sensor_of(table, system.dim, seed=0, folder=study.root, key=key)
            known[repr(table)] = sensor.dim
        yield known[repr(table)]


def architecture_of(study: "Study", system: System) -> "Kind":
    """The study's model kind with its sizes; what is "auto" the kind decides."""
    dim = len(learned_states(study, system)[0])
    with _naming("network.kind"):
        kind = KINDS.find(study.network.kind, study.root)
    given = {name: value for name, value in study.network.table().items() if value != "auto"}
    given["inputs"] = len(study.network.inputs)
    if study.network.inputs and not study.sites.files:
        raise InputError(
            f"network.inputs is {short(list(study.network.inputs))}, but simulated clients have "
            "none: give sites with data.inputs, or leave it out"
        )
    window, depth = study.network.window, study.network.depth
    reach = (study.segments.steps // 3 - window) // depth
    if study.network.horizon == "auto" and reach < USUAL_HORIZON:
        given["horizon"] = max(1, reach)
    with _naming("network"):
        given.setdefault("components", kind.usual_components(dim, given))
    if given["components"] < dim:
        what = "an observation" if study.scheme == "observations" else "the state"
        raise InputError(
            f"network.components is {study.network.components}, smaller than {what} of "
            f'{study.system.name}: give a whole number >= {dim}, or "auto"'
        )
    with _naming("network"):
        return kind.of(state_dim=dim, **given)


def algorithm_of(study: "Study") -> "Algorithm":
    """The study's algorithm; "auto" is the one that its model kind needs."""
    name = study.algorithm.name
    if name == "auto":
        name = KINDS.find(study.network.kind, study.root).algorithm
    with _naming("algorithm.name"):
        found = ALGORITHMS.find(name, study.root)
    return Guarded(found) if is_guarded(study) else found


def is_guarded(study: "Study") -> bool:
    """Whether updates are judged by the other sites before they count."""
    wanted, chosen = study.aggregation.guard, study.aggregation
    if wanted != "auto":
        return wanted == "on"
    # Judges see single updates, and those that the server will add noise to have none yet.
    hidden = chosen.secure or study.privacy.mode == "central"
    return bool(study.sites.files) and study.scheme == "kf-fedkl" and not hidden


def options_of(kind: type[Chosen], section: Section) -> Chosen:
    """Options of which a study's section has all, by the same names."""
    return kind(**{one.name: getattr(section, one.name) for one in fields(kind)})


def _check_learning(study: "Study", system: System) -> None:
    """The model kind, the algorithm, and whether they fit each other and the segments."""
    kind, algorithm = architecture_of(study, system), algorithm_of(study)
    if check_kind := getattr(algorithm, "check_kind", None):
        check_kind(kind)
    with _naming("aggregation.rule"):
        rule = AGGREGATORS.find(study.aggregation.rule, study.root)
    if check := getattr(rule, "check", None):
        check(options_of(AggregationOptions, study.aggregation), study.clients.count)
    _check_server(study, kind, algorithm)
    if study.training.huber:
        from fedkoopman.koopman.training import check_huber  # with it comes JAX

        check_huber(study.training.huber, kind, "training.huber")
    if study.privacy.mode != "none":
        _check_privacy(study, algorithm)
    horizon, steps, network = getattr(kind, "horizon", 0), study.segments.steps, study.network
    most = (steps - network.window) // network.depth
    if horizon > max(1, most) and not study.sites.files:
        raise InputError(
            f"network.horizon is {horizon} but segments of segments.steps = {steps} with "
            f"network.window = {network.window} and network.depth = {network.depth} hold {most} "
            f'steps of the future: give at most {most}, or "auto"'
        )


def _check_server(study: "Study", kind: "Kind", algorithm: "Algorithm") -> None:
    """The server's step, and whether the algorithm takes one."""
    with _naming("server.step"):
        SERVER_STEPS.find(study.server.step, study.root)
    defaults = ServerSection().table()
    given = [name for name, value in study.server.table().items() if value != defaults[name]]
    if not given:
        return
    check = getattr(algorithm, "check_server", None)
    if check is None:
        raise InputError(
            f"server.{given[0]} is given but the algorithm {study.algorithm.name} does not combine "
            "updates by the section server: leave that out"
        )
    with _naming(f"server.{given[0]}"):
        check(kind)


def _check_privacy(study: "Study", algorithm: "Algorithm") -> None:
    """Whether the study's privacy can be had, and accounted for."""
    from fedkoopman.federation.privacy import check_accountant

    check_accountant()
    mode = study.privacy.mode
    if getattr(algorithm, "planned", None) is None:
        raise InputError(
            f'privacy.mode is "{mode}" but the algorithm for network.kind {study.network.kind!r} '
            'sends what is not protected, as sums of states: give network.kind = "paper" with '
            'algorithm.name = "auto", or privacy.mode = "none"'
        )


def _check_estimation(study: "Study", system: System) -> None:
    estimation, dim = study.estimation, system.dim
    with _naming("estimation.method"):
        estimator = ESTIMATORS.find(method_of(study))
    try:
        estimator.check(
            Options(estimation.alpha, estimation.beta, estimation.kappa, estimation.particles), dim
        )
    except InputError as error:  # its message begins with the option's name
        raise InputError(f"estimation.{error}") from error
    if estimation.smooth and not estimator.smooths:
        raise InputError(
            f"estimation.smooth is true but estimation.method {estimation.method!r} has no "
            "smoother: give false"
        )
    mean = estimation.initial_mean
    if isinstance(mean, tuple) and len(mean) != dim:
        raise InputError(
            f"estimation.initial_mean has {len(mean)} numbers but {study.system.name} has {dim} "
            "states: give one number, or one per state"
        )
    if estimation.initial_cov != "auto":
        noise_of(estimation.initial_cov, dim, "estimation.initial_cov")
    if 0 < estimation.gate <= 1:
        raise InputError(
            f"estimation.gate is {estimation.gate:g}, which leaves out about half of the samples "
            "or more: give a number above 1, such as 3, or 0 to keep all"
        )
    if estimation.lost_track == "drop" and not estimator.consistent:
        raise InputError(
            f'estimation.lost_track is "drop" but the innovations of estimation.method '
            f"{estimation.method!r} cannot be judged, as their covariance lacks the process noise: "
            'give method = "ukf-resampled", or lost_track = "keep"'
        )


def _check_clients(study: "Study", system: System) -> None:
    """Sensors and noise of every client; what is the same for many is looked at once."""
    clients = study.clients
    needed = ESTIMATORS.find(method_of(study)).needs_density(study.estimation.smooth)
    seen: set[tuple[str, int]] = set()
    sensors = list(_observed(study, system))
    noises = list(_entries(clients.observation_noise, "clients.observation_noise"))
    for n in range(max(len(sensors), len(noises))):
        key, form = noises[n % len(noises)]
        pair = (repr(form), sensors[n % len(sensors)])
        if pair not in seen:
            _check_definite(noise_of(form, pair[1], key), key, needed.get("observation_noise"))
            seen.add(pair)
    for key, form in _entries(clients.process_noise, "clients.process_noise"):
        if form != "auto":
            _check_definite(noise_of(form, system.dim, key), key, needed.get("process_noise"))


def _check_definite(noise: np.ndarray, key: str, why: str | None) -> None:
    lowest = float(np.linalg.eigvalsh(noise)[0]) if why else 1.0
    if lowest <= 0:
        raise InputError(
            f"{key} has the eigenvalue {lowest:.3g} but must be positive definite: {why}"
        )


def _entries(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """What a key holds, with the key of each: one for all, or one per client."""
    if isinstance(value, tuple):
        yield from ((f"{key}[{n}]", entry) for n, entry in enumerate(value))
    else:
        yield key, value


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Let the errors of other packages begin with the study's key."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
