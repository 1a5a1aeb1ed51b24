"""Mean and covariance of the states in which a system starts, against closed forms."""

import jax
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.systems import SYSTEMS, Lorenz63, Lorenz96, Pendulum, System, VanDerPol, by_name
from fedkoopman.systems.initial_law import DRAWS, initial_law, later_law, law_of_states


def test_a_uniform_box_has_its_middle_and_a_twelfth_of_its_sides_squared() -> None:
    law = initial_law(Lorenz63())
    np.testing.assert_array_equal(law.mean, np.zeros(3))
    np.testing.assert_allclose(law.cov, 100 / 3 * np.eye(3), rtol=1e-15)
    law = initial_law(VanDerPol())
    np.testing.assert_allclose(law.cov, 4 / 3 * np.eye(2), rtol=1e-15)
    law = initial_law(Pendulum())
    np.testing.assert_allclose(law.mean, [np.pi, 0.0])
    np.testing.assert_allclose(law.cov, np.diag([np.pi**2 / 3, 0.0]))


def test_a_users_box_counts_and_a_single_state_is_known() -> None:
    def still(x):
        return 0 * x

    law = initial_law(System.from_function(still, 2, 0.1, initial=[[0.0, 2.0], [6.0, 2.0]]))
    np.testing.assert_allclose((*law.mean, *np.diag(law.cov)), (3.0, 2.0, 3.0, 0.0))
    known = initial_law(System.from_function(still, 2, 0.1, initial=[4.0, 5.0]))
    np.testing.assert_array_equal(known.cov, np.zeros((2, 2)))


def test_another_law_is_known_from_a_draw_that_is_always_the_same() -> None:
    law, again = (initial_law(Lorenz96(dim=4)) for _ in range(2))  # N(8, I)
    np.testing.assert_array_equal(law.cov, again.cov)
    assert np.abs(law.mean - 8).max() < 5 / np.sqrt(DRAWS)
    assert np.abs(law.cov - np.eye(4)).max() < 5 * np.sqrt(2 / DRAWS)


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"random-walk", "lorenz96"}))
def test_what_a_system_says_of_its_box_is_true_of_its_draws(name: str) -> None:
    system = by_name(name)
    drawn = np.asarray(jax.vmap(system.initial_state)(jax.random.split(jax.random.key(0), 200)))
    law, spread = initial_law(system), np.sqrt(np.diag(initial_law(system).cov))
    assert (np.abs(drawn.mean(axis=0) - law.mean) <= 5 * spread / np.sqrt(200)).all()
    assert (np.abs(drawn - law.mean) <= np.sqrt(3) * spread * (1 + 1e-6)).all()
    assert (np.abs(drawn - law.mean).max(axis=0) >= 0.9 * np.sqrt(3) * spread).all()


def test_a_subclass_that_changes_the_draws_alone_is_not_taken_by_its_parents_box() -> None:
    class Narrow(Lorenz63):
        def initial_state(self, key):
            return 5.0 + 0.1 * jax.random.normal(key, (3,))

    law = initial_law(Narrow())
    np.testing.assert_allclose(law.mean, 5.0, atol=0.01)
    np.testing.assert_allclose(np.diag(law.cov), 0.01, rtol=0.05)


def test_draws_that_are_not_finite_are_refused() -> None:
    broken = System.from_function(
        lambda x: -x, 1, 0.1, initial=lambda key: jax.numpy.full(1, 1e999)
    )
    with pytest.raises(InputError, match="not finite"):
        initial_law(broken)


def test_segments_that_go_on_start_where_the_last_one_ended() -> None:
    # x halves over every segment of 10 steps, and starts uniform on [1, 3]
    rate = np.log(2) / 10
    system = System.from_function(lambda x: -rate * x, 1, 1.0, initial=[[1.0], [3.0]])
    starts = fk.simulate(system, 10, seed=0, batch=16)[:, 0, 0]
    law = later_law(system, 10, 2)
    both = np.concatenate([starts, starts / 2])
    np.testing.assert_allclose(law.mean, both.mean(), rtol=1e-6)
    np.testing.assert_allclose(law.cov, both.var(), rtol=1e-6)
    np.testing.assert_array_equal(later_law(system, 10, 1).cov, initial_law(system).cov)


def test_moments_of_recordings_are_those_of_all_their_states() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 2)) for n in (30, 50)]
    law, whole = law_of_states(parts), np.concatenate(parts)
    np.testing.assert_allclose(law.mean, whole.mean(axis=0))
    np.testing.assert_allclose(law.cov, np.cov(whole.T, bias=True))
