"""The sections of a study: every key with its default, its meaning and what it may be.

Checks and printed reference both come from these statements. The defaults are the paper's.
"""
# ruff: noqa: RUF009 - what `key` returns is a field, with a factory where the default is a table

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from fedkoopman.config.formats import DataFiles
from fedkoopman.config.loader import Section, key
from fedkoopman.config.tables import ByName, Covariance, Keyword, Sensor
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.rules import (
    Auto,
    Choice,
    Files,
    Flag,
    Names,
    OneOrEach,
    Real,
    Weights,
    Whole,
)
from fedkoopman.systems import SYSTEMS, named_system

ACTIVATIONS = (
    "relu",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "tanh",
    "sigmoid",
    "softplus",
    "softsign",
    "sin",
    "identity",
)
"""Names of other packages' tables, repeated so that a study is read without JAX; tests compare."""

Entry = TypeVar("Entry")


def per_client(value: Entry | tuple[Entry, ...], count: int) -> tuple[Entry, ...]:
    """One value per client, of a key that may hold one for all or a tuple."""
    return value if isinstance(value, tuple) else (value,) * count


@dataclass(frozen=True)
class SystemSection(Section):
    """What all clients observe."""

    section: ClassVar[str] = "system"

    name: str = key(
        "lorenz63",
        Choice(SYSTEMS, "file.py:object"),
        "The observed system: a name, or a System in a Python file beside the study",
        "f",
    )
    parameters: dict[str, Any] = key(
        {},
        ByName(Keyword(), "a table such as { dt = 0.02, b = 28.0 }, of what the system takes"),
        "What differs from the system's own parameters and sampling interval dt",
    )
    states: tuple[str, ...] = key(
        (),
        Names("a list of names, one per state"),
        "Names of the states, where the system is a function ẋ = f(x) in a Python file; its "
        "keywords are parameters",
    )
    unknown: dict[str, Any] = key(
        {},
        ByName(Real(), "a table of parameters with first guesses, such as { length = 1.2 }"),
        "Parameters that sites with data of their own estimate, each from its data, before they "
        "train; what they find is combined",
    )

    @classmethod
    def table_of(cls, given: Any) -> dict[str, Any]:
        """A system of this package by its name and parameters; any other by its file."""
        return {"parameters": {}, "states": (), **(named_system(given) or {"name": given})}


@dataclass(frozen=True)
class SitesSection(Section):
    """Real sites with files of their own; their clients are not simulated."""

    section: ClassVar[str] = "sites"

    files: tuple[str, ...] = key(
        (), Files((".toml",)), "A site file per site; none: clients are simulated"
    )
    repeat: bool = key(
        True, Flag(), "Whether a site's segments arrive again, in order, after the last of them"
    )
    arrivals: str = key(
        "drawn",
        Choice(("drawn", "live")),
        "drawn: the next segment arrives in a slot in which the observation succeeds; live: with "
        "serve and join, segments arrive as their files do, each once (run takes one per slot)",
    )


@dataclass(frozen=True)
class SegmentsSection(Section):
    """What one successful observation yields."""

    section: ClassVar[str] = "segments"

    steps: int = key(300, Whole(2), "Samples per successful observation", "ζ")
    restart: int = key(
        1, Whole(1), "Slots after which the system starts again from a random state", "ξ"
    )


@dataclass(frozen=True)
class RecordingsSection(Section):
    """Measured states that take the place of simulated ones."""

    section: ClassVar[str] = "recordings"

    train: tuple[str, ...] = key(
        (),
        DataFiles(),
        "True states that the clients observe, one recording per file; none: they are simulated",
    )
    test: tuple[str, ...] = key(
        (), DataFiles(), "Held-out states that the server's model is judged on"
    )
    windows: str = key(
        "random",
        Choice(("random", "consecutive")),
        "Whether a segment starts anywhere in a recording, or where that of the slot before ends",
    )


@dataclass(frozen=True)
class ClientsSection(Section):
    """Who observes, how often, through what, and what they believe."""

    section: ClassVar[str] = "clients"

    count: int = key(5, Whole(1, 10**6), "Number of clients", "N")
    probability: float | tuple[float, ...] = key(
        0.7,
        OneOrEach(Real(0.0, 1.0)),
        "Probability that a client's observation succeeds in a slot",
        "p_n",
    )
    observation_noise: Any = key(
        1.0, OneOrEach(Covariance()), "Covariance of the observation noise", "Σ_h"
    )
    process_noise: Any = key(
        1.0,
        OneOrEach(Auto(Covariance())),
        "Covariance of the process noise that the filters assume; the truth has none; auto: of "
        "largest likelihood, from the clients' first segments",
        "Σ_f",
    )
    sensor: Any = key(
        {"kind": "random-frame"},
        OneOrEach(Sensor()),
        "What a client sees of the state; random kinds are drawn for each client, from the study's "
        "seed or their own",
        "h_n",
    )
    dynamics: dict[str, Any] = key(
        {},
        ByName(
            OneOrEach(Real()),
            "a table such as { b = 27.0 } or, with one per client, { b = [28, 27, 28, 28, 29] }",
        ),
        "Parameters that the clients' filters believe, where they differ from the truth",
        "f_n",
    )


@dataclass(frozen=True)
class EstimationSection(Section):
    """How a client turns observations into states."""

    section: ClassVar[str] = "estimation"

    method: str = key(
        "ukf",
        Choice(ESTIMATORS, "file.py:name"),
        "The filter: a name, or an Estimator in a Python file beside the study",
    )
    smooth: bool = key(True, Flag(), "Whether a smoother follows the filter")
    alpha: float = key(0.1, Real(0.0, above=True), "Spread of the sigma points", "α")
    beta: float = key(2.0, Real(), "Weight of the prior's shape; 2 for Gaussian states", "β")
    kappa: float = key(-1.0, Real(), "Second spread; number of states + kappa must be > 0", "κ")
    initial_mean: float | tuple[float, ...] | str = key(
        0.0,
        Auto(OneOrEach(Real(), "state")),
        "Expected state before a segment's first sample; auto: of the system's law of initial "
        "states, or of the training recordings",
        "x̂_0",
    )
    initial_cov: Any = key(
        1.0,
        Auto(Covariance()),
        "Its covariance; auto: of the same law, about the expected state",
        "P̂_0",
    )
    particles: int = key(1000, Whole(2), "Number of particles of the particle filter")
    lost_track: str = key(
        "auto",
        Choice(("auto", "drop", "keep")),
        "What is done with segments on which the filter lost track: its innovations are far larger "
        "than it expects; auto drops those of real sites, if the filter is consistent (not ukf)",
    )
    gate: float = key(
        0.0,
        Real(0.0),
        "Samples are not trained on where a state's standard deviation is larger than so many "
        "times its median over the segment; above 1, or 0 to keep all",
    )


@dataclass(frozen=True)
class NetworkSection(Section):
    """The model that is learned; a model kind takes those of the keys that it has."""

    section: ClassVar[str] = "network"

    kind: str = key(
        "paper",
        Choice(KINDS, "file.py:name"),
        "The model kind: a name, or a Kind in a Python file beside the study",
    )
    components: int | str = key(
        "auto",
        Auto(Whole(1)),
        "Size of the lifted state and of K, at least the number of states; auto is 4 per state",
        "O",
    )
    hidden_layers: int = key(
        1, Whole(0), "Hidden layers of the encoder, and as many of the decoder", "Z"
    )
    width: int = key(30, Whole(1), "Units per hidden layer", "H")
    activation: str = key("relu", Choice(ACTIVATIONS), "Activation after each hidden layer")
    window: int = key(1, Whole(1), "Consecutive states that the encoder sees at once", "μ")
    depth: int = key(1, Whole(1), "Samples by which one application of K advances", "τ")
    degree: int = key(
        3, Whole(1, 12), "Highest degree of the monomials in a dictionary (edmd, spectral)"
    )
    dictionary: str = key(
        "polynomial",
        Choice(("polynomial", "fourier", "rbf")),
        "Functions of the kind edmd: monomials, random Fourier features or Gaussians",
    )
    features: int | str = key(
        "auto",
        Auto(Whole(1)),
        "Units per layer of features (spectral; auto is 64), or how many random functions there "
        "are (edmd; auto is 100)",
    )
    learned: bool = key(
        True, Flag(), "Whether the features of the kind spectral are trained, or stay random"
    )
    horizon: int | str = key(
        "auto",
        Auto(Whole(1)),
        "Steps of the future by which the kind spectral chooses its components; auto is 30, or "
        "what a third of a segment holds",
    )
    discount: float | str = key(
        "auto",
        Auto(Real(0.0)),
        "How fast further steps of that future count less, as (l + 1) to the power of −discount: "
        "large for near forecasts, small for far ones; auto is 2, or 1.5 from five components for "
        "each state on",
    )
    ridge: float | str = key(
        "auto",
        Auto(Real(0.0)),
        "Share of the largest mean square below which directions of a dictionary are left out; "
        "auto is 1e-12 for edmd and 1e-10 for spectral",
    )
    margin: float = key(
        0.1,
        Real(0.0),
        "Share of its half-width by which the range of the training states is widened, within "
        "which states are held when they are lifted (edmd, spectral)",
    )
    inputs: tuple[str, ...] = key(
        (),
        Names("a list of names"),
        "Known inputs of the shared model, which sites name in data.inputs: those with these names "
        "or, where a site calls them otherwise, as many in the same order; none makes a model that "
        "is not driven",
    )
    bilinear: bool = key(
        False, Flag(), "Whether inputs also multiply the lifted state: K y + B u + Σ u_i N_i y"
    )


@dataclass(frozen=True)
class TrainingSection(Section):
    """One client's local training."""

    section: ClassVar[str] = "training"

    epochs: int = key(10, Whole(1), "Passes over the client's data per round", "E")
    batch: int = key(64, Whole(1), "Training pairs per gradient step", "B")
    learning_rate: float | tuple[float, ...] = key(
        0.001, OneOrEach(Real(0.0, above=True)), "Learning rate of Adam", "η"
    )
    weight_decay: float = key(1e-7, Real(0.0), "Weight of the L2 term", "λ")
    decay: float = key(
        0.995, Real(0.0, 1.0, above=True), "Factor on the learning rate per epoch of a round", "γ"
    )
    loss_weights: tuple[float, ...] = key(
        (1 / 3, 1 / 3, 1 / 3),
        Weights(3),
        "Weights of linearity, reconstruction and prediction in the loss",
        "ω_1, ω_2, ω_3",
    )
    precision: str = key(
        "float32", Choice(("float32", "float64")), "Floating-point type of training"
    )
    proximal: float = key(
        0.0,
        Real(0.0),
        "Weight of FedProx's term, half the squared distance from the weights that the client was "
        "given; 0 leaves it out",
        "μ of FedProx",
    )
    huber: float = key(
        0.0,
        Real(0.0),
        "Error beyond which the three losses grow linearly instead of as its square (Huber), in "
        "the units in which the model kind trains; 0: the square everywhere",
    )


@dataclass(frozen=True)
class AlgorithmSection(Section):
    """What server and sites say to each other."""

    section: ClassVar[str] = "algorithm"

    name: str = key(
        "auto",
        Auto(Choice(ALGORITHMS, "file.py:name")),
        "The algorithm; auto is what the model kind needs",
    )
    buffer: int = key(3, Whole(1), "Updates that fedbuff gathers before the server takes a step")
    staleness: float = key(
        0.5,
        Real(0.0),
        "How fast older updates count less in fedbuff: (1 + steps since) to the power of "
        "−staleness",
    )
    delays: int | tuple[int, ...] = key(
        0,
        OneOrEach(Whole(0, 15)),
        "Slots that clients of fedbuff are behind: in a slot they train the model of so many slots "
        "before, to try what slow sites do",
    )


@dataclass(frozen=True)
class AggregationSection(Section):
    """How the server makes one model of the clients' updates."""

    section: ClassVar[str] = "aggregation"

    rule: str = key(
        "mean",
        Choice(AGGREGATORS, "file.py:function"),
        "The rule: a name, or a function in a Python file beside the study",
    )
    liars: int = key(
        1,
        Whole(0),
        "Sites that may lie at a time, for which trimmed-mean, krum and multi-krum allow",
        "f",
    )
    clip: float = key(
        2.0,
        Real(0.0, above=True),
        "Times the usual length of updates beyond which one is shortened (norm-clip, centred-clip, "
        "and where updates are guarded)",
    )
    history: int = key(8, Whole(1), "Updates of each site by which the usual length is known")
    guard: str = key(
        "auto",
        Choice(("auto", "on", "off")),
        "Whether every update is judged on the other sites' held-out data before it counts, and "
        "sites that do harm are set aside; auto: where sites are real",
    )
    secure: bool = key(
        False,
        Flag(),
        "Whether the server sees the sum of the sites' updates only (secure aggregation)",
    )


@dataclass(frozen=True)
class ServerSection(Section):
    """What the server makes of the aggregate."""

    section: ClassVar[str] = "server"

    step: str = key(
        "none",
        Choice(SERVER_STEPS, "file.py:function"),
        "The step on the aggregate's change: a name, or a function in a Python file beside the "
        "study; none: the aggregate is the next model",
    )
    learning_rate: float | str = key(
        "auto",
        Auto(Real(0.0, above=True)),
        "Learning rate of the step; auto is 1 for none and momentum, 0.1 for adagrad and 0.03 for "
        "adam and yogi",
        "η_s",
    )
    momentum: float = key(0.5, Real(0.0, 0.9999), "Share of the old in the mean of changes", "β_1")
    second_momentum: float = key(
        0.99,
        Real(0.0, 0.9999),
        "Share of the old in the mean of squared changes (adam, yogi)",
        "β_2",
    )
    epsilon: float = key(
        1e-3,
        Real(0.0, above=True),
        "Changes that are small beside it are not enlarged (adam, yogi, adagrad)",
        "τ",
    )
    average: float = key(
        0.0,
        Real(0.0, 0.9999),
        "Share of the old average in the moving average of server models, which is then the "
        "result; 0: the newest model is",
    )


@dataclass(frozen=True)
class PrivacySection(Section):
    """Differential privacy of what sites send."""

    section: ClassVar[str] = "privacy"

    mode: str = key(
        "none",
        Choice(("none", "site", "central")),
        "site: every site trains with clipped, noised gradients (DP-SGD), so that nobody has to be "
        "trusted; central: the server adds noise to the mean of clipped updates",
    )
    record: str = key(
        "sample",
        Choice(("sample", "segment")),
        "What is protected at a site: one training example (a window with what it predicts), or "
        "one whole segment",
    )
    clip: float = key(
        1.0, Real(0.0, above=True), "Longest contribution of one record; longer ones are shortened"
    )
    noise: float = key(
        1.0, Real(0.0, above=True), "Standard deviation of the noise, in units of clip", "σ"
    )
    delta: float = key(
        1e-5, Real(0.0, 0.5, above=True), "Probability with which ε may be exceeded", "δ"
    )


@dataclass(frozen=True)
class PolicySection(Section):
    """Which clients train in a slot."""

    section: ClassVar[str] = "policy"

    name: str = key(
        "threshold",
        Choice(POLICIES, "file.py:function"),
        "The rule: a name, or a function in a Python file beside the study",
    )
    segments: float | tuple[float, ...] = key(
        5.0,
        OneOrEach(Real(0.0)),
        "Segments of data from which on the threshold policy activates a client",
        "ρ_n / ζ",
    )


@dataclass(frozen=True)
class EvaluationSection(Section):
    """How the server's model is judged, on noise-free held-out trajectories."""

    section: ClassVar[str] = "evaluation"

    trajectories: int = key(20, Whole(1), "Held-out trajectories of segments.steps steps")
    horizon: int = key(5, Whole(1), "Most applications of K in E_1 and E_2", "l_1 = l_2")
    tail_slots: int = key(
        50, Whole(1), "Last slots over which the summary averages; all, if there are fewer"
    )
    valid_error: float = key(
        0.4,
        Real(0.0, above=True),
        "A rollout counts as valid until its error exceeds this share of the test states' spread",
    )
