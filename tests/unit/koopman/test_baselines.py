"""`EDMD` and `DMD` against plain least squares of NumPy and features of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import PolynomialFeatures

import fedkoopman as fk
from fedkoopman.errors import InputError

RNG = np.random.default_rng(0)


def duffing(count, steps=40, seed=0):
    """A damped Duffing oscillator in small Euler steps, every fifth kept."""
    x = np.random.default_rng(seed).uniform(-1.5, 1.5, size=(count, 2))
    rows = []
    for i in range(5 * steps):
        if i % 5 == 0:
            rows.append(x)
        p, v = x.T
        x = x + 0.01 * np.stack([v, p - p**3 - 0.3 * v], axis=1)
    return np.stack(rows, axis=1)


TRAIN, TEST = duffing(20), duffing(4, seed=1)


def pairs_of(parts, window=1, depth=1):
    """Windows, oldest state first, and the windows `depth` later."""
    now, later = [], []
    for part in parts:
        for k in range(len(part) - window - depth + 1):
            now.append(part[k : k + window].ravel())
            later.append(part[k + depth : k + depth + window].ravel())
    return np.array(now), np.array(later)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_edmd_predicts_as_least_squares_on_scikit_learns_monomials(degree):
    model = fk.EDMD(degree).fit(TRAIN)
    flat = TRAIN.reshape(-1, 2)
    mean, std = flat.mean(axis=0), flat.std(axis=0)
    now, later = (
        PolynomialFeatures(degree).fit_transform((x - mean) / std) for x in pairs_of(TRAIN)
    )
    operator = np.linalg.lstsq(now, later, rcond=None)[0]
    lifted = PolynomialFeatures(degree).fit_transform((TEST.reshape(-1, 2) - mean) / std)
    assert model.n_components_ == lifted.shape[1] == (degree + 1) * (degree + 2) // 2
    for steps in (1, 2, 10):
        expected = (lifted @ np.linalg.matrix_power(operator, steps))[:, 1:3] * std + mean
        found = model.predict(TEST, steps, relift=0).reshape(-1, 2)
        np.testing.assert_allclose(found, expected, atol=1e-7)
    expected = np.sort(np.abs(np.linalg.eigvals(operator)))
    np.testing.assert_allclose(np.sort(np.abs(model.eigenvalues_)), expected, atol=1e-6)


@pytest.mark.parametrize(("n_delays", "depth"), [(0, 1), (2, 1), (1, 3)])
def test_dmd_is_affine_least_squares_of_windows(n_delays, depth):
    # With noise, without which windows of smooth trajectories are nearly dependent.
    noise = 0.1 * np.random.default_rng(0).normal(size=TRAIN.shape)
    parts = [part[: 30 + i % 9] for i, part in enumerate(TRAIN + noise)]
    model = fk.DMD(n_delays=n_delays, depth=depth, dt=0.05).fit(parts)
    now, later = pairs_of(parts, n_delays + 1, depth)
    affine = np.linalg.lstsq(np.column_stack([now, np.ones(len(now))]), later, rcond=None)[0]
    window = TEST[0, : n_delays + 1].ravel()
    expected = []
    for _ in range(6):
        window = np.append(window, 1) @ affine
        expected.append(window[-2:])
    start = TEST[0, : n_delays + 1] if n_delays else TEST[0, 0]
    np.testing.assert_allclose(model.simulate(start, 6), expected, atol=1e-8)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6])
def test_every_pair_counts_however_few_trajectories_there_are(count):
    parts = [np.random.default_rng(i).normal(size=(11 + i, 2)).cumsum(axis=0) for i in range(count)]
    now, later = pairs_of(parts)
    affine = np.column_stack([now, np.ones(len(now))])
    expected = affine @ np.linalg.lstsq(affine, later, rcond=None)[0]
    found = [fk.DMD().fit(parts).predict(part)[:-1] for part in parts]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-9)


def test_dmd_finds_the_eigenvalues_of_a_linear_system_whatever_its_offset():
    matrix = 0.98 * np.array([[np.cos(0.2), -np.sin(0.2)], [np.sin(0.2), np.cos(0.2)]])
    rows = [RNG.normal(size=2)]
    for _ in range(30):
        rows.append(matrix @ rows[-1])
    model = fk.DMD(dt=0.1).fit(100 + np.array(rows))
    assert model.n_components_ == 3
    np.testing.assert_allclose(model.eigenvalues_, [1, *0.98 * np.exp([0.2j, -0.2j])], atol=1e-9)
    np.testing.assert_allclose(model.frequencies_[1:], 0.2 / 0.1 / (2 * np.pi), rtol=1e-8)
    assert model.score(100 + np.array(rows)) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("dictionary", ["fourier", "rbf"])
def test_random_features_forecast_and_depend_on_the_seed_alone(dictionary):
    options = {"dictionary": dictionary, "features": 30}
    model = fk.EDMD(**options).fit(TRAIN)
    assert model.n_components_ == 33
    assert model.score(TEST) > fk.DMD().fit(TRAIN).score(TEST)
    again = fk.EDMD(**options, random_state=0).fit(TRAIN)
    np.testing.assert_array_equal(again.operator_, model.operator_)
    other = fk.EDMD(**options, random_state=1).fit(TRAIN)
    assert not np.array_equal(other.operator_, model.operator_)


def test_more_functions_forecast_better_than_fewer():
    dmd, edmd = fk.DMD().fit(TRAIN), fk.EDMD(5).fit(TRAIN)
    assert edmd.score(TEST) > dmd.score(TEST)
    assert edmd.score(TEST) > 0.5


@pytest.mark.parametrize(
    "model", [fk.EDMD(2, n_delays=1, ridge=1e-9), fk.DMD(depth=2), fk.EDMD(dictionary="rbf")]
)
def test_files_and_clones_keep_what_there_is(model, tmp_path):
    model = clone(model).fit(TRAIN)
    model.save(tmp_path / "m.safetensors")
    loaded = type(model).load(tmp_path / "m.safetensors")
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(TEST), model.predict(TEST))
    anyhow = fk.load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(anyhow.predict(TEST), model.predict(TEST))
    assert not hasattr(model, "history_")


def test_tables_come_back_and_searches_work():
    frames = [pd.DataFrame(part, columns=["x", "v"]) for part in TRAIN]
    table = pd.concat(frames, keys=range(20), names=["segment", "step"])
    table["time"] = 0.05 * np.tile(np.arange(40), 20)
    model = fk.EDMD(3).fit(table)
    assert model.dt_ == 0.05 and model.feature_names_in_.tolist() == ["x", "v"]
    assert model.predict(table).columns.tolist() == ["time", "x", "v"]
    assert model.transform(table).columns[:2].tolist() == ["edmd0", "edmd1"]
    search = GridSearchCV(fk.EDMD(), {"degree": [1, 4]}, cv=2).fit(list(TRAIN))
    assert search.best_params_ == {"degree": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 0}, "degree is 0: give a whole number of at least 1"),
        ({"degree": "two"}, "degree is 'two'"),
        ({"dictionary": "spline"}, "unknown dictionary 'spline': "),
        ({"ridge": -1.0}, "ridge is -1: it must be at least 0"),
        ({"ridge": "small"}, "ridge is 'small'"),
        ({"n_delays": -1}, "n_delays is -1"),
        ({"degree": 90}, "has 4186 functions: give a lower degree"),
    ],
)
def test_parameters_are_checked_in_fit(options, message):
    with pytest.raises(InputError, match=message):
        fk.EDMD(**options).fit(TRAIN)


def test_files_of_other_models_are_refused(tmp_path):
    fk.EDMD(2).fit(TRAIN).save(tmp_path / "edmd.safetensors")
    with pytest.raises(InputError, match=r"which is no DMD: load it with fk.EDMD.load"):
        fk.DMD.load(tmp_path / "edmd.safetensors")
    network = fk.DeepKoopman(3, kind="paper", width=4, epochs=1).fit(TRAIN)
    network.save(tmp_path / "paper.safetensors")
    with pytest.raises(InputError, match=r"of the kind paper, which is no EDMD"):
        fk.EDMD.load(tmp_path / "paper.safetensors")


def test_eigenfunctions_are_those_of_a_system_whose_are_known() -> None:
    """x₁' = a x₁, x₂' = b x₂ + (a² − b) x₁² has φ = x₁ with a, x₁² with a², and x₂ − x₁² with b."""
    a, b = 0.9, 0.6
    x = [np.random.default_rng(0).uniform(-1, 1, (40, 2))]
    for _ in range(6):
        first, second = x[-1].T
        x.append(np.stack([a * first, b * second + (a**2 - b) * first**2], axis=1))
    paths = np.stack(x, axis=1)
    model = fk.EDMD(degree=2).fit(paths)
    psi = model.eigenfunctions(paths)
    for value, known in (
        (a, paths[..., 0]),
        (a**2, paths[..., 0] ** 2),
        (b, paths[..., 1] - paths[..., 0] ** 2),
    ):
        # near b there may be others, as of a function that least squares can only approximate
        near = np.flatnonzero(np.abs(model.eigenvalues_ - value) < 1e-8)
        basis = psi[..., near].reshape(-1, len(near))
        weights = np.linalg.lstsq(basis, known.ravel().astype(complex), rcond=None)[0]
        np.testing.assert_allclose(basis @ weights, known.ravel(), atol=1e-8)
        for j in near:
            ahead = psi[:, :-1, j] * model.eigenvalues_[j]
            np.testing.assert_allclose(psi[:, 1:, j], ahead, atol=1e-8)
