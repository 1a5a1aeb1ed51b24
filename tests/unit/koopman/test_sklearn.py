"""scikit-learn takes the estimator for one of its own."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.fitted import NotFittedError

SMALL = DeepKoopman(3, width=4, epochs=2)
# Checks that ask for something else than what we mean; each must really fail.
OTHERWISE = {
    "check_dtype_object": "entries that are no numbers are an InputError, a ValueError",
    "check_estimators_unfitted": "our NotFittedError is not scikit-learn's, which we do not import",
    "check_fit2d_predict1d": "a single state (n,) is fine",
}


def name_of(check):
    while isinstance(check, partial) and isinstance(check.func, partial):
        check = check.func
    options = {k: v for k, v in check.keywords.items() if k != "name"}
    return check.func.__name__ + "".join(f"-{k}={v}" for k, v in options.items())


def checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not a subclass of BaseEstimator
        found = [check for _, check in estimator_checks_generator(SMALL)]
    # Those of other array libraries need an environment variable of SciPy's.
    return [check for check in found if "array_api" not in name_of(check)]


@pytest.mark.parametrize("check", checks(), ids=name_of)
def test_estimator_check(check):
    if name_of(check) in OTHERWISE:
        with pytest.raises((AssertionError, InputError)):
            check(clone(SMALL))
    else:
        check(clone(SMALL))


def test_the_parameters_are_the_constructors_arguments():
    model = DeepKoopman(5, n_delays=2, activation="tanh")
    parameters = model.get_params()
    assert parameters["n_components"] == 5 and parameters["n_delays"] == 2
    assert parameters["loss_weights"] == (1 / 3, 1 / 3, 1 / 3)
    assert parameters["kind"] == "paper"
    assert len(parameters) == 16
    assert DeepKoopman(**parameters).get_params() == parameters


def test_set_params_returns_the_model_and_refuses_unknown_names():
    model = DeepKoopman()
    assert model.set_params(width=7, depth=2) is model
    assert (model.width, model.depth) == (7, 2)
    with pytest.raises(InputError, match=r"unknown parameter of DeepKoopman 'epoch': .*'epochs'"):
        model.set_params(epoch=3, width=1)
    assert model.width == 7


def test_the_representation_shows_what_is_not_the_default_and_can_be_evaluated():
    assert repr(DeepKoopman()) == "DeepKoopman()"
    model = DeepKoopman(None, dt=0.02, activation="gelu")
    assert repr(model) == "DeepKoopman(n_components=None, dt=0.02, activation='gelu')"
    assert eval(repr(model)).get_params() == model.get_params()


def test_a_clone_has_the_parameters_and_nothing_learned():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    model = DeepKoopman(3, width=4, epochs=2, random_state=5).fit(rows)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "operator_")


def test_a_function_as_activation_survives_a_clone():
    model = DeepKoopman(activation=np.tanh)
    assert clone(model).activation is np.tanh


def test_a_pickled_model_predicts_the_same():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    model = clone(SMALL).fit(rows)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(rows), model.predict(rows)
    )


def test_before_fit_nothing_is_there_and_the_error_says_what_to_do():
    model = DeepKoopman()
    for name in ("operator_", "eigenvalues_", "modes_", "n_features_in_", "weights_", "learned_"):
        assert not hasattr(model, name)
    for call in (
        lambda: model.predict(np.ones((3, 2))),
        lambda: model.simulate(np.ones(2), 3),
        lambda: model.transform(np.ones((3, 2))),
        lambda: model.inverse_transform(np.ones((3, 12))),
        lambda: model.eigenfunctions(np.ones((3, 2))),
        lambda: model.score(np.ones((3, 2))),
        lambda: model.save("nowhere"),
    ):
        with pytest.raises(NotFittedError, match="call fit first"):
            call()


def test_a_pipeline_scales_before_the_model():
    rows = 100 + 30 * np.random.default_rng(0).normal(size=(40, 2))
    pipeline = make_pipeline(StandardScaler(), clone(SMALL)).fit(rows)
    scaled = StandardScaler().fit_transform(rows)
    np.testing.assert_array_equal(pipeline.predict(rows), clone(SMALL).fit(scaled).predict(scaled))
    assert pipeline.transform(rows).shape == (40, 3)


def test_a_search_finds_the_better_parameters():
    angles = 0.3 * np.arange(60)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    model = DeepKoopman(2, hidden_layers=0, batch_size=8, learning_rate=0.01, epochs=30)
    search = GridSearchCV(model, {"depth": [1], "loss_weights": [(1, 0, 0), (0.3, 0.3, 0.4)]}, cv=2)
    search.fit(rows)
    assert search.best_params_["loss_weights"] == (0.3, 0.3, 0.4)  # without ℓ2 and ℓ3: no decoder
