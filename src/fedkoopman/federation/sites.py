"""Simulated sites: a truth that clients observe noisily, and the states they make of it. The truth
is simulated too, or measured.

Everything is a function of the seed and an address (slot, client): a segment is the same, bit for
bit, whoever asks for it, when, and together with what.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.covariance import noise_roots
from fedkoopman.estimation import ESTIMATORS, Estimates, estimate, lost_track
from fedkoopman.estimation.left_out import kept_samples, uncertain, without
from fedkoopman.evaluation import TestSet, site_test_set
from fedkoopman.federation.arrivals import arrivals, schedule
from fedkoopman.federation.experiment import SCHEMES, Experiment
from fedkoopman.federation.streams import generator, subseed
from fedkoopman.federation.workers import Urgency, Workers
from fedkoopman.sensors import Sensor, observe
from fedkoopman.systems import simulate

LANES = 64
"""Segments estimated in one call, always as many: a compiled batch of another width rounds
differently, and who else arrived must not change a client's states."""

_COMMON = 2**32 - 1
"""Stands for all clients in the address of a common trajectory."""


JUDGED_BY = 2
"""Segments that a simulated client holds out to judge others' updates by."""


class Address(NamedTuple):
    """Which segment: the slot it arrived in (from 1) and the client's place in the list."""

    slot: int
    client: int


def arrived(experiment: Experiment, slot: int) -> list[int]:
    """The clients, by their place in the list, to which a segment comes in a slot."""
    if experiment.deliveries is not None:
        return list(schedule(experiment)[slot])
    return np.flatnonzero(arrivals(experiment.seed, slot, experiment.clients)).tolist()


def delivered(experiment: Experiment, address: Address) -> NDArray[np.float64]:
    """The segment of a site's own data that came in a slot."""
    assert experiment.deliveries is not None
    place = schedule(experiment)[address.slot][address.client]
    return experiment.deliveries.train[experiment.clients[address.client].identity][place]


def samples(experiment: Experiment, address: Address) -> int:
    """How many samples a segment has; of a simulated one, before any is left out."""
    if experiment.deliveries is None:
        return experiment.steps
    return kept_samples(delivered(experiment, address))


class View(NamedTuple):
    """A segment as a simulated client sees it."""

    truth: NDArray[np.float64]
    """(T, d)."""
    observations: NDArray[np.float64]
    """(T, m)."""
    mean: NDArray[np.float64]
    """(T, d), what its estimator makes of them."""
    cov: NDArray[np.float64]
    """(T, d, d)."""


class Sites:
    """The data side of an experiment."""

    def __init__(self, experiment: Experiment, perfect: bool, raw: bool = False) -> None:
        """Arguments:
        perfect: hand out true states instead of estimates.
        raw: hand out observations instead of estimates.
        """
        self._experiment = experiment
        self._perfect = perfect
        self._raw = raw
        # A trajectory that spans several slots is kept while they last.
        alive = 2 * (1 if experiment.common else len(experiment.clients))
        self._truth = lru_cache(alive if experiment.restart > 1 else 0)(self._simulate)

    def segments(
        self, wanted: Sequence[Address], workers: Workers
    ) -> dict[Address, NDArray[np.float64] | None]:
        """States (ζ, d), or observations, of each wanted segment, without the samples that are left
        out (`estimation.left_out`); None where the estimate diverged or nothing is left."""
        if self._experiment.deliveries is not None:
            return {address: delivered(self._experiment, address) for address in wanted}
        truths = self._truths(wanted, workers)
        if self._perfect:
            return {address: truths[self._source(address)] for address in wanted}
        calls = [
            (members, padded)
            for members in self._groups(wanted, self.lanes)
            for padded in [members + members[-1:] * (self.lanes - len(members))]
        ]
        make = self._observe if self._raw else self._estimate
        results = workers.map(Urgency.PREPARE, lambda call: make(call[1], truths), calls)
        found: dict[Address, NDArray[np.float64] | None] = {}
        for (members, _), states in zip(calls, results, strict=True):
            found |= zip(members, states, strict=False)
        return found

    def views(self, wanted: Sequence[Address], workers: Workers) -> dict[Address, View]:
        """Of each wanted segment the truth, the observations and the estimates; without those whose
        estimate diverged."""
        truths, found = self._truths(wanted, workers), dict[Address, View]()
        for members in self._groups(wanted, self.lanes):
            padded = members + members[-1:] * (self.lanes - len(members))
            noises = [self._experiment.clients[a.client].process_noise for a in padded]
            z, states = self._observe(padded, truths), self._filtered(padded, truths, noises)
            mean, cov = np.asarray(states.mean), np.asarray(states.cov)
            for lane, address in enumerate(members):
                if np.atleast_1d(states.ok)[lane]:
                    true = truths[self._source(address)]
                    found[address] = View(true, np.asarray(z[lane]), mean[lane], cov[lane])
        return found

    def log_likelihoods(
        self,
        wanted: Sequence[Address],
        noises: Sequence[NDArray[np.float64]],
        workers: Workers,
    ) -> dict[Address, NDArray[np.float64]]:
        """For each wanted segment, the filter's log-likelihood with each process noise in place of
        the client's own; -inf where it diverges.

        Arguments:
            noises: covariances (d, d).
        """
        truths = self._truths(wanted, workers)
        found = {address: np.full(len(noises), -np.inf) for address in wanted}
        cases = [
            [(address, k) for address in members for k in range(len(noises))]
            for members in self._groups(wanted, most=None)
        ]
        calls = [
            part + part[-1:] * (self.lanes - len(part))
            for group in cases
            for i in range(0, len(group), self.lanes)
            for part in [group[i : i + self.lanes]]
        ]

        def judge(call: list[tuple[Address, int]]) -> Estimates:
            return self._filtered([a for a, _ in call], truths, [noises[k] for _, k in call])

        for call, states in zip(calls, workers.map(Urgency.PREPARE, judge, calls), strict=True):
            values = np.where(states.ok, np.asarray(states.log_likelihood), -np.inf)
            for (address, k), value in zip(call, values, strict=True):
                found[address][k] = value
        return found

    @cached_property
    def lanes(self) -> int:
        """How many segments one call of the filter takes."""
        e = self._experiment
        return min(LANES, ESTIMATORS.find(e.filter.method).widest(e.system.dim))

    def _source(self, address: Address) -> tuple[int, int]:
        """Slot and identity that name the truth behind a segment."""
        e = self._experiment
        return address.slot, _COMMON if e.common else e.clients[address.client].identity

    def _truths(
        self, wanted: Iterable[Address], workers: Workers
    ) -> dict[tuple[int, int], NDArray[np.float64]]:
        """True states x_1 … x_ζ of every slot and trajectory that is asked for."""
        e = self._experiment
        sources = sorted({self._source(address) for address in wanted})
        if e.recordings is not None:
            measured = e.recordings
            return {source: measured.segment(e.seed, *source, e.steps) for source in sources}
        blocks = sorted({((slot - 1) // e.restart, who) for slot, who in sources})
        # A few at a time: a job for each would cost more in hand-over, a long one keep others off.
        parts = [blocks[i : i + 4] for i in range(0, len(blocks), 4)]
        solved = workers.map(
            Urgency.PREPARE, lambda part: [self._truth(*block) for block in part], parts
        )
        paths = dict(zip(blocks, (path for part in solved for path in part), strict=True))
        found = {}
        for slot, who in sources:
            block, place = divmod(slot - 1, e.restart)
            first = place * e.steps + 1
            found[slot, who] = paths[block, who][first : first + e.steps]
        return found

    def _simulate(self, block: int, who: int) -> NDArray[np.float64]:
        """The trajectory between two restarts."""
        e = self._experiment
        steps = e.steps * min(e.restart, e.slots - block * e.restart)
        return simulate(e.system, steps, seed=subseed(e.seed, "trajectory", block, who))

    def _groups(self, wanted: Sequence[Address], most: int | None) -> list[list[Address]]:
        """Segments that one compiled filter serves, at most so many together."""
        groups: dict[tuple, list[Address]] = {}
        for address in wanted:
            groups.setdefault(self._kinds[address.client], []).append(address)
        return [
            members[i : i + (most or len(members))]
            for members in groups.values()
            for i in range(0, len(members), most or len(members))
        ]

    @cached_property
    def _kinds(self) -> list[tuple]:
        """What clients must share to be filtered together: kinds of dynamics and sensor."""
        flat = [jax.tree.flatten((c.dynamics, c.sensor)) for c in self._experiment.clients]
        return [(form, tuple(map(np.shape, leaves))) for leaves, form in flat]

    def _estimate(
        self, members: list[Address], truths: dict[tuple[int, int], NDArray[np.float64]]
    ) -> list[NDArray[np.float64] | None]:
        """States of one group, None where they are of no use; `members` fills all lanes."""
        clients, options = self._experiment.clients, self._experiment.filter
        found = self._filtered(members, truths, [clients[a.client].process_noise for a in members])
        useful = np.atleast_1d(found.ok)
        if options.drop_lost:
            useful = useful & np.array([not reason for reason in lost_track(found)])
        means, network = np.asarray(found.mean), self._experiment.architecture
        if not options.gate:
            return [mean if good else None for mean, good in zip(means, useful, strict=True)]
        least, std = network.window + network.depth, np.asarray(found.std)
        kept = [
            without(mean, uncertain(each, options.gate), least) if good else mean[:0]
            for mean, each, good in zip(means, std, useful, strict=True)
        ]
        return [states if len(states) else None for states in kept]

    def _filtered(
        self,
        members: list[Address],
        truths: dict[tuple[int, int], NDArray[np.float64]],
        process_noise: Sequence[NDArray[np.float64]],
    ) -> Estimates:
        """Observe and filter one group; `members` fills all lanes.

        Arguments:
            process_noise: of each member's filter.
        """
        e = self._experiment
        clients = [e.clients[address.client] for address in members]
        z = self._observe(members, truths)
        options = e.filter
        return estimate(
            [client.dynamics for client in clients], [client.sensor for client in clients], z,
            process_noise=np.stack(process_noise)[:, None],
            observation_noise=np.stack([client.observation_noise for client in clients])[:, None],
            initial_mean=options.initial_mean, initial_cov=options.initial_cov,
            method=options.method, smooth=options.smooth, alpha=options.alpha,
            beta=options.beta, kappa=options.kappa, particles=options.particles,
            seed=subseed(e.seed, "filter", members[0].slot, clients[0].identity),
            warn=False,
        )  # fmt: skip

    def _observe(
        self,
        members: list[Address],
        truths: dict[tuple[int, int], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """z_k = h_n(x_k) + v_n of one group; `members` fills all lanes."""
        e = self._experiment
        clients = [e.clients[address.client] for address in members]
        x = np.stack([truths[self._source(address)] for address in members])
        sensors = jax.tree.map(lambda *leaves: np.stack(leaves), *[c.sensor for c in clients])
        with jax.enable_x64(True):
            z = np.array(_noise_free(sensors, x))
        for lane, address in enumerate(members):
            client = clients[lane]
            random = generator(e.seed, "noise", address.slot, client.identity)
            z[lane] += random.standard_normal(z[lane].shape) @ self._roots[address.client].T
        return z

    @cached_property
    def _roots(self) -> list[NDArray[np.float64]]:
        """Square roots of the clients' observation noise."""
        made: dict[bytes, NDArray[np.float64]] = {}
        roots = []
        for client in self._experiment.clients:
            noise = client.observation_noise
            key = noise.tobytes()
            if key not in made:
                made[key] = noise_roots(noise, client.sensor.dim, 1, 1, "observation_noise")[0, 0]
            roots.append(made[key])
        return roots


@jax.jit
def _noise_free(
    sensors: Sensor, x: Float[Array, "lanes time state"]
) -> Float[Array, "lanes time observed"]:
    return jax.vmap(lambda sensor, path: jax.vmap(sensor)(path))(sensors, x)


@lru_cache(maxsize=16)
def held_out(experiment: Experiment) -> tuple[TestSet, ...]:
    """Noise-free trajectories x_0 … x_ζ, from fresh initial states and fixed per seed, or from the
    test recordings; where sites hold data of their own, those of each that holds some out.

    Where clients train on raw observations, what each client's sensor shows of the trajectories.
    """
    e = experiment
    if e.deliveries is not None:
        sets = [
            site_test_set(
                states, steps=e.steps, most=e.test_trajectories, horizon=e.horizon,
                valid_error=e.valid_error, inputs=e.architecture.inputs,
            )
            for states in e.deliveries.held_out
        ]  # fmt: skip
        return tuple(one for one in sets if one is not None)
    if e.recordings is not None:
        trajectories = e.recordings.test_trajectories(e.steps, e.test_trajectories)
    else:
        trajectories = simulate(
            e.system, e.steps, seed=subseed(e.seed, "test"), batch=e.test_trajectories
        )
    seen = [trajectories]
    if SCHEMES[e.scheme].raw:
        seen = [observe(client.sensor, trajectories) for client in e.clients]
    return tuple(TestSet(each, e.horizon, e.valid_error) for each in seen)


@lru_cache(maxsize=16)
def judges_segments(
    experiment: Experiment, perfect: bool, raw: bool = False
) -> tuple[tuple[NDArray[np.float64], ...], ...]:
    """What each client holds out to judge others' updates by, as it sees its own data.

    Where sites hold data of their own, their held-out segments; otherwise the segments of the first
    slots after the last, which nobody trains on.

    Arguments:
        perfect: whether clients hold true states.
        raw: whether they hold observations.
    """
    e = experiment
    if e.deliveries is not None:
        return tuple(e.deliveries.held_out[client.identity] for client in e.clients)
    wanted = [Address(e.slots + 1 + i, n) for n in range(len(e.clients)) for i in range(JUDGED_BY)]
    with Workers(1) as workers:
        longer = replace(e, slots=e.slots + JUDGED_BY)
        found = Sites(longer, perfect, raw).segments(wanted, workers)
    held: list[list[NDArray[np.float64]]] = [[] for _ in e.clients]
    for address in wanted:
        if (states := found[address]) is not None:
            held[address.client].append(states)
    return tuple(map(tuple, held))
