"""Randomness by address: every draw is named by the seed, its purpose and whose it is.

A client's draws then depend on nothing but its own identity and the slot, and a run goes on from
any slot without replaying what came before.
"""

import numpy as np

_PURPOSES = (
    "arrival", "filter", "noise", "policy", "sensor", "server", "test", "training", "trajectory",
    "weights", "privacy",
)  # fmt: skip
"""Their places are part of every draw: add new ones at the end."""


def generator(seed: int, purpose: str, *address: int) -> np.random.Generator:
    """The random generator of one purpose at one address (a slot, a client, …)."""
    return np.random.default_rng([seed, _PURPOSES.index(purpose), *address])


def subseed(seed: int, purpose: str, *address: int) -> int:
    """A seed of 63 bits for one purpose at one address."""
    sequence = np.random.SeedSequence([seed, _PURPOSES.index(purpose), *address])
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
