"""A federation that grows equals one in which all were enrolled from the start, some silent.

Places are never reused and draws depend on a place only, so who is enrolled later changes nothing
of what was before. This is played on the seam itself, with the state of the smaller federation
handed to the larger one between two slots. It cannot hold for policies that choose among all who
are enrolled, whether they are there or not: random and round-robin draw from more places then. And
where a guard has set sites aside: it does so with less than half of all who are enrolled.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from reference.federations import STEPS, clients, experiment

from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithm import Asked, Problem
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.guard.guarded import Guarded
from fedkoopman.federation.messages import Message
from fedkoopman.federation.options import BufferOptions, PrivacyOptions, ServerOptions
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.federation.slot import Judged, answer, ask, concluded, fault_of, second_requests
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.spectral import Spectral

SLOTS, JOINED = 8, 3
FEW, MANY = 3, 4
SPECTRAL = {"architecture": Spectral(3, 6, features=8, horizon=5)}
EDMD_KIND = {"architecture": EDMD.of(state_dim=3, degree=2)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"rule-{name}": ("fedavg-m", {"aggregator": AGGREGATORS.find(name)}) for name in AGGREGATORS
    },
    "guarded": ("guarded fedavg-m", {}),
    "guarded-krum": ("guarded fedavg-m", {"aggregator": AGGREGATORS.find("krum")}),
    "averaged-steps": (
        "fedavg-m",
        {"server_step": SERVER_STEPS.find("adam"), "server": ServerOptions(average=0.5)},
    ),
    "central-privacy": ("fedavg-m", {"privacy": PrivacyOptions("central")}),
    "site-privacy": ("fedavg-m", {"privacy": PrivacyOptions("site")}),
    "fedbuff": ("fedbuff", {"buffering": BufferOptions(buffer=2)}),
    "guarded-fedbuff": ("guarded fedbuff", {"buffering": BufferOptions(buffer=5)}),
    "spectral": ("staged", SPECTRAL),
    "guarded-spectral": ("guarded staged", SPECTRAL),
    "edmd": ("staged", EDMD_KIND),
    "guarded-edmd": ("guarded staged", EDMD_KIND),
}


@cache
def segment(slot: int, client: int) -> np.ndarray:
    """What arrives at a client: a decaying spiral, and some noise."""
    random = np.random.default_rng((slot, client))
    turn = np.array([[0.97, -0.2, 0.0], [0.2, 0.97, 0.0], [0.05, 0.0, 0.9]])
    rows = [random.normal(size=3)]
    for _ in range(STEPS - 1):
        rows.append(turn @ rows[-1] + 0.01 * random.normal(size=3))
    return np.array(rows)


@cache
def problem(case: str, count: int, policy: str = "threshold") -> Problem:
    name, given = CASES[case]
    algorithm = ALGORITHMS.find(name.removeprefix("guarded "))
    if name != (inner := name.removeprefix("guarded ")):
        algorithm = Guarded(ALGORITHMS.find(inner))
    return experiment(
        **{
            "algorithm": algorithm,
            "clients": clients(count),
            "segments": (1, 2, 1),  # of whom comes later: the highest
            "slots": SLOTS,
            "policy": POLICIES.find(policy),
            **given,
        }
    ).problem


def played(case: str, before: int, policy: str = "threshold") -> list[tuple[bytes, dict, list]]:
    """Every slot's model, state and who was asked; the fourth client comes after slot `JOINED`.

    Arguments:
        before: clients that are enrolled until then.
    """
    state = problem(case, before, policy).algorithm.begin(problem(case, before, policy))
    waiting: list[list] = [[] for _ in range(MANY)]
    arrived: list[list] = [[] for _ in range(MANY)]
    found = []
    for slot in range(1, SLOTS + 1):
        here = problem(case, MANY if slot > JOINED else before, policy)
        schemas = here.algorithm.messages(here)
        # One of the others leaves for two slots when the new one comes, and returns.
        away = {MANY - 1} if slot <= JOINED else {0} if slot <= JOINED + 2 else set()
        there = [n for n in range(here.clients) if n not in away]
        for n in range(MANY):
            waiting[n].append(segment(slot, n))
        counts = np.array([STEPS * len(waiting[n]) for n in range(here.clients)])
        requests = ask(here, state, slot, counts, [n in there for n in range(here.clients)])
        judged = []
        for n, request in requests.items():
            reply = replied(here, request, waiting[n], arrived[n], slot, n)
            assert not fault_of(schemas, request, reply)
            schema = schemas[request.kind]
            count = len(waiting[n]) + (len(arrived[n]) if schema.data == "arrived" else 0)
            judged.append(Judged(n, STEPS * count, reply, request=request))
            if schema.spends:
                arrived[n] += waiting[n]
                waiting[n] = []
        second = second_requests(here, state, slot, judged, there)
        reviews = {n: replied(here, one, [], [], slot, n) for n, one in second.items()}
        state, _ = concluded(here, state, slot, judged, reviews)
        model = here.algorithm.model(here, state)
        content = b"".join(np.asarray(model[name]).tobytes() for name in sorted(model))
        found.append((content, dict(state), list(requests)))
    return found


def replied(
    here: Problem, request: Message, waiting: list, arrived: list, slot: int, client: int
) -> Message:
    data = here.algorithm.messages(here)[request.kind].data
    held = [segment(100 + k, client) for k in range(2)] if data == "held-out" else []
    held = waiting if data == "waiting" else arrived + waiting if data == "arrived" else held
    own = Asked(slot, 7 * slot + client, here.rate(client), len(held), secret=slot + 1)
    return answer(here, request, held, own)


@pytest.mark.parametrize("case", CASES)
def test_growing_equals_having_been_silent(case: str) -> None:
    grown, silent = played(case, FEW), played(case, MANY)
    assert [one[2] for one in grown] == [one[2] for one in silent]
    assert any(MANY - 1 in one[2] for one in grown), "the newcomer is never asked"
    assert [one[0] for one in grown] == [one[0] for one in silent]
    assert len({one[0] for one in grown}) > 2, "nothing is learned"
    after, other = grown[-1][1], silent[-1][1]
    assert after.keys() == other.keys()
    for name, leaf in after.items():
        assert leaf.shape == other[name].shape, name
        assert leaf.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("policy", ["random", "round-robin"])
def test_where_all_who_are_enrolled_are_drawn_from_it_cannot_hold(policy: str) -> None:
    """It goes on all the same, and the newcomer's turn comes."""
    few, many = played("rule-mean", FEW, policy), played("rule-mean", MANY, policy)
    assert [one[2] for one in few] != [one[2] for one in many]
    assert any(MANY - 1 in one[2] for one in few)


def test_a_list_may_be_longer_than_the_sites_that_are_enrolled() -> None:
    """A study names a value per site before all of them are there."""
    whole = problem("edmd", MANY)
    fewer = replace(whole, clients=2)
    assert fewer.thresholds.tolist() == [1, 2]
    assert ask(fewer, fewer.algorithm.begin(fewer), 1, np.array([STEPS, STEPS])).keys() <= {0, 1}
