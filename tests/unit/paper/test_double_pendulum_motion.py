"""The release of the measured double pendulum, its energy, and how well the equation holds."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.paper import double_pendulum_motion as motion
from fedkoopman.paper.double_pendulum_data import read_trials
from fedkoopman.paper.double_pendulum_notes import shares
from fedkoopman.systems import DoublePendulum, simulate

MEASURED = os.environ.get("FEDKOOPMAN_DOUBLE_PENDULUM")
RELEASED = 2500
UPRIGHT = np.array([np.pi - 0.04, np.pi + 0.05])


def recorded(start: np.ndarray, velocities: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """Exact states: at rest, lifted from sample 1000 to 2000, held, and free from RELEASED on."""
    lifted = np.clip((np.arange(RELEASED) - 1000) / 1000, 0, 1)
    part = lifted**3 * (10 - 15 * lifted + 6 * lifted**2)
    angles = part[:, None] * start
    before = np.stack(
        [angles[:, 0], np.gradient(angles[:, 0], 0.002), angles[:, 1], 0 * part], axis=1
    )
    before[:, 3] = np.gradient(angles[:, 1], 0.002)
    initial = np.array([start[0], velocities[0], start[1], velocities[1]])
    return np.concatenate([before, simulate(DoublePendulum(), 3600, initial=initial)])


@pytest.fixture(scope="module")
def slow() -> np.ndarray:
    """Let go at rest, near the highest point."""
    return recorded(UPRIGHT)


class TestEnergy:
    def test_is_the_lagrangians(self) -> None:
        """E = q̇ ∂L/∂q̇ − L, with L of the masses' places, by automatic differentiation."""
        system = DoublePendulum()

        def places(q: jax.Array) -> jax.Array:
            arms = jnp.array([system.length1, system.length2])[:, None]
            links = arms * jnp.stack([jnp.sin(q), -jnp.cos(q)], axis=1)
            return jnp.cumsum(links, axis=0)

        def lagrangian(q: jax.Array, rates: jax.Array) -> jax.Array:
            masses = jnp.array([system.mass1, system.mass2])
            moving = jax.jvp(places, (q,), (rates,))[1]
            kinetic = jnp.sum(masses * jnp.sum(moving**2, axis=1)) / 2
            return kinetic - system.gravity * jnp.sum(masses * places(q)[:, 1])

        def total(state: jax.Array) -> jax.Array:
            q, rates = state[::2], state[1::2]
            return rates @ jax.grad(lagrangian, 1)(q, rates) - lagrangian(q, rates)

        states = np.random.default_rng(0).normal(scale=3, size=(50, 4))
        with jax.enable_x64(True):
            expected = np.asarray(jax.jit(jax.vmap(total))(np.vstack([states, np.zeros(4)])))
        found = motion.energy(states)
        np.testing.assert_allclose(found, expected[:-1] - expected[-1], rtol=1e-10, atol=1e-12)

    def test_is_conserved_by_the_package_s_pendulum(self, slow: np.ndarray) -> None:
        free = motion.energy(slow[RELEASED:])
        np.testing.assert_allclose(free, free[0], rtol=1e-6)
        assert motion.energy(slow)[0] == 0
        assert motion.energy(np.array([np.pi, 0, -np.pi, 0])) == pytest.approx(1.7337572)


class TestDerivatives:
    def test_are_exact_for_a_polynomial_of_their_degree(self) -> None:
        time = np.arange(200) * 0.002
        curve = np.polynomial.Polynomial([1, -2, 3, -4, 5])
        found = motion.derivatives(curve(time))
        np.testing.assert_allclose(found[0], curve.deriv(1)(time), atol=1e-9)
        np.testing.assert_allclose(found[1], curve.deriv(2)(time), atol=1e-6)

    def test_velocities_match_the_angles_of_a_free_pendulum(self, slow: np.ndarray) -> None:
        spoiled = slow.copy()
        spoiled[:, 1::2] = 99
        free = slice(RELEASED + 50, -50)
        found = motion.matched(spoiled)
        np.testing.assert_array_equal(found[:, ::2], slow[:, ::2])
        error = np.sqrt(np.mean((found - slow)[free, 1::2] ** 2))
        assert error < 0.01 * np.sqrt(np.mean(slow[free, 1::2] ** 2))


class TestRelease:
    def test_with_a_push_is_found_to_a_few_samples(self) -> None:
        pushed = recorded(UPRIGHT, (0.5, -2.5))
        found = motion.release(pushed[:, ::2])
        assert found is not None and abs(found - RELEASED) <= 5

    def test_from_rest_is_where_a_link_turns_fast(self, slow: np.ndarray) -> None:
        """Where the exact velocities pass 100°/s, which is never before the hand lets go."""
        exact = np.flatnonzero(np.abs(slow[RELEASED:, 1::2]).max(axis=1) > np.radians(100))[0]
        found = motion.release(slow[:, ::2])
        assert found is not None and abs(found - (RELEASED + exact)) <= 3
        assert 0 < found - RELEASED < 120

    def test_is_found_in_spite_of_the_tracker_s_noise(self, slow: np.ndarray) -> None:
        angles = slow[:, ::2]
        noise = np.radians([0.17, 0.38]) / 2 * np.random.default_rng(1).normal(size=angles.shape)
        clean, noisy = motion.release(angles), motion.release(angles + noise)
        assert clean is not None and noisy is not None and abs(noisy - clean) <= 10

    def test_needs_links_that_are_held_up_and_let_go(self) -> None:
        angles = recorded(UPRIGHT, (0.5, -2.5))[:, ::2]
        assert motion.release(0.5 * angles) is None  # never up
        assert motion.release(angles[:RELEASED]) is None  # never let go
        short = np.concatenate([angles[:1000], angles[RELEASED - 60 :]])
        assert motion.release(short) is None  # up for a moment only

    def test_of_other_recordings_is_refused(self, slow: np.ndarray) -> None:
        assert motion.releases([slow]) == [motion.release(slow[:, ::2])]
        with pytest.raises(fk.InputError, match=r"trial 2 should be lifted.*none was found"):
            motion.releases([slow, 0 * slow])
        with pytest.raises(fk.InputError, match=r"found at sample 3\d\d\d.*unchanged"):
            motion.releases([np.concatenate([np.zeros((1000, 4)), slow])])


class TestEquation:
    def test_explains_free_motion_and_not_a_hand_s(self, slow: np.ndarray) -> None:
        """R² beside its definition, computed link by link."""
        free = motion.explained(slow, RELEASED + 100, 6000)
        assert min(free["links"]) > 0.99 and free["left"] < 0.1 * free["measured"]
        held = motion.explained(slow, 1000, RELEASED - 1)
        assert held["both"] < 0 and max(held["links"]) < 0
        a = motion.derivatives(slow[:, ::2])[1][1000:RELEASED]
        f = motion.equation(motion.matched(slow))[1000:RELEASED]
        for link in (0, 1):
            expected = 1 - np.mean((a - f)[:, link] ** 2) / np.var(a[:, link])
            assert held["links"][link] == pytest.approx(expected)

    def test_is_the_package_s(self, slow: np.ndarray) -> None:
        """Its accelerations are the differences of velocities that `simulate` gives."""
        found = motion.equation(slow)[3000:3500]
        expected = (slow[3001:3501] - slow[2999:3499])[:, 1::2] / 0.004
        np.testing.assert_allclose(found, expected, atol=0.01 * np.abs(found).max())


class TestMotion:
    def test_of_a_swing_that_dies_away(self, slow: np.ndarray) -> None:
        """A root mean square speed is amplitude times frequency over √2, over whole periods."""
        time = np.arange(5000) * 0.002
        swing = 0.1 * np.sin(np.pi * time)
        after = slow[6000] + np.stack([swing, 0 * time, 2 * swing, 0 * time], axis=1)
        [found] = motion.motion([np.concatenate([slow[:6001], after])])
        lifted = np.flatnonzero(np.abs(slow[:, 2]) > 0.05)[0]
        assert found["begins"] == lifted and found["last"] == 11_000
        assert found["release"] == motion.release(slow[:, ::2])
        speed = 0.1 * np.pi / np.sqrt(2)
        np.testing.assert_allclose(found["after"], [speed, 2 * speed], rtol=1e-3)
        assert found["used"][1] > 5 * found["after"][1]
        assert found["before"]["both"] < 0 < 0.99 < found["free"]["both"]
        np.testing.assert_allclose(found["energies"], motion.energy(slow[-1]), rtol=0.05)

    def test_lines_are_thin_and_over_time_from_the_release(self, slow: np.ndarray) -> None:
        [found] = motion.motion([slow])
        trace, sample = found["trace"], found["release"]
        assert found["last"] == len(slow) - 1
        assert 100 < len(trace["seconds"]) < 400 and len(trace["share"]) == 60
        place = int(np.argmin(np.abs(trace["seconds"])))
        assert trace["energy"][place] == pytest.approx(motion.energy(slow[sample]), rel=0.01)
        before = [
            s for t, s in zip(trace["block_seconds"], trace["share"], strict=True) if t < -0.4
        ]
        after = [s for t, s in zip(trace["block_seconds"], trace["share"], strict=True) if t > 0.2]
        assert None in before and min(s for s in before if s is not None) > 0.5
        assert max(after) < 0.2

    def test_shares_of_the_paper_s_samples(self) -> None:
        trials = [{"release": 2500}, {"release": 2700}, {"release": 2400}]
        assert shares(trials) == pytest.approx((0.32, 0.7))


@pytest.fixture(scope="module")
def trials() -> list[np.ndarray]:
    return read_trials(Path(str(MEASURED)))


@pytest.mark.skipif(
    MEASURED is None or not Path(MEASURED).exists(), reason="FEDKOOPMAN_DOUBLE_PENDULUM names none"
)
class TestMeasured:
    def test_the_pendulum_is_lifted_held_and_let_go(self, trials: list[np.ndarray]) -> None:
        found = motion.motion(trials)
        released = [one["release"] for one in found]
        np.testing.assert_allclose(released, [2590, 2591, 2439], atol=5)
        assert shares(found) == pytest.approx((0.32, 0.72), abs=0.01)
        for one, states in zip(found, trials, strict=True):
            joules = motion.energy(motion.matched(states))
            assert joules[:500] == pytest.approx(0, abs=1e-3)
            np.testing.assert_allclose(joules[2200 : one["release"]], 1.734, atol=0.02)
            assert one["before"]["both"] < -2 and 0.93 < one["free"]["both"] < 0.96

    @pytest.mark.parametrize("width", [21, 61])
    def test_whatever_the_smoothing(
        self, trials: list[np.ndarray], width: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(motion, "WIDTH", width)
        for one in motion.motion(trials):
            assert one["before"]["both"] < 0 < 0.9 < one["free"]["both"]
