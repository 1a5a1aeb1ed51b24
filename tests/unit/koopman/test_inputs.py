"""Models with inputs, against the systems they were learned from."""

import numpy as np
import pytest
from reference import driven

import fedkoopman as fk
from fedkoopman.koopman.onnx import to_onnx

QUICK = {
    "edmd": {"degree": 2},
    "spectral": {"horizon": 5, "epochs": 2, "features": 8},
    "inclusive": {"epochs": 2},
    "paper": {"epochs": 2},
}


DELAYS = pytest.mark.parametrize("delays", [pytest.param(0, marks=pytest.mark.slow), 2])


@pytest.fixture(scope="module")
def data():
    return {one.__name__: driven.trajectories(one) for one in (driven.linear, driven.bilinear)}


def fitted(kind, data, bilinear=False, **more):
    X, U = data["bilinear" if bilinear else "linear"]
    return fk.DeepKoopman(kind=kind, bilinear=bilinear, **QUICK[kind] | more).fit(X, U=U)


def in_states(model):
    """A, B and N_i in the states' own units, of a model whose functions are 1 and the state."""
    mean, std = (np.asarray(model.weights_[name])[:2] for name in ("mean", "std"))
    turn = std[:, None] / std
    N = np.zeros((2, 2, 2)) if model.bilinear_ is None else model.bilinear_[:, 1:, 1:] * turn
    # u_i N_i (x − mean) has a part that is B's.
    B = model.input_matrix_[1:] * std[:, None] - (N @ mean).T
    return model.operator_[1:, 1:] * turn, B, N


def test_a_linear_driven_system_is_recovered(data):
    X, U = data["linear"]
    A, B, _ = in_states(fk.DMD().fit(X, U=U))
    np.testing.assert_allclose(A, driven.A, atol=1e-8)
    np.testing.assert_allclose(B, driven.B, atol=1e-8)


def test_a_bilinear_system_is_recovered(data):
    X, U = data["bilinear"]
    model = fk.DMD(bilinear=True).fit(X, U=U)
    for found, true in zip(in_states(model), (driven.A, driven.B, driven.N), strict=True):
        np.testing.assert_allclose(found, true, atol=1e-8)
    plain = fk.DMD().fit(X, U=U)
    error = np.abs(plain.predict(X[0], U=U[0])[:-1] - X[0][1:]).max()
    assert error > 1e-2, "the data do not tell a bilinear system from a linear one"


@DELAYS
def test_a_spectral_model_forecasts_a_driven_system(data, delays):
    X, U = driven.trajectories(driven.linear, seed=1)
    model = fitted("spectral", data, n_delays=delays)
    start = X[0][0] if not delays else X[0][: delays + 1]
    past = U[0][:delays] if delays else None
    found = model.simulate(start, U=U[0][delays:30], past=past, relift=0)
    np.testing.assert_allclose(found, X[0][delays + 1 : 31], atol=1e-3)


def test_poles_come_out_of_noisy_observations_after_smoothing():
    """A damped oscillator seen through its position alone, x' and poles by its equations."""
    dt, random = 0.1, np.random.default_rng(0)
    field = np.array([[0.0, 1.0], [-4.0, -0.4]])
    system = fk.System.from_function(
        lambda x, u: np.array(field) @ x + u[0] * np.array([0.0, 1.0]), 2, dt=dt, input_dim=1
    )
    sensor = fk.LinearSensor([[1.0, 0.0]])
    X, U = [], []
    for seed in range(6):
        u = np.repeat(random.normal(size=(40, 1)), 5, axis=0)
        x = fk.simulate(system, 200, initial=random.normal(size=2), inputs=u, seed=seed)
        z = fk.observe(sensor, x[1:], noise=1e-4, seed=seed)
        e = fk.estimate(
            system, sensor, z, inputs=u, process_noise=1e-8, observation_noise=1e-4,
            initial_cov=1.0,
        )  # fmt: skip
        X.append(e.mean)
        U.append(u[1:])  # the input up to the next sample; one row less than states
    model = fk.DMD(dt=dt).fit(X, U=U)
    from scipy.linalg import expm

    poles = np.sort_complex(np.linalg.eigvals(expm(dt * field)))
    found = [v for v in model.eigenvalues_ if abs(v - 1) > 1e-6]
    np.testing.assert_allclose(np.sort_complex(np.array(found)), poles, atol=1e-3)


@pytest.mark.parametrize("bilinear", [False, True])
@pytest.mark.parametrize("kind", QUICK)
def test_simulations_are_the_formula_by_hand(kind, bilinear, data):
    """y' = K y + B u + Σ u_i N_i y, with the matrices that the model shows."""
    X, U = data["bilinear" if bilinear else "linear"]
    model = fitted(kind, data, bilinear)
    y, states = model.transform(X[0][0]), []
    for u in U[0][:10]:
        after = model.operator_ @ y + model.input_matrix_ @ u
        if bilinear:
            after += sum(u[i] * model.bilinear_[i] @ y for i in range(2))
        y = after
        states.append(model.inverse_transform(y))
    found = model.simulate(X[0][0], U=U[0][:10], relift=0)
    np.testing.assert_allclose(found, states, rtol=1e-9, atol=1e-11)
    one = model.predict(X[0], U=U[0], relift=0)[0]
    np.testing.assert_allclose(one, states[0], rtol=1e-9, atol=1e-11)
    three = model.predict(X[0], 3, U=U[0], relift=0)[0]
    np.testing.assert_allclose(three, states[2], rtol=1e-9, atol=1e-11)


@DELAYS
@pytest.mark.parametrize("kind", QUICK)
def test_files_and_graphs_hold_inputs(kind, delays, data, tmp_path):
    import onnxruntime

    X, U = data["bilinear"]
    model = fitted(kind, data, True, n_delays=delays)
    model.save(tmp_path / "model.safetensors")
    again = fk.load_model(tmp_path / "model.safetensors")
    start = X[0][: delays + 1] if delays else X[0][0]
    more = {"U": U[0][delays : delays + 7], "past": U[0][:delays] if delays else None, "relift": 0}
    found = model.simulate(start, **more)
    np.testing.assert_array_equal(again.simulate(start, **more), found)
    assert again.bilinear and again.n_inputs_ == 2
    session = onnxruntime.InferenceSession(to_onnx(model, steps=7))
    dtype = np.float64 if "double" in session.get_inputs()[0].type else np.float32
    x = np.concatenate([U[0][:delays].ravel(), X[0][: delays + 1].ravel()])[None].astype(dtype)
    _, following, ahead = session.run(None, {"x": x, "u": more["U"][None].astype(dtype)})
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(ahead[0], found, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(following[0], found[0], rtol=tolerance, atol=tolerance)


def test_relifted_forecasts_use_the_inputs_that_are_known(data):
    """With delays a model that is lifted anew at every step is an input-output recursion."""
    X, U = data["linear"]
    seen = [x[:, :1] for x in X]
    model = fk.DMD(n_delays=2).fit(seen, U=U)
    found = model.simulate(seen[0][:3], U=U[0][2:40], past=U[0][:2], relift=1)
    np.testing.assert_allclose(found, seen[0][3:41], atol=1e-8)


def test_the_filter_follows_a_driven_system(data):
    X, U = data["linear"]
    model, random = fk.DMD().fit(X, U=U), np.random.default_rng(0)
    kalman = fk.KoopmanFilter(
        model, fk.LinearSensor([[1.0, 0.0]]), observation_noise=1e-2,
        process_noise=1e-10, initial_mean=X[0][0], initial_cov=1e-2,
    )  # fmt: skip
    z = X[0][1:, :1] + 0.1 * random.normal(size=(59, 1))
    found = kalman.smooth(z, inputs=U[0][:-1])
    assert np.abs(found.mean - X[0][1:])[10:].max() < 0.02
    ahead = kalman.forecast(z[:40], 10, inputs=U[0][:40], future=U[0][40:50])
    np.testing.assert_allclose(ahead.mean, X[0][41:51], atol=0.02)
    with pytest.raises(fk.InputError, match="give future"):
        kalman.forecast(z, 10, inputs=U[0][:-1])


def test_bands_cover_driven_forecasts():
    random = np.random.default_rng(0)
    X, U = driven.trajectories(driven.bilinear, count=40)
    noisy = [x + 0.01 * random.normal(size=x.shape) for x in X]
    model = fk.DMD(bilinear=True).fit(noisy[:20], U=U[:20])
    found = model.forecast(
        [x[:30] for x in noisy[20:]], 10, U=[u[:30] for u in U[20:]],
        future=np.stack([u[29:39] for u in U[20:]]),
    )  # fmt: skip
    truth = np.stack([x[30:40] for x in noisy[20:]])
    covered = np.mean(np.abs(found.mean - truth) <= 2 * found.std)
    assert 0.88 <= covered <= 0.995


def test_doubt_grows_as_the_inputs_make_it():
    """A bilinear model's covariances against 100,000 perturbed simulations, where the inputs turn a
    shrinking system into a growing one."""
    random = np.random.default_rng(0)
    U = [random.uniform(-1, 1, (50, 1)) for _ in range(4)]
    X = []
    for u in U:
        x = [np.array([0.5])]
        for one in u[:-1]:
            x.append((0.3 + 0.6 * one) * x[-1] + 0.1 * one + 0.1)
        X.append(np.array(x))
    model = fk.DMD(bilinear=True).fit(X, U=U)
    future, start = np.ones((5, 1)), X[0][:1]
    drawn = start[-1] + 0.2 * random.normal(size=(100_000, 1))
    ahead = model.simulate(drawn, U=future, relift=0)
    filtered = fk.KoopmanFilter(
        model, fk.LinearSensor([[1.0]]), observation_noise=0.08, process_noise=1e-12,
        initial_mean=[0.5], initial_cov=0.08 / (0.3 + 0.6 * 0.0) ** 2,
    )  # fmt: skip
    found = filtered.forecast(start[-1:], 5, inputs=np.zeros((1, 1)), future=future, relift=0)
    np.testing.assert_allclose(found.std[:, 0], ahead.std(axis=0)[:, 0], rtol=0.02)
    given = model.forecast(start, 5, U=U[0][:1], future=future, std=np.full((1, 1), 0.2), relift=0)
    np.testing.assert_allclose(given.std[:, 0], ahead.std(axis=0)[:, 0], rtol=0.02)


def test_tables_name_their_inputs(data):
    import pandas as pd

    X, U = data["linear"]
    frame = pd.DataFrame(np.concatenate(X), columns=["a", "b"])
    frame.insert(0, "segment", np.repeat(np.arange(len(X)), len(X[0])))
    inputs = pd.DataFrame(np.concatenate(U), columns=["rudder", "thrust"])
    model = fk.DMD().fit(frame, U=inputs)
    assert model.input_names_ == ("rudder", "thrust")
    np.testing.assert_array_equal(model.operator_, fk.DMD().fit(X, U=U).operator_)
    several = [pd.DataFrame(u, columns=["rudder", "thrust"]) for u in U]
    assert fk.DMD().fit(X, U=several).input_names_ == ("rudder", "thrust")
    with pytest.raises(fk.InputError, match="rudder"):
        model.predict(frame, U=inputs[["thrust", "rudder"]])


def test_a_federations_sums_are_the_pooled_ones(data):
    X, U = data["bilinear"]
    rows = [np.hstack(pair) for pair in zip(X, U, strict=True)]
    for kind in ("edmd", "spectral"):
        model = fitted(kind, data, True)
        shape, weights = model.architecture_, model.weights_
        fixed = shape.fixed(shape.scale_sums(rows))
        features = shape.first_features(seed=0, dtype=np.float64)
        parts = [shape.sums(fixed, features, part) for part in (rows[:3], rows[3:])]
        whole = shape.sums(fixed, features, rows)
        for name, leaf in whole.items():
            np.testing.assert_allclose(parts[0][name] + parts[1][name], leaf, rtol=1e-10, atol=1e-9)
        assert not shape.sums_fault(fixed, whole, sum(map(len, rows)))
        assert weights["input_products"].shape == (2, *model.operator_.shape)


CASES = {
    "none given": (lambda m, X, U: m.predict(X[0]), "give U"),
    "none to simulate": (lambda m, X, U: m.simulate(X[0][0], 5), "give U"),
    "too few rows": (lambda m, X, U: m.predict(X[0], U=U[0][:10]), "10 rows"),
    "an input of NaN": (lambda m, X, U: m.predict(X[0], U=U[0] * np.nan), "U has NaN in row 0"),
    "another width": (lambda m, X, U: m.predict(X[0], U=U[0][:, :1]), "1 columns"),
    "steps and inputs": (lambda m, X, U: m.simulate(X[0][0], 4, U=U[0]), "leave n_steps out"),
    "a flat input": (lambda m, X, U: m.simulate(X[0][0], U=U[0][0]), r"give \(steps, 2\)"),
    "not a number": (lambda m, X, U: m.simulate(X[0][0], U=U[0] * np.nan), "NaN"),
    "past without delays": (lambda m, X, U: m.simulate(X[0][0], U=U[0], past=U[0]), "leave it out"),
    "future of another length": (
        lambda m, X, U: m.forecast(X, 5, U=U, future=U[0][:4]), "4 rows and n_steps is 5"
    ),
    "fewer trajectories": (lambda m, X, U: m.score(X, U=U[:2]), "2 trajectories"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_in_one_line(case, data):
    X, U = data["linear"]
    act, words = CASES[case]
    with pytest.raises(fk.InputError, match=words) as told:
        act(fk.DMD().fit(X, U=U), X, U)
    assert "\n" not in str(told.value)


def test_a_model_without_inputs_takes_none(data):
    X, U = data["linear"]
    model = fk.DMD().fit(X)
    for act in (
        lambda: model.predict(X[0], U=U[0]),
        lambda: model.simulate(X[0][0], 5, U=U[0][:5]),
        lambda: model.forecast(X, 5, future=U[0][:5]),
        lambda: model.input_matrix_,
    ):
        with pytest.raises(fk.InputError, match="no inputs"):
            act()
    with pytest.raises(fk.InputError, match="n_steps is missing"):
        model.simulate(X[0][0])
    with pytest.raises(fk.InputError, match="depth 1"):
        fk.DMD(depth=2).fit(X, U=U)
    with pytest.raises(fk.InputError, match="bilinear is true"):
        fk.DMD(bilinear=True).fit(X)
    with pytest.raises(fk.InputError, match="past"):
        fk.DMD(n_delays=1).fit(X, U=U).simulate(X[0][:2], U=U[0])
