"""Every wrong input of `fk.estimate` is one line that names the argument; nothing is computed."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk

STEPS = 5
LORENZ = fk.systems.Lorenz63()
FRAME = fk.LinearSensor.random_frame(3, seed=0)
DRIVEN = fk.System.from_function(lambda x, u: -x + u[0], 3, 0.1, input_dim=1)
MAP = fk.System.from_map(lambda x: 0.5 * x, 3)
Z = np.zeros((STEPS, 2))
BATCH = np.zeros((3, STEPS, 2))
INFINITE = np.where(np.arange(STEPS * 2).reshape(STEPS, 2) == 5, np.inf, 0.0)


def refused(options, words, method="ukf"):
    """`fk.estimate` must refuse; all of `words` must be in its one line."""
    given = {"system": LORENZ, "sensor": FRAME, "z": Z, "method": method, "particles": 10}
    with pytest.raises(fk.InputError) as caught:
        fk.estimate(**{**given, **options})
    message = str(caught.value)
    assert "\n" not in message and 20 < len(message) < 300
    for word in words.split("|"):
        assert word in message
    assert isinstance(caught.value, ValueError)


def table(*rows):
    """Rows (name, options, words in the message)."""
    return pytest.mark.parametrize(
        ("options", "words"),
        [pytest.param(options, words, id=name) for name, options, words in rows],
    )


@table(
    ("one-dimensional", {"z": Z[:, 0]}, "z has shape (5,)|(T, 2)|z[:, None]"),
    ("scalar", {"z": 1.0}, "z has shape ()"),
    ("four axes", {"z": Z[None, None]}, "z has shape (1, 1, 5, 2)"),
    ("too many columns", {"z": np.zeros((STEPS, 3))}, "z has 3 columns|observes 2"),
    ("too few columns", {"z": np.zeros((STEPS, 1))}, "z has 1 columns|observes 2"),
    ("columns of a batch", {"z": np.zeros((3, STEPS, 4))}, "z has 4 columns|observes 2"),
    ("no rows", {"z": np.zeros((0, 2))}, "z has no rows"),
    ("no rows in a batch", {"z": np.zeros((3, 0, 2))}, "z has no rows"),
    ("no trajectories", {"z": np.zeros((0, STEPS, 2))}, "z has shape (0,|trajectory"),
    ("empty list", {"z": []}, "z has shape (0,)"),
    ("none", {"z": None}, "z has shape ()"),
    ("infinite", {"z": INFINITE}, "z is infinite at row 2, column 1|NaN"),
    ("minus infinity", {"z": -INFINITE + 0.0 * Z}, "z is infinite at row 2, column 1"),
    ("text", {"z": [["1.0", "fog"]] * STEPS}, "z is not an array of numbers|fog"),
    ("dictionary", {"z": {"z": Z}}, "z is not an array of numbers"),
    ("rows of different lengths", {"z": [[1.0, 2.0], [3.0]]}, "z is not an array of numbers"),
    ("list, wrong columns", {"z": [Z, np.zeros((3, 4))]}, "z[1] has 4 columns"),
    ("list, no rows", {"z": [Z, np.zeros((0, 2))]}, "z[1] has no rows"),
    ("list, infinite", {"z": [Z, Z, INFINITE]}, "z[2] is infinite at row 2, column 1"),
    ("list, a row", {"z": [Z, Z[0]]}, "z[1] has|shape (2,)"),
    ("list, a number", {"z": [Z, 5.0]}, "z[1]"),
    ("list, text", {"z": [[["a", "b"]], Z]}, "z[0] is not an array of numbers"),
    (
        "list, rows of different lengths",
        {"z": [[[1.0, 2.0], [3.0]]]},
        "z",
    ),
    (
        "complex",
        {"z": Z + 1j},
        "z",
    ),
    (
        "infinite in a batch",
        {"z": np.stack([Z, INFINITE, Z])},
        "z[1] is infinite at row 2",
    ),
)
@pytest.mark.parametrize("method", ["ukf", "particle"])
def test_observations(options, words, method):
    refused(options, words, method)


NOISE = [
    ("negative", -1.0, "not positive semi-definite|-1"),
    ("indefinite", [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "semi-definite|-1"),
    ("asymmetric", [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "not symmetric|0.5"),
    ("NaN", np.nan, "nan|finite"),
    ("infinite", np.diag([1.0, np.inf, 1.0]), "inf|finite"),
    ("short diagonal", [1.0, 1.0], "shape (2,)"),
    ("wrong matrix", np.eye(4), "shape (4, 4)"),
    ("not square", np.ones((3, 2)), "shape (3, 2)"),
    ("text", "loud", "loud|numbers"),
    ("none", None, "None|numbers"),
    ("five axes", np.ones((1, 1, 1, 3, 3)), "shape (1, 1, 1, 3, 3)"),
]


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        pytest.param(argument, value, words, id=f"{argument}, {name}")
        for argument in ("process_noise", "observation_noise", "initial_cov")
        for name, value, words in NOISE
        if not (argument == "initial_cov" and value is None)  # the default
    ],
)
def test_covariances(argument, value, words):
    refused(
        {"sensor": fk.LinearSensor.identity(3), "z": np.zeros((STEPS, 3)), argument: value},
        f"{argument}|{words}",
    )


def matrices(*shape):
    return np.broadcast_to(np.eye(3), (*shape, 3, 3))


@table(
    ("too few steps", {"process_noise": matrices(4)}, "process_noise has 4 matrices|5 steps"),
    ("too many steps", {"process_noise": matrices(6)}, "process_noise has 6 matrices|5 steps"),
    (
        "one bad step",
        {"process_noise": np.eye(3) * np.array([1, 1, -2, 1, 1])[:, None, None]},
        "process_noise[2]|-2",
    ),
    (
        "observation noise, too few steps",
        {"observation_noise": np.broadcast_to(np.eye(2), (4, 2, 2))},
        "observation_noise has 4 matrices|5 steps",
    ),
    (
        "too many trajectories",
        {"z": BATCH, "process_noise": matrices(4, STEPS)},
        "process_noise has shape (4, 5, 3, 3)|(3, 5 or 1, 3, 3)",
    ),
    (
        "steps of trajectories",
        {"z": BATCH, "process_noise": matrices(3, 4)},
        "process_noise has shape (3, 4, 3, 3)",
    ),
    (
        "initial_cov per trajectory",
        {"z": BATCH, "initial_cov": matrices(4)},
        "initial_cov has shape (4, 3, 3)|(3, 3, 3)",
    ),
    (
        "initial_cov per step",
        {"z": BATCH, "initial_cov": matrices(3, STEPS)},
        "initial_cov has shape (3, 5, 3, 3)",
    ),
)
def test_covariances_per_step_and_trajectory(options, words):
    refused(options, words)


@table(
    ("short", {"initial_mean": np.zeros(2)}, "initial_mean has shape (2,)|(3,)"),
    ("scalar", {"initial_mean": 1.0}, "initial_mean has shape ()|(3,)"),
    ("column", {"initial_mean": np.zeros((3, 1))}, "initial_mean has shape (3, 1)"),
    ("NaN", {"initial_mean": [0.0, np.nan, 0.0]}, "initial_mean is not finite|nan"),
    ("text", {"initial_mean": "origin"}, "initial_mean is not an array of numbers"),
    (
        "too many trajectories",
        {"z": BATCH, "initial_mean": np.zeros((4, 3))},
        "initial_mean has shape (4, 3)|(3, 3)",
    ),
)
def test_initial_states(options, words):
    refused(options, words)


@table(
    ("alpha zero", {"alpha": 0.0}, "alpha is 0|alpha > 0"),
    ("alpha negative", {"alpha": -0.1}, "alpha is -0.1"),
    ("alpha NaN", {"alpha": np.nan}, "alpha is nan|finite"),
    ("alpha infinite", {"alpha": np.inf}, "alpha is inf|finite"),
    ("beta NaN", {"beta": np.nan}, "beta is nan|finite"),
    ("kappa NaN", {"kappa": np.nan}, "kappa is nan|finite"),
    ("n + kappa zero", {"kappa": -3.0}, "kappa is -3|3 components|dim + kappa > 0"),
    ("n + kappa negative", {"kappa": -7.5}, "kappa is -7.5|dim + kappa > 0"),
    ("alpha text", {"alpha": "wide"}, "alpha"),
    ("alpha none", {"alpha": None}, "alpha"),
    ("alpha array", {"alpha": np.ones(2)}, "alpha"),
)
@pytest.mark.parametrize("method", ["ukf", "ukf-resampled"])
def test_sigma_points(options, words, method):
    refused(options, words, method)


def test_methods_without_sigma_points_do_not_read_them():
    e = fk.estimate(LORENZ, FRAME, Z, method="ekf", alpha=-1.0, kappa=-10.0)
    assert e.ok


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_beta_below_alpha_squared_is_warned_of(alpha):
    with pytest.warns(UserWarning, match=r"beta = 0\.2 is below alpha² = .*definiteness") as caught:
        e = fk.estimate(LORENZ, FRAME, Z, alpha=alpha, beta=0.2)
    assert e.ok and len(caught) == 1
    assert caught[0].filename == __file__, "the warning must point at the caller"


def test_beta_at_alpha_squared_is_not_warned_of():
    """Warnings are errors in these tests."""
    assert fk.estimate(LORENZ, FRAME, Z, alpha=0.5, beta=0.25).ok


@table(
    ("misspelt", {"method": "unscented"}, "unknown method 'unscented'|ukf-resampled|particle"),
    ("capitals", {"method": "UKF"}, "unknown method 'UKF'|ukf"),
    ("none", {"method": None}, "unknown method None|ukf"),
    ("list", {"method": ["ukf"]}, "unknown method|ukf"),
)
def test_methods(options, words):
    refused(options, words)


def many(kind, *values):
    return {"z": np.zeros((len(values), STEPS, 2)), kind: list(values)}


@table(
    ("name", {"system": "lorenz63"}, "system is a str|System"),
    ("class", {"system": fk.systems.Lorenz63}, "system|System"),
    ("none", {"system": None}, "system is a NoneType"),
    ("sensor for system", {"system": FRAME}, "system is a LinearSensor"),
    ("matrix for sensor", {"sensor": np.eye(3)}, "sensor is a ndarray|Sensor"),
    ("function for sensor", {"sensor": lambda x: x[:2]}, "sensor is a function"),
    ("empty list", {"sensor": []}, "sensor"),
    ("list with a stranger", many("system", LORENZ, "lorenz63"), "system"),
    ("two sensors for three", {"z": BATCH, "sensor": [FRAME] * 2}, "2 sensors|3 trajectories"),
    ("four systems for three", {"z": BATCH, "system": [LORENZ] * 4}, "4 systems|3 trajectories"),
    ("two sensors for one", {"sensor": [FRAME] * 2}, "2 sensors|1 trajectories"),
    (
        "sensors of different kinds",
        many("sensor", FRAME, fk.FunctionSensor(lambda x: x[:2], 2)),
        "sensors|different kinds",
    ),
    (
        "systems of different kinds",
        many("system", LORENZ, fk.System.from_function(lambda x: -x, 3, 0.02)),
        "systems|different kinds",
    ),
)
def test_systems_and_sensors(options, words):
    refused(options, words)


@table(
    (
        "systems",
        many("system", LORENZ, fk.System.from_function(lambda x: -x, 4, 0.02)),
        "system",
    ),
    ("sensors", many("sensor", FRAME, fk.LinearSensor(np.ones((1, 3)))), "sensor"),
    ("a sensor", many("sensor", FRAME, fk.LinearSensor(np.ones((2, 4)))), "sensor|3 components"),
)
@pytest.mark.parametrize("method", ["ukf", "particle"])
def test_lists_of_different_dimensions(options, words, method):
    refused(options, words, method)


SENSORS = [
    ("four columns", fk.LinearSensor(np.ones((2, 4))), "sensor|3 components"),
    ("two columns", fk.LinearSensor(np.ones((2, 2))), "sensor|3 components"),
    ("one column", fk.LinearSensor(np.ones((2, 1))), "sensor|3 components"),
    ("function of four", fk.FunctionSensor(lambda x: jnp.ones((2, 4)) @ x, 2), "sensor"),
    ("function is NumPy's", fk.FunctionSensor(lambda x: np.asarray(x)[:2], 2), "sensor"),
    ("function raises", fk.FunctionSensor(lambda x: {}[0], 2), "sensor|KeyError"),
    ("gives one of two", fk.FunctionSensor(lambda x: x[:1], 2), "sensor"),
    ("gives three of two", fk.FunctionSensor(lambda x: x, 2), "sensor"),
    ("gives a list", fk.FunctionSensor(lambda x: [x[0], x[1]], 2), "sensor"),
    ("gives a matrix", fk.FunctionSensor(lambda x: x[:2, None], 2), "sensor"),
]


def wrong_sensors():
    for method in ("ukf", "ekf", "particle"):
        for name, sensor, words in SENSORS:
            yield pytest.param(sensor, words, method, id=f"{method}, {name}")


@pytest.mark.parametrize(("sensor", "words", "method"), list(wrong_sensors()))
def test_sensors_of_the_wrong_dimension(sensor, words, method):
    refused({"sensor": sensor}, words, method)


@table(
    ("missing", {"system": DRIVEN}, "inputs|takes 1"),
    ("superfluous", {"inputs": np.zeros((STEPS, 1))}, "inputs|takes none"),
    ("flat", {"system": DRIVEN, "inputs": np.zeros(STEPS)}, "inputs has shape (5,)|(5, 1)"),
    (
        "too few",
        {"system": DRIVEN, "inputs": np.zeros((4, 1))},
        "inputs has shape (4, 1)|(5, 1)",
    ),
    (
        "too many columns",
        {"system": DRIVEN, "inputs": np.zeros((STEPS, 2))},
        "inputs has shape (5, 2)|(5, 1)",
    ),
    (
        "NaN",
        {"system": DRIVEN, "inputs": np.full((STEPS, 1), np.nan)},
        "inputs is not finite",
    ),
    ("text", {"system": DRIVEN, "inputs": "full"}, "inputs is not an array of numbers"),
    ("dt too short", {"dt": np.full(4, 0.02)}, "dt has shape (4,)|(5,)"),
    ("dt column", {"dt": np.full((STEPS, 1), 0.02)}, "dt has shape (5, 1)|(5,)"),
    ("dt NaN", {"dt": np.full(STEPS, np.nan)}, "dt is not finite"),
    ("dt text", {"dt": "short"}, "dt is not an array of numbers"),
    ("dt of a map", {"system": MAP, "dt": np.ones(STEPS)}, "dt|from_map"),
    ("dt negative", {"dt": np.full(STEPS, -0.02)}, "dt"),
    ("dt zero", {"dt": np.zeros(STEPS)}, "dt"),
)
@pytest.mark.parametrize("method", ["ukf", "particle"])
def test_inputs_and_intervals(options, words, method):
    refused(options, words, method)


@table(
    ("fraction", {"seed": 1.5}, "seed is 1.5"),
    ("text", {"seed": "luck"}, "seed"),
    ("negative", {"seed": -1}, "seed is -1"),
)
def test_seeds_of_the_particle_filter(options, words):
    refused(options, words, "particle")
