"""A study that cannot be meant is refused in one line, before anything runs."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedkoopman.config.sections import ClientsSection, NetworkSection, TrainingSection
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError

DEFAULT = Study.paper_default()


class Bad(NamedTuple):
    """A study's text, and what the one line must say of it."""

    text: str
    says: tuple[str, ...]


PROBABILITY = "a number from 0 to 1; or a list with one per client"
BAD = {
    # unknown keys
    "key": Bad("[training]\nepoch = 5", ("'training.epoch'", "did you mean 'training.epochs'?")),
    "top-key": Bad("slot = 5", ("'slot'", "did you mean 'slots'?", "known: name, seed")),
    "section": Bad("[trainig]\nepochs = 5", ("'trainig'", "did you mean 'training'?")),
    "no-section": Bad("epochs = 5", ("'epochs'", "did you mean 'training.epochs'?")),
    "wrong-section": Bad("[training]\nwidth = 5", ("'training.width'", "'network.width'?")),
    "nothing-like-it": Bad("[policy]\nzzz = 5", ("'policy.zzz': known: policy.name, policy.seg",)),
    "folder": Bad('folder = "/"', ("unknown key 'folder'",)),
    "not-a-section": Bad("training = 5", ("training is 5", "[training]", "epochs")),
    # wrong types
    "text-count": Bad('slots = "many"', ("slots is 'many'", "give a whole number >= 1")),
    "fraction": Bad("slots = 2.0", ("slots is 2.0", "a whole number >= 1")),
    "true-is-no-number": Bad("seed = true", ("seed is True", "from 0 to 2**63 - 1")),
    "true-is-no-real": Bad("[training]\ndecay = true", ("training.decay is True",)),
    "number-is-no-flag": Bad("[estimation]\nsmooth = 1", ("estimation.smooth is 1", "true or")),
    "list": Bad("[training]\nepochs = [5, 5, 5, 5, 5]", ("training.epochs is [5, 5", "a whole")),
    "date": Bad("slots = 2020-01-01", ("slots is datetime.date(2020, 1, 1)",)),
    "number-name": Bad("name = 5", ("name is 5", "give text")),
    "empty-name": Bad('name = " "', ("name is ' '", "not empty")),
    "two-line-name": Bad('name = "a\\nb"', (r"name is 'a\nb'", "on one line")),
    # ranges
    "no-slots": Bad("slots = 0", ("slots is 0", ">= 1")),
    "too-many-slots": Bad("slots = 10000000000", ("slots is 10000000000", "to 2147483647")),
    "negative-seed": Bad("seed = -1", ("seed is -1", "from 0")),
    "large-seed": Bad(f"seed = {2**63}", (f"seed is {2**63}", "2**63 - 1")),
    "p": Bad("[clients]\nprobability = 1.2", ("clients.probability is 1.2", PROBABILITY)),
    "p-negative": Bad("[clients]\nprobability = -0.1", ("clients.probability is -0.1",)),
    "p-entry": Bad(
        "[clients]\nprobability = [1, 1, 1.5, 1, 1]",
        ("clients.probability[2] is 1.5", "a number from 0 to 1"),
    ),
    "p-nan": Bad("[clients]\nprobability = nan", ("clients.probability is nan", PROBABILITY)),
    "p-text": Bad('[clients]\nprobability = "high"', ("clients.probability is 'high'",)),
    "no-p": Bad("[clients]\nprobability = []", ("clients.probability is []", PROBABILITY)),
    "no-clients": Bad("[clients]\ncount = 0", ("clients.count is 0", "from 1 to 1000000")),
    "restart": Bad("[segments]\nrestart = 0", ("segments.restart is 0", ">= 1")),
    "epochs": Bad("[training]\nepochs = 0", ("training.epochs is 0", ">= 1")),
    "batch": Bad("[training]\nbatch = -64", ("training.batch is -64", ">= 1")),
    "rate": Bad("[training]\nlearning_rate = 0", ("training.learning_rate is 0", "> 0")),
    "rate-infinite": Bad("[training]\nlearning_rate = inf", ("learning_rate is inf", "> 0")),
    "weight-decay": Bad("[training]\nweight_decay = -1e-7", ("weight_decay is -1e-07", ">= 0")),
    "decay-above-1": Bad("[training]\ndecay = 1.01", ("training.decay is 1.01", "> 0 and <= 1")),
    "decay-0": Bad("[training]\ndecay = 0.0", ("training.decay is 0.0", "> 0 and <= 1")),
    "infinite": Bad("[estimation]\nbeta = inf", ("estimation.beta is inf", "finite")),
    "alpha": Bad("[estimation]\nalpha = 0", ("estimation.alpha is 0", "> 0")),
    "particles": Bad("[estimation]\nparticles = 1", ("estimation.particles is 1", ">= 2")),
    "width": Bad("[network]\nwidth = 0", ("network.width is 0", ">= 1")),
    "layers": Bad("[network]\nhidden_layers = -1", ("network.hidden_layers is -1", ">= 0")),
    "window": Bad("[network]\nwindow = 0", ("network.window is 0", ">= 1")),
    "components-text": Bad(
        '[network]\ncomponents = "most"',
        ("network.components is 'most'", '"auto" or a whole number >= 1'),
    ),
    "threshold": Bad("[policy]\nsegments = -1", ("policy.segments is -1", ">= 0")),
    "tail": Bad("[evaluation]\ntail_slots = 0", ("evaluation.tail_slots is 0", ">= 1")),
    "valid": Bad("[evaluation]\nvalid_error = 0", ("evaluation.valid_error is 0", "> 0")),
    # names
    "scheme": Bad('scheme = "centralised"', ("scheme is 'centralised'", "'centralized'?")),
    "trajectories": Bad('trajectories = "own"', ("trajectories is 'own'", '"per-client"')),
    "method": Bad('[estimation]\nmethod = "kf"', ("estimation.method is 'kf'", "'ukf'?")),
    "kind": Bad('[network]\nkind = "papr"', ("network.kind is 'papr'", "'paper'?", "file.py:name")),
    "activation": Bad('[network]\nactivation = "rel"', ("network.activation", "'relu'?")),
    "precision": Bad("[training]\nprecision = 32", ("training.precision is 32", '"float64"')),
    "system": Bad('[system]\nname = "lorentz63"', ("system.name is 'lorentz63'", "'lorenz63'?")),
    "policy": Bad('[policy]\nname = "robin"', ("policy.name is 'robin'", "'round-robin'?")),
    # weights
    "two-weights": Bad("[training]\nloss_weights = [0.5, 0.5]", ("loss_weights is [0.5", "of 3")),
    "no-weight": Bad("[training]\nloss_weights = [0, 0, 0]", ("is [0, 0, 0]", "not all 0")),
    "negative-weight": Bad("[training]\nloss_weights = [1, -1, 1]", ("weights[1] is -1", ">= 0")),
    "one-weight": Bad("[training]\nloss_weights = 1", ("training.loss_weights is 1", "of 3")),
    # covariances
    "variance": Bad(
        "[clients]\nprocess_noise = -1", ("clients.process_noise is -1", "variance >= 0", "matrix")
    ),
    "form": Bad("[clients]\nprocess_noise = { diag = [1] }", ("is {'diag': [1]}", "diagonal")),
    "diagonal": Bad(
        "[clients]\nprocess_noise = { diagonal = [1, -2, 1] }",
        ("clients.process_noise.diagonal[1] is -2", ">= 0"),
    ),
    "indefinite": Bad(
        "[clients]\nprocess_noise = { matrix = [[1, 2], [2, 1]] }",
        ("clients.process_noise.matrix = [[1, 2], [2, 1]]", "positive semi-definite", "-1"),
    ),
    "asymmetric": Bad(
        "[clients]\nobservation_noise = { matrix = [[1, 0], [1, 1]] }",
        ("clients.observation_noise.matrix = [[1, 0], [1, 1]]", "not symmetric"),
    ),
    "not-square": Bad(
        "[estimation]\ninitial_cov = { matrix = [[1, 0]] }",
        ("estimation.initial_cov.matrix is 1 x 2", "as many rows as columns"),
    ),
    "ragged": Bad(
        "[estimation]\ninitial_cov = { matrix = [[1, 0], [1]] }",
        ("estimation.initial_cov.matrix is [[1, 0], [1]]", "one length"),
    ),
    "noise-of-one": Bad(
        "[clients]\nprocess_noise = [1, 1, 1, 1, -1]", ("clients.process_noise[4] is -1",)
    ),
    # one per client
    "probabilities": Bad(
        "[clients]\nprobability = [0.5, 0.5]",
        ("clients.probability has 2 entries", "clients.count is 5", "a list of 5"),
    ),
    "rates": Bad(
        "[clients]\ncount = 2\n[training]\nlearning_rate = [1, 1, 1]",
        ("training.learning_rate has 3 entries", "clients.count is 2"),
    ),
    "thresholds": Bad("[policy]\nsegments = [1, 2]", ("policy.segments has 2 entries",)),
    "sensors": Bad('[[clients.sensor]]\nkind = "identity"', ("clients.sensor has 1 entries",)),
    "beliefs": Bad("[clients]\ndynamics = { b = [1, 2] }", ("clients.dynamics.b has 2 entries",)),
    # lengths
    "short-segment": Bad(
        "[segments]\nsteps = 5\n[network]\nwindow = 4\ndepth = 2",
        ("segments.steps is 5, shorter than network.window + network.depth = 4 + 2", "at least 6"),
    ),
    "one-step": Bad("[segments]\nsteps = 1", ("segments.steps is 1", ">= 2")),
    "horizon": Bad(
        "[segments]\nsteps = 8\n[evaluation]\nhorizon = 9",
        ("evaluation.horizon is 9", "segments.steps = 8", "at most 8"),
    ),
    "deep-horizon": Bad(
        "[segments]\nsteps = 8\n[network]\ndepth = 2\n[evaluation]\nhorizon = 5",
        ("evaluation.horizon is 5", "network.depth = 2", "at most 4"),
    ),
    # sensors and tables
    "sensor-kind": Bad('[clients.sensor]\nkind = "ident"', ("clients.sensor.kind is 'ident'",)),
    "sensor-no-kind": Bad("[clients]\nsensor = {}", ("clients.sensor has no kind", '"linear"')),
    "sensor-text": Bad('[clients]\nsensor = "identity"', ("clients.sensor is 'identity'", "kind")),
    "sensor-key": Bad(
        '[clients.sensor]\nkind = "linear"\nmatrx = [[1]]',
        ("clients.sensor", "'matrx'", "did you mean 'matrix'?"),
    ),
    "sensor-no-matrix": Bad('[clients.sensor]\nkind = "linear"', ("clients.sensor", "no matrix")),
    "sensor-value": Bad(
        '[clients.sensor]\nkind = "perturbed-identity"\nspread = -1',
        ("clients.sensor.spread is -1", ">= 0"),
    ),
    "sensor-reference": Bad(
        '[clients.sensor]\nkind = "function"\ndim = 1\nfunction = "first"',
        ("clients.sensor.function is 'first'", "file.py:function"),
    ),
    "parameters": Bad("[system]\nparameters = 5", ("system.parameters is 5", "a table")),
    "parameter-text": Bad(
        '[system]\nparameters = { b = "28" }', ("system.parameters.b is '28'", "a finite number")
    ),
    "parameter-nan": Bad("[system]\nparameters = { b = nan }", ("system.parameters.b is nan",)),
    "belief-true": Bad("[clients]\ndynamics = { b = true }", ("clients.dynamics.b is True",)),
}
UNFIT = {
    "no-kind": Bad('[network]\nkind = "no.py:K"', ("network.kind: 'no.py:K': there is no file",)),
    "small-k": Bad("[network]\ncomponents = 2", ("network.components is 2", ">= 3", '"auto"')),
    "parameter": Bad(
        "[system]\nparameters = { bb = 1.0 }", ("system.parameters", "'bb'", "did you mean 'b'?")
    ),
    "dt": Bad("[system]\nparameters = { dt = -1 }", ("system.parameters: dt is -1", "above 0")),
    "dim": Bad(
        '[system]\nname = "lorenz96"\nparameters = { dim = 3 }',
        ("system.parameters: dim is 3", "at least 4"),
    ),
    "belief": Bad(
        "[clients]\ndynamics = { d = 1.0 }", ("clients.dynamics", "unknown parameter 'd'")
    ),
    "diagonal": Bad(
        "[clients]\nprocess_noise = { diagonal = [1, 1] }",
        ("clients.process_noise.diagonal is for 2", "there are 3", "give 3 numbers"),
    ),
    "matrix-of-one": Bad(
        "[clients]\nobservation_noise = [1, 1, { matrix = [[1]] }, 1, 1]",
        ("clients.observation_noise[2].matrix is for 1", "there are 2", "2 rows of 2"),
    ),
    "cov": Bad(
        "[estimation]\ninitial_cov = { diagonal = [1] }",
        ("estimation.initial_cov.diagonal is for 1", "give 3 numbers"),
    ),
    "mean": Bad(
        "[estimation]\ninitial_mean = [0, 0]",
        ("estimation.initial_mean has 2 numbers", "3 states"),
    ),
    "kappa": Bad("[estimation]\nkappa = -3", ("estimation.kappa is -3", "a number > -3")),
    "frame": Bad(
        '[clients.sensor]\nkind = "random-frame"\nobserved = 3',
        ("clients.sensor: observed is 3", "at most 2"),
    ),
    "columns": Bad(
        '[clients.sensor]\nkind = "linear"\nmatrix = [[1, 0]]',
        ("clients.sensor: the sensor's matrix has 2 columns", "3"),
    ),
    "sensor-of-one": Bad(
        '[clients]\ncount = 2\nsensor = [{ kind = "identity" }, { kind = "linear", '
        "matrix = [[1, 0]] }]",
        ("clients.sensor[1]: the sensor's matrix has 2 columns",),
    ),
    "offset": Bad(
        '[clients.sensor]\nkind = "linear"\nmatrix = [[1, 0, 0]]\noffset = [1]',
        ("clients.sensor: offset has shape (1,)",),
    ),
    "angle": Bad(
        '[clients.sensor]\nkind = "identity"\nangles = [3]',
        ("clients.sensor: angles contains 3", "0 to 2"),
    ),
    "no-file": Bad('[system]\nname = "none.py:f"', ("system.name: 'none.py:f'", "no file")),
    "no-object": Bad('[system]\nname = "own.py:f"', ("system.name", "defines no 'f'")),
    "no-system": Bad('[system]\nname = "own.py:first"', ("system.name", "name them")),
    "inputs": Bad('[system]\nname = "own.py:driven"', ("'own.py:driven'", "2 inputs")),
    "own-parameter": Bad(
        '[system]\nname = "own.py:decay"\nparameters = { rat = 1.0 }',
        ("system.parameters", "did you mean 'rate'?"),
    ),
    "no-policy": Bad(
        '[policy]\nname = "own.py:number"',
        ("policy.name", "own.py:number is an int", "a plain function policy(situation)"),
    ),
    "no-function": Bad(
        '[clients.sensor]\nkind = "function"\nfunction = "own.py:number"\ndim = 1',
        ("clients.sensor: own.py:number is an int (1), but a plain function h(x)",),
    ),
    "function-shape": Bad(
        '[clients.sensor]\nkind = "function"\nfunction = "own.py:first"\ndim = 2',
        ("clients.sensor: the sensor returned shape (1,)",),
    ),
    "particle-noise": Bad(
        '[clients]\nobservation_noise = 0\n[estimation]\nmethod = "particle"',
        ("clients.observation_noise has the eigenvalue 0", "'particle'", "positive definite"),
    ),
    "particle-process-noise": Bad(
        '[clients]\nprocess_noise = 0\n[estimation]\nmethod = "particle"',
        ("clients.process_noise has the eigenvalue 0",),
    ),
}


def refusal(raises: pytest.ExceptionInfo[InputError]) -> str:
    message = str(raises.value)
    assert "\n" not in message and len(message) < 500
    return message


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_bad_study_is_refused_without_the_system(folder: Path, case: Bad) -> None:
    with pytest.raises(InputError) as raises:
        Study.from_dict(tomllib.loads(case.text), folder)
    for words in case.says:
        assert words in refusal(raises)


@pytest.mark.parametrize("case", (BAD | UNFIT).values())
def test_a_bad_file_is_refused_on_loading(folder: Path, case: Bad) -> None:
    path = folder / "study.toml"
    path.write_text(case.text, encoding="utf-8")
    with pytest.raises(InputError) as raises:
        Study.load(path)
    for words in case.says:
        assert words in refusal(raises)


@pytest.mark.parametrize("case", UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_the_system_is_refused_by_check(folder: Path, case: Bad) -> None:
    study = Study.from_dict(tomllib.loads(case.text), folder)
    with pytest.raises(InputError) as raises:
        study.check()
    for words in case.says:
        assert words in refusal(raises)


def test_construction_and_replacement_are_checked_too() -> None:
    with pytest.raises(InputError, match=r"training\.epochs is 0: give a whole number >= 1"):
        TrainingSection(epochs=0)
    with pytest.raises(InputError, match="slots is 0"):
        Study(slots=0)
    with pytest.raises(InputError, match="slots is 0"):
        dataclasses.replace(DEFAULT, slots=0)
    with pytest.raises(InputError, match=r"network\.window"):
        dataclasses.replace(DEFAULT, network=NetworkSection(window=300))
    with pytest.raises(InputError, match=r"clients\.probability has 2 entries"):
        Study(clients=ClientsSection(probability=(0.5, 0.5)))
    with pytest.raises(InputError, match="training is NetworkSection"):
        Study(training=NetworkSection())
    with pytest.raises(InputError, match=r"a study is \[1\]"):
        Study.from_dict([1])


def test_the_longest_horizon_and_shortest_segment_are_allowed() -> None:
    edge = {"segments.steps": 6, "network.window": 4, "network.depth": 2}
    assert DEFAULT.with_values({**edge, "evaluation.horizon": 1}).segments.steps == 6
    assert DEFAULT.with_values({"segments.steps": 5}).evaluation.horizon == 5


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_text("slots = "), "is not valid TOML"),
        (lambda path: path.write_bytes(b'name = "\xff"'), "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, write: Any, message: str) -> None:
    path = tmp_path / "study.toml"
    write(path)
    with pytest.raises(InputError, match=message) as raises:
        Study.load(path)
    assert str(path) in refusal(raises)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("trainng.epochs", 5, "'trainng.epochs': did you mean 'training.epochs'?"),
        ("epochs", 5, "unknown key 'epochs': did you mean 'training.epochs'?"),
        ("training.epochs.more", 5, "unknown key 'training.epochs.more'"),
        ("system.parameters.b.c", 5, "unknown key 'system.parameters.b.c'"),
        ("training", 5, "training is 5: give a table"),
        (5, 5, "unknown key '5': known: name, seed, slots, scheme, trajectories, aggregation"),
        ("training.epochs", "ten", "training.epochs is 'ten': give a whole number"),
        ("training.epochs", "5\nbatch = 3", r"training.epochs is '5\nbatch = 3'"),
        ("training.epochs", "", "training.epochs is ''"),
        ("clients.probability", "[1, 2", "clients.probability is '[1, 2'"),
        ("seed", None, "seed is None"),
        ("clients.process_noise.diag", [1], "clients.process_noise is {'diag': [1]}"),
    ],
)
def test_a_bad_value_is_refused(name: str, given: Any, message: str) -> None:
    with pytest.raises(InputError) as raises:
        DEFAULT.with_values({name: given})
    assert message in refusal(raises)


def test_a_key_does_not_reach_into_a_list() -> None:
    study = DEFAULT.with_values({"clients.sensor": [{"kind": "identity"}] * 5})
    with pytest.raises(
        InputError, match=r"clients\.sensor is a list .* set clients\.sensor itself"
    ):
        study.with_values({"clients.sensor.kind": "linear"})


def test_an_integer_beyond_all_measure_is_refused(folder: Path) -> None:
    text = f"[estimation]\nbeta = 1{'0' * 400}"
    with pytest.raises(InputError, match=r"estimation\.beta is 1000.*finite"):
        Study.from_dict(tomllib.loads(text))
    (folder / "study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"estimation\.beta is 1000.*finite"):
        Study.load(folder / "study.toml")
    (folder / "study.toml").write_text(text + "0" * 4600, encoding="utf-8")
    with pytest.raises(InputError, match=r"an integer of thousands of digits"):
        Study.load(folder / "study.toml")
