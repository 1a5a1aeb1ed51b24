"""`DeepKoopman` against the twin, closed forms and its own laws."""

import jax
import numpy as np
import pandas as pd
import pytest
from reference import koopman as twin

from fedkoopman.errors import ComputationError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.files import to_bytes
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights
from fedkoopman.koopman.training import shuffled

RNG = np.random.default_rng(0)
DAMPED = 0.98 * np.array([[np.cos(0.2), -np.sin(0.2)], [np.sin(0.2), np.cos(0.2)]])


def trajectories(count=6, length=30, matrix=DAMPED, seed=0):
    rows = [np.random.default_rng(seed).normal(size=(count, len(matrix)))]
    for _ in range(length - 1):
        rows.append(rows[-1] @ matrix.T)
    return np.stack(rows, axis=1)


def linear_model(matrix, *, seed=1, **options):
    """x → (x, A x) with an exact operator and decoder, seen through random coordinates."""
    n = len(matrix)
    inside = np.random.default_rng(seed).normal(size=(2 * n, 2 * n))
    lift = inside @ np.vstack([np.eye(n), matrix])
    # (x, A x) ↦ (A x, A² x)
    exact = np.block([[np.zeros((n, n)), np.eye(n)], [np.zeros((n, n)), matrix]])
    operator = inside @ exact @ np.linalg.inv(inside)
    lower = np.hstack([np.eye(n), np.zeros((n, n))]) @ np.linalg.inv(inside)
    weights = Weights(
        (Layer(np.column_stack([lift, np.zeros(2 * n)])),),
        operator,
        (Layer(np.column_stack([lower, np.zeros(n)])),),
    )
    architecture = PaperNetwork(n, 2 * n, hidden_layers=0, activation="identity")
    return DeepKoopman.from_weights(architecture, weights, dt=0.1, **options)


def random_model(state_dim=2, components=5, window=1, depth=1, hidden_layers=1, seed=0, **options):
    architecture = PaperNetwork(
        state_dim, components, hidden_layers, width=6, window=window, depth=depth
    )
    rng = np.random.default_rng(seed)
    weights = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape) / 2, architecture.template)
    return DeepKoopman.from_weights(architecture, weights, dt=0.5, **options)


def params_of(model):
    weights = model.weights_
    return {
        "encoder": [(layer.weight, layer.bias) for layer in weights.encoder],
        "operator": weights.operator,
        "decoder": [(layer.weight, layer.bias) for layer in weights.decoder],
    }


# Training


@pytest.mark.parametrize(("n_delays", "depth"), [(0, 1), (2, 1), (0, 3), (1, 2)])
def test_fit_is_the_twins_client_update(n_delays, depth):
    rows = [RNG.normal(size=(9, 2)), RNG.normal(size=(7, 2))]
    model = DeepKoopman(
        4,
        n_delays=n_delays,
        depth=depth,
        width=5,
        epochs=3,
        batch_size=4,
        learning_rate=0.01,
        weight_decay=0.1,
        decay=0.5,
        loss_weights=(0.2, 0.3, 0.5),
        precision="float64",
        random_state=7,
        kind="paper",
    ).fit(rows)
    first, order = (
        int(np.random.SeedSequence([7, purpose]).generate_state(1, np.uint64)[0] >> 1)
        for purpose in (0, 1)
    )
    weights = model.architecture_.initialise(seed=first, dtype=np.float64)
    start = DeepKoopman.from_weights(model.architecture_, weights, dt=1.0)
    starts = twin.window_starts([9, 7], n_delays + 1, depth)
    expected = twin.client_update(
        params_of(start),
        rows,
        shuffled(starts.astype(np.int32), 3, order),
        mu=n_delays + 1,
        tau=depth,
        weights=(0.2, 0.3, 0.5),
        batch=4,
        eta=0.01,
        weight_decay=0.1,
        decay=0.5,
    )
    for one, other in zip(twin.leaves(params_of(model)), twin.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_training_recovers_the_eigenvalues_of_a_damped_rotation():
    x = trajectories(20, 50)
    model = DeepKoopman(
        2,
        dt=0.1,
        hidden_layers=0,
        activation="identity",
        epochs=100,
        learning_rate=0.01,
        kind="paper",
    ).fit(x)
    np.testing.assert_allclose(model.eigenvalues_, 0.98 * np.exp([0.2j, -0.2j]), atol=1e-3)
    np.testing.assert_allclose(model.frequencies_, 2 / (2 * np.pi), rtol=1e-2)
    np.testing.assert_allclose(model.decay_rates_, -np.log(0.98) / 0.1, rtol=5e-2)
    assert model.score(x) > 0.9999


def test_training_learns_a_nonlinear_system():
    # x' = 0.9 x, y' = 0.5 y + x²: nonlinear, and linear in (x, y, x²).
    rng = np.random.default_rng(0)
    rows = [rng.uniform(-1, 1, size=(60, 2))]
    for _ in range(12):
        x, y = rows[-1].T
        rows.append(np.stack([0.9 * x, 0.5 * y + x**2], axis=1))
    x = np.stack(rows, axis=1)
    model = DeepKoopman(6, epochs=150, learning_rate=3e-3, kind="paper").fit(x[:40])
    assert model.score(x[40:]) > 0.7  # of holding's error, less than a third is left


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_models():
    x = trajectories()
    options = {"kind": "paper", "n_components": 3, "width": 4, "epochs": 2}
    one, same, other = (
        to_bytes(DeepKoopman(**options, random_state=seed).fit(x)) for seed in (5, 5, 6)
    )
    assert one == same
    assert one != other


def test_without_a_seed_every_fit_differs():
    x = trajectories()
    model = DeepKoopman(3, width=4, epochs=1, random_state=None, kind="paper")
    assert not np.array_equal(model.fit(x).operator_, model.fit(x).operator_)


def test_the_callers_precision_does_not_matter():
    x = trajectories()
    found = []
    for wide in (True, False):
        with jax.enable_x64(wide):
            model = DeepKoopman(3, width=4, epochs=2, random_state=2**40, kind="paper").fit(x)
            found.append((to_bytes(model), model.predict(x[0]).tobytes(), model.modes_.tobytes()))
    assert found[0] == found[1]


def test_list_stack_and_table_are_the_same_data():
    x = trajectories()
    model = DeepKoopman(3, width=4, epochs=2, kind="paper")
    expected = to_bytes(model.fit(x))
    assert to_bytes(model.fit(list(x))) == expected
    assert to_bytes(model.fit(tuple(x.tolist()))) == expected
    assert to_bytes(model.fit(x[0])) == to_bytes(model.fit(x[:1]))
    assert to_bytes(model.fit(x[0].tolist())) == to_bytes(model.fit(x[:1]))
    tables = [pd.DataFrame(part, columns=["a", "b"]) for part in x]
    np.testing.assert_array_equal(model.fit(tables).operator_, model.fit(x).operator_)


def test_no_pair_crosses_from_one_trajectory_to_the_next():
    # Every trajectory stands still, so K may too; joined, they would jump.
    still = [np.full((8, 1), value) for value in (-1.0, 0.5, 1.0, 2.0)]
    options = {
        "kind": "paper",
        "n_components": 2,
        "hidden_layers": 0,
        "epochs": 400,
        "learning_rate": 0.01,
    }
    model = DeepKoopman(**options).fit(still)
    np.testing.assert_allclose(model.predict(still[3]), 2.0, atol=1e-2)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_is_that_of_the_weights_and_results_are_float64(precision):
    x = trajectories()
    model = DeepKoopman(3, width=4, epochs=1, precision=precision, kind="paper").fit(x)
    assert all(leaf.dtype == precision for leaf in jax.tree.leaves(model.weights_))
    for result in (model.predict(x), model.transform(x), model.simulate(x[0, 0], 3)):
        assert result.dtype == np.float64
    assert model.operator_.dtype == model.reference_.dtype == np.float64


def test_components_default_to_four_times_the_state():
    assert DeepKoopman(None, epochs=1, kind="paper").fit(trajectories()).operator_.shape == (8, 8)


def test_the_reference_is_the_mean_of_the_training_windows():
    x = [RNG.normal(size=(9, 2)), RNG.normal(size=(6, 2))]
    model = DeepKoopman(3, epochs=1, n_delays=1, depth=2, kind="paper").fit(x)
    windows = [part[i : i + 2] for part in x for i in range(len(part) - 3)]
    np.testing.assert_allclose(model.reference_, np.mean(windows, axis=0), rtol=1e-12)
    more = RNG.normal(size=(20, 2))
    windows += [more[i : i + 2] for i in range(17)]
    model.partial_fit(more)
    np.testing.assert_allclose(model.reference_, np.mean(windows, axis=0), rtol=1e-12)
    assert DeepKoopman(3, epochs=1, kind="paper").fit(x).reference_.shape == (2,)


def test_the_first_partial_fit_is_fit_and_the_next_goes_on():
    x = trajectories()
    model = DeepKoopman(3, width=4, epochs=3, kind="paper")
    fitted, partly = DeepKoopman(**model.get_params()).fit(x), model.partial_fit(x)
    assert to_bytes(fitted) == to_bytes(partly)
    before = model.weights_
    loss = [twin.mean_losses(params_of(model), x[:2]).sum()]
    for _ in range(15):
        model.partial_fit(x)
        loss.append(twin.mean_losses(params_of(model), x[:2]).sum())
    assert loss[-1] < 0.8 * loss[0]
    assert model.learned_.updates == 16
    np.testing.assert_array_equal(fitted.operator_, before.operator)  # the old one is untouched
    assert to_bytes(model.fit(x)) == to_bytes(fitted)  # fit forgets


def test_partial_fit_draws_another_order_every_time():
    x = trajectories(1, 40)
    model = DeepKoopman(
        2, hidden_layers=0, epochs=1, batch_size=1, precision="float64", kind="paper"
    ).fit(x)
    again = DeepKoopman.from_weights(
        model.architecture_,
        model.weights_,
        dt=1.0,
        training=model.learned_.training,
    ).partial_fit(x)
    assert not np.array_equal(model.partial_fit(x).operator_, again.operator_)


def test_training_that_diverges_is_reported():
    x = trajectories(matrix=np.eye(2)) * 1e25
    with pytest.raises(ComputationError, match=r"training diverged.*lower learning_rate \(0.001\)"):
        DeepKoopman(3, epochs=2, kind="paper").fit(x)


def test_a_failed_fit_leaves_the_old_model():
    x = trajectories()
    model = DeepKoopman(3, epochs=1, kind="paper").fit(x)
    before = to_bytes(model)
    with pytest.raises(ComputationError):
        model.partial_fit(x * 1e25)
    assert to_bytes(model) == before


# Use: the shapes and the semantics of windows and depth


@pytest.mark.parametrize(("window", "depth", "hidden_layers"), [(1, 1, 1), (3, 1, 2), (2, 3, 0)])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_predict_transform_and_simulate_agree_with_the_twin(window, depth, hidden_layers, n_steps):
    model = random_model(window=window, depth=depth, hidden_layers=hidden_layers)
    params = params_of(model)
    rows = RNG.normal(size=(9, 2))
    predicted, lifted = model.predict(rows, n_steps), model.transform(rows)
    assert len(predicted) == len(lifted) == 9 - window + 1
    for i in range(len(predicted)):
        x, _ = twin.pair(rows, i, window)
        y = twin.encode(params, x)
        np.testing.assert_allclose(lifted[i], y, rtol=1e-10, atol=1e-12)
        path = []
        for _ in range(n_steps):
            y = params["operator"] @ y
            path.append(twin.decode(params, y)[-2:])
        np.testing.assert_allclose(predicted[i], path[-1], rtol=1e-10, atol=1e-12)
        start = rows[i] if window == 1 else rows[i : i + window]
        np.testing.assert_allclose(model.simulate(start, n_steps), path, rtol=1e-10, atol=1e-12)


def test_with_a_linear_network_simulating_is_predicting_again_and_again():
    model = linear_model(DAMPED)
    x = np.array([1.0, -2.0])
    path = model.simulate(x, 8)
    for row in path:
        x = model.predict(x)
        np.testing.assert_allclose(row, x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("window", [1, 3])
def test_forms_of_the_input_agree(window):
    model = random_model(window=window)
    x = RNG.normal(size=(4, 7, 2))
    for method in (model.predict, model.transform, model.eigenfunctions):
        stacked = method(x)
        assert stacked.shape[:2] == (4, 7 - window + 1)
        listed = method(list(x))
        assert isinstance(listed, list)
        for i in range(4):
            np.testing.assert_allclose(stacked[i], method(x[i]), rtol=1e-12)
            np.testing.assert_array_equal(stacked[i], listed[i])
    ragged = model.predict([x[0], x[1, :4]])
    assert [len(part) for part in ragged] == [8 - window, 5 - window]
    np.testing.assert_allclose(ragged[1], model.predict(x[1, :4]), rtol=1e-12)


def test_a_single_state_gives_a_single_row():
    model = random_model()
    x = RNG.normal(size=2)
    for method in (model.predict, model.transform, model.eigenfunctions):
        assert method(x).ndim == 1
        np.testing.assert_allclose(method(x), method(x[None])[0], rtol=1e-13)
    y = model.transform(x)
    np.testing.assert_allclose(model.inverse_transform(y), model.inverse_transform(y[None])[0])


@pytest.mark.parametrize("window", [1, 2])
def test_simulate_takes_batches(window):
    model = random_model(window=window)
    starts = RNG.normal(size=(5, window, 2))
    starts = starts[:, 0] if window == 1 else starts
    paths = model.simulate(starts, 6)
    assert paths.shape == (5, 6, 2)
    for start, path in zip(starts, paths, strict=True):
        np.testing.assert_allclose(model.simulate(start, 6), path, rtol=1e-12)
    np.testing.assert_allclose(paths[:, :3], model.simulate(starts, 3), rtol=1e-12)


def test_inverse_transform_undoes_transform_and_keeps_the_newest_state():
    model = linear_model(DAMPED)
    x = trajectories(3, 5)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-12)
    listed = model.inverse_transform(model.transform(list(x)))
    np.testing.assert_allclose(np.stack(listed), x, atol=1e-12)
    delayed = random_model(window=3)
    y = RNG.normal(size=(4, 5))
    expected = [twin.decode(params_of(delayed), row)[-2:] for row in y]
    np.testing.assert_allclose(delayed.inverse_transform(y), expected, rtol=1e-12)


def test_fit_transform_is_fit_then_transform():
    x = trajectories()
    model = DeepKoopman(3, epochs=1, kind="paper")
    np.testing.assert_array_equal(model.fit_transform(x), model.transform(x))


# Score


def skills(model, parts, window, depth):
    """Skill by horizon, one forecast at a time."""
    scale = np.concatenate(parts).std(axis=0)
    found = {}
    for h in (1, 2, 5, 10, 20, 50):
        errors, held = [], []
        for part in parts:
            for k in range(window - 1, len(part) - h * depth):
                start = part[k - window + 1 : k + 1] if window > 1 else part[k]
                truth = part[k + h * depth]
                errors.append((model.simulate(start, h)[-1] - truth) / scale)
                held.append((part[k] - truth) / scale)
        if errors:
            error, holding = (np.sqrt(np.mean(np.square(e))) for e in (errors, held))
            found[h] = max(1 - error / holding, -100)
    return found


@pytest.mark.parametrize(("window", "depth"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_the_skill_is_that_of_forecasts_made_one_by_one(window, depth):
    model = random_model(window=window, depth=depth)
    x = [RNG.normal(size=(25, 2)) * [1, 50], RNG.normal(size=(7, 2)) * [1, 50]]
    expected = skills(model, x, window, depth)
    assert model.skill(x) == pytest.approx(expected, rel=1e-9)
    assert list(expected) == [h for h in (1, 2, 5, 10, 20, 50) if h * depth + window <= 25]
    assert model.score(x) == pytest.approx(np.mean(list(expected.values())), rel=1e-9)


def gain_model(gain):
    """x' = gain x."""
    one = Layer(np.array([[1.0, 0.0]]))
    weights = Weights((one,), np.array([[gain]]), (one,))
    return DeepKoopman.from_weights(PaperNetwork(1, 1, hidden_layers=0), weights, dt=1.0)


def test_a_perfect_predictor_scores_one_holding_nothing_and_its_mirror_image_minus_one():
    assert linear_model(DAMPED).score(trajectories()) == pytest.approx(1, abs=1e-9)
    assert gain_model(1.0).score(RNG.normal(size=(60, 1))) == 0
    falling = 0.5 ** np.arange(10.0)[:, None]
    assert gain_model(0.5).score(falling) == pytest.approx(1)
    # x' = 1.5 x errs by x one step ahead, where holding errs by x / 2.
    assert gain_model(1.5).skill(falling)[1] == pytest.approx(-1)


def test_the_score_does_not_depend_on_units():
    x = RNG.normal(size=(40, 2))
    exact, scaled = linear_model(DAMPED), linear_model(DAMPED)
    units = np.array([1e-3, 1e3])
    weights = scaled.weights_
    weights.encoder[0].matrix[:, :2] /= units
    weights.decoder[0].matrix[:] *= units[:, None]
    assert scaled.score(x * units) == pytest.approx(exact.score(x), rel=1e-9)


@pytest.mark.parametrize("gain", [1e6, 1e100, -1e300])
def test_a_forecast_that_explodes_scores_at_least_minus_a_hundred(gain):
    assert gain_model(gain).score(RNG.normal(size=(60, 1))) == -100


@pytest.mark.parametrize(("gain", "score"), [(1.0, 1.0), (0.5, -100.0)])
def test_a_constant_component_is_hit_or_missed(gain, score):
    assert gain_model(gain).score(np.ones((5, 1))) == score


def test_of_very_many_windows_every_so_many_are_judged(monkeypatch):
    x = [trajectories(1, 40, seed=i)[0] + 0.1 * RNG.normal(size=(40, 2)) for i in range(30)]
    model = linear_model(DAMPED)
    everything = model.score(x)
    monkeypatch.setattr("fedkoopman.koopman.skill.ENOUGH", 300)
    assert model.score(x) == pytest.approx(everything, abs=0.05)
    assert model.score(x) != everything


# Spectrum and modes


def test_the_spectrum_of_a_linear_model_is_that_of_the_system():
    model = linear_model(DAMPED)
    expected = 0.98 * np.exp([0.2j, -0.2j])
    np.testing.assert_allclose(model.eigenvalues_[:2], expected, rtol=1e-9)
    continuous = model.eigenvalues_continuous_[:2]
    np.testing.assert_allclose(continuous, np.log(expected) / 0.1, rtol=1e-9)
    np.testing.assert_allclose(model.frequencies_[:2], 2 / (2 * np.pi), rtol=1e-9)
    np.testing.assert_allclose(model.decay_rates_[:2], -np.log(0.98) / 0.1, rtol=1e-9)
    np.testing.assert_allclose(model.half_lives_[:2], np.log(2) * 0.1 / -np.log(0.98), rtol=1e-9)


def test_eigenfunctions_are_multiplied_by_their_eigenvalues_along_a_trajectory():
    model = linear_model(DAMPED)
    along = model.eigenfunctions(trajectories(1, 10)[0])
    np.testing.assert_allclose(along[1:], along[:-1] * model.eigenvalues_, atol=1e-6)
    np.testing.assert_allclose(along[1:, :2], along[:-1, :2] * model.eigenvalues_[:2], rtol=1e-7)


def test_modes_and_eigenfunctions_put_the_state_together_again():
    # K with four distinct eigenvalues, decoder affine: x = c + Σ_j mode_j ψ_j(x).
    rng = np.random.default_rng(4)
    decoder = Layer(rng.normal(size=(2, 5)))
    weights = Weights((Layer(rng.normal(size=(4, 3))),), rng.normal(size=(4, 4)), (decoder,))
    model = DeepKoopman.from_weights(PaperNetwork(2, 4, hidden_layers=0), weights, dt=1.0)
    x = rng.normal(size=(6, 2))
    psi = model.eigenfunctions(x)
    assert model.modes_.shape == (2, 4)
    sums = decoder.bias + psi @ model.modes_.T
    np.testing.assert_allclose(sums, model.inverse_transform(model.transform(x)), atol=1e-10)
    ahead = decoder.bias + (psi * model.eigenvalues_**3) @ model.modes_.T
    np.testing.assert_allclose(ahead, model.predict(x, 3), atol=1e-10)


@pytest.mark.parametrize("window", [1, 3])
def test_modes_are_slopes_of_the_decoder_at_the_reference(window):
    reference = RNG.normal(size=(window, 2))
    model = random_model(window=window, reference=reference)
    params, step = params_of(model), 1e-6
    y = twin.encode(params, reference.ravel())
    slopes = [
        (twin.decode(params, y + step * unit) - twin.decode(params, y - step * unit))[-2:]
        / 2
        / step
        for unit in np.eye(5)
    ]
    right = model.learned_.spectrum.right
    np.testing.assert_allclose(model.modes_, np.transpose(slopes) @ right, atol=1e-7)


def test_depth_stretches_the_time_of_an_application():
    one, three = random_model(depth=1), random_model(depth=3)
    np.testing.assert_allclose(three.eigenvalues_continuous_, one.eigenvalues_continuous_ / 3)
    np.testing.assert_allclose(
        np.exp(three.eigenvalues_continuous_ * 3 * 0.5), three.eigenvalues_, rtol=1e-12
    )


def test_fitted_values_do_not_follow_later_changes_of_parameters():
    model = linear_model(DAMPED)
    before = model.eigenvalues_continuous_
    model.set_params(dt=100.0, depth=7)
    np.testing.assert_array_equal(model.eigenvalues_continuous_, before)


# Models made elsewhere, and names


def test_a_model_made_elsewhere_knows_its_parameters_and_names():
    model = random_model(
        window=2, depth=3, reference=np.ones(4), names=("x", "y"), units=("m", "s"),
        information={"rounds": 3},
    )  # fmt: skip
    assert (model.n_components, model.n_delays, model.depth, model.width) == (5, 1, 3, 6)
    assert (model.dt, model.precision) == (0.5, "float64")
    assert model.feature_names_in_.tolist() == ["x", "y"]
    assert (model.units_, model.information_) == (("m", "s"), {"rounds": 3})
    np.testing.assert_array_equal(model.reference_, np.ones((2, 2)))
    assert model.partial_fit(RNG.normal(size=(20, 2))).score(RNG.normal(size=(20, 2))) < 1


def test_names_of_a_table_are_kept():
    table = pd.DataFrame(trajectories()[0], columns=["angle", "speed"])
    model = DeepKoopman(3, epochs=1, kind="paper").fit(table)
    assert model.feature_names_in_.tolist() == ["angle", "speed"]
    np.testing.assert_array_equal(model.predict(table), model.predict(table.to_numpy()))
    assert not hasattr(
        DeepKoopman(3, epochs=1, kind="paper").fit(table.to_numpy()), "feature_names_in_"
    )
