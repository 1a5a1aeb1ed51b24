"""Every mistake is one line with its cause, its value and what to do."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights

ROWS = np.random.default_rng(0).normal(size=(20, 2))
FITTED = DeepKoopman(3, width=4, epochs=1, kind="paper").fit(ROWS)
DELAYED = DeepKoopman(3, width=4, epochs=1, n_delays=2, kind="paper").fit(ROWS)


def refused(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def holed(value):
    rows = ROWS.copy()
    rows[7, 1] = value
    return rows


STACK = np.stack([ROWS, holed(np.nan), ROWS])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ROWS[:, 0], r"X has shape \(20,\): give .*reshape\(-1, 1\)"),
        (3.0, r"X has shape \(\)"),
        (np.ones((2, 2, 2, 2)), r"X has shape \(2, 2, 2, 2\): give \(T, n\)"),
        (np.ones((0, 5, 2)), r"X has shape \(0, 5, 2\)"),
        ([], r"X has 0 feature|X has shape \(0,\)"),
        (np.ones((0, 2)), "X has 0 samples"),
        (np.ones((4, 0)), r"X has 0 feature\(s\)"),
        (holed(np.nan), "X has NaN in row 7, column 1: estimate the states first with fk.estimate"),
        (holed(-np.inf), "X has inf in row 7.*cut the trajectory there"),
        (STACK, r"X\[1\] has NaN in row 7"),
        ([ROWS, ROWS, holed(np.inf)], r"X\[2\] has inf in row 7"),
        ([ROWS, ROWS[:, :1]], r"X\[1\] has 1 features, but the list, by X\[0\], is expecting 2"),
        ([ROWS, ROWS[0]], r"X\[1\] has shape \(2,\): in a list, give \(T_i, n\)"),
        ([[1.0, 2.0], [3.0]], "X has rows of different lengths"),
        (ROWS + 1j, "Complex data not supported"),
        ([["a", "b"], ["c", "d"]], "X holds <U1 entries: give real numbers"),
        (np.array([[1.0, {}], [2, 3]], object), "X is not an array of real numbers"),
        (scipy.sparse.csr_array(ROWS), r"X is a sparse array: give a dense one, X.toarray\(\)"),
        (np.ma.masked_less(ROWS, 0), "X has masked entries"),
        (ROWS * 1e300, "too large for float32: scale the states"),
        (
            [pd.DataFrame(ROWS, columns=["a", "b"]), pd.DataFrame(ROWS, columns=["b", "a"])],
            r"X\[1\] has the columns \['b', 'a'\] but X\[0\] has \['a', 'b'\]",
        ),
    ],
)
def test_fit_refuses(given, message):
    refused(lambda: DeepKoopman(3, epochs=1, kind="paper").fit(given), message)


def test_trajectories_that_are_too_short_are_named():
    model = DeepKoopman(3, n_delays=2, depth=3, epochs=1, kind="paper")
    message = r"X\[1\] has 5 samples, but training with n_delays=2, depth=3 needs at least 6"
    refused(lambda: model.fit([ROWS, ROWS[:5], ROWS]), message)
    refused(lambda: model.fit(ROWS[:1]), "X has 1 sample, but")
    assert model.fit([ROWS, ROWS[:6]]).n_features_in_ == 2
    refused(lambda: model.score([ROWS, ROWS[:5]]), r"X\[1\] has 5 samples, but a score needs")


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("n_components", 0, "n_components is 0: give a whole number of at least 1"),
        ("n_components", "many", "n_components is 'many'"),
        ("verbose", -1, "verbose is -1: give a whole number of at least 0"),
        ("dt", 0, "dt is 0: it must be above 0"),
        ("dt", "fast", "dt is 'fast': give one finite real number"),
        ("n_delays", -1, "n_delays is -1: give a whole number of at least 0"),
        ("depth", 0, "depth is 0"),
        ("hidden_layers", -1, "hidden_layers is -1"),
        ("width", 1.5, "width is 1.5"),
        ("activation", "rely", "unknown activation 'rely': did you mean 'relu'"),
        ("epochs", 0, "epochs is 0"),
        ("batch_size", 0, "batch_size is 0"),
        ("learning_rate", -1e-3, "learning_rate is -0.001: it must be above 0"),
        ("learning_rate", np.nan, "learning_rate is nan"),
        ("weight_decay", -1, "weight_decay is -1: it must be at least 0"),
        ("decay", 0, "decay is 0: give a number above 0 and up to 1"),
        ("decay", 1.1, "decay is 1.1"),
        ("loss_weights", (1, 1), r"loss_weights is \(1, 1\): give three numbers"),
        ("loss_weights", (0, 0, 0), r"loss_weights is \(0, 0, 0\): .*not all 0"),
        ("loss_weights", (1, -1, 1), "give numbers >= 0"),
        ("loss_weights", 1, "loss_weights is 1"),
        ("precision", "float16", "unknown precision 'float16'"),
        ("random_state", -1, "seed is -1"),
        ("random_state", "lucky", "seed is 'lucky'"),
    ],
)
def test_parameters_are_checked_in_fit_and_not_before(parameter, value, message):
    model = DeepKoopman(**{"kind": "paper", "epochs": 1, parameter: value})
    refused(lambda: model.fit(ROWS), message)
    assert not hasattr(model, "operator_")


@pytest.mark.parametrize(
    "method", ["predict", "transform", "eigenfunctions", "score", "partial_fit"]
)
def test_a_fitted_model_refuses_other_states(method):
    call = getattr(FITTED, method)
    refused(lambda: call(np.ones((5, 3))), "X has 3 features, but DeepKoopman is expecting 2")
    refused(lambda: call(holed(np.nan)), "X has NaN in row 7")
    refused(lambda: call(np.ones((0, 2))), "X has 0 samples")
    table = pd.DataFrame(ROWS, columns=["speed", "angle"])
    model = DeepKoopman(3, width=4, epochs=1, kind="paper").fit(table[["angle", "speed"]])
    message = r"X has the columns \['speed', 'angle'\] but the model was trained on \['angle',"
    refused(lambda: getattr(model, method)(table), message)


def test_windows_need_enough_rows():
    refused(lambda: DELAYED.predict(ROWS[:2]), "X has 2 samples, but a window of n_delays=2 needs")
    refused(lambda: DELAYED.predict(ROWS[0]), r"X has shape \(2,\)")
    assert DELAYED.predict(ROWS[:3]).shape == (1, 2)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2"])
def test_steps_are_whole_and_positive(steps):
    refused(lambda: FITTED.predict(ROWS, steps), "n_steps is .*whole number of at least 1")
    refused(lambda: FITTED.simulate(ROWS[0], steps), "n_steps is .*whole number of at least 1")


def test_simulate_wants_states_or_windows():
    refused(lambda: FITTED.simulate(np.ones(3), 2), r"x0 has shape \(3,\): give \(2,\) or \(B, 2\)")
    refused(lambda: FITTED.simulate(np.ones((1, 4, 2)), 2), r"x0 has shape \(1, 4, 2\)")
    refused(
        lambda: FITTED.simulate(np.ones((0, 2)), 2), r"x0 has shape \(0, 2\): give at least one"
    )
    refused(lambda: FITTED.simulate([1.0, np.nan], 2), "x0 has NaN, column 1")
    message = r"x0 has shape \(2,\): give \(3, 2\) or \(B, 3, 2\)"
    refused(lambda: DELAYED.simulate(np.ones(2), 2), message)


def test_inverse_transform_wants_lifted_states():
    message = "X has 2 components, but DeepKoopman is expecting 3 components"
    refused(lambda: FITTED.inverse_transform(ROWS), message)


def test_partial_fit_refuses_another_shape_of_network():
    model = DeepKoopman(3, width=4, epochs=1, kind="paper").fit(ROWS).set_params(width=5)
    refused(lambda: model.partial_fit(ROWS), "was trained as .*width=4.*call fit to start anew")


@pytest.mark.parametrize("kind", ["edmd", "inclusive", "spectral"])
def test_kinds_solved_at_once_refuse_to_forget(kind):
    model = DeepKoopman(6, kind=kind, epochs=1).partial_fit(ROWS)
    refused(lambda: model.partial_fit(ROWS), f"of the kind {kind} is solved .*call fit with all")
    assert model.predict(ROWS).shape == ROWS.shape


ARCHITECTURE = PaperNetwork(2, 3, width=4)
WEIGHTS = ARCHITECTURE.initialise(seed=0)


def replaced(**parts):
    return WEIGHTS._replace(**parts)


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (replaced(operator=np.eye(4)), {}, r"operator has shape \(4, 4\): it must be \(3, 3\)"),
        (replaced(operator=np.eye(3, dtype=int)), {}, "operator holds int64"),
        (
            replaced(encoder=WEIGHTS.decoder),
            {},
            r"encoder.0 has shape \(4, 4\): it must be \(4, 3\)",
        ),
        (
            replaced(decoder=WEIGHTS.decoder[:1]),
            {},
            "the tensor 'decoder.1' is missing: give all tensors of a model of",
        ),
        (
            replaced(decoder=WEIGHTS.decoder + WEIGHTS.decoder[:1]),
            {},
            "'decoder.2' is not among the tensors of a model of the kind paper with these settings",
        ),
        (replaced(operator=np.full((3, 3), np.nan)), {}, "weights are not all finite"),
        (
            replaced(decoder=(WEIGHTS.decoder[0], Layer(np.full((2, 5), np.inf)))),
            {},
            "weights are not all finite",
        ),
        (WEIGHTS, {"dt": -1.0}, "dt is -1: it must be above 0"),
        (WEIGHTS, {"reference": np.ones(3)}, r"reference has shape \(3,\): give one window"),
        (WEIGHTS, {"reference": [1, np.nan]}, "reference contains nan"),
        (WEIGHTS, {"names": ["x"]}, r"names is \('x',\): give one text for each of 2 states"),
        (WEIGHTS, {"units": [1, 2]}, "units is"),
        (WEIGHTS, {"information": {"x": np.nan}}, "information cannot be kept with the model"),
        (WEIGHTS, {"information": {"x": ROWS}}, "information cannot be kept with the model"),
    ],
)
def test_weights_from_elsewhere_are_checked(weights: Weights, options, message):
    refused(
        lambda: DeepKoopman.from_weights(ARCHITECTURE, weights, **{"dt": 1.0, **options}), message
    )
