"""Edge aggregators: two levels end with the model of one level, to rounding; or are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference.federations import clients, experiment, run

from fedkoopman.errors import InputError
from fedkoopman.federation import edges
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.algorithms.fedbuff import FedBuff
from fedkoopman.federation.algorithms.staged import StagedLearning
from fedkoopman.federation.edges import Edged, check_edges, joined
from fedkoopman.federation.guard.guarded import Guarded
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.options import AggregationOptions, PrivacyOptions, ServerOptions
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.spectral import Spectral

SITES = 60
EDGES = [range(0, 25), range(25, 27), [27], *(range(n, n + 8) for n in range(28, 60, 8))]
"""Of unequal sizes; one has a single site."""
CASES: dict[str, dict[str, Any]] = {
    "fedavg-m": {"algorithm": FedAvgM()},
    "adam": {
        "algorithm": FedAvgM(),
        "server_step": SERVER_STEPS.find("adam"),
        "server": ServerOptions(average=0.5),
    },
    "edmd": {"algorithm": StagedLearning(), "architecture": EDMD.of(state_dim=3, degree=2)},
    "spectral": {
        "algorithm": StagedLearning(),
        "architecture": Spectral(3, 6, features=8, horizon=5),
        "slots": 6,
    },
}


def many(**changes: Any) -> Any:
    """Sixty sites, of which every third waits for more data than the others."""
    given = {
        "clients": clients(SITES),
        "segments": (1, 1, 2) * (SITES // 3),
        "slots": 4,
        "scheme": "perfect-data",
    }
    return experiment(**{**given, **changes})


def model_of(federation: Any) -> Arrays:
    state = run(federation)[-1].state
    return federation.problem.algorithm.model(federation.problem, state.arrays)


def difference(one: Arrays, other: Arrays) -> float:
    """The largest, in units of the largest entry of the array."""
    return max(
        float(np.abs(np.float64(other[name]) - leaf).max(initial=0.0))
        / max(float(np.abs(leaf).max(initial=0.0)), 1e-300)
        for name, leaf in one.items()
    )


@pytest.mark.parametrize("case", CASES)
def test_two_levels_give_the_model_of_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = many(**CASES[case])
    one = model_of(flat)
    heard = []

    class Counting(Edged):
        def gathered(self, problem: Any, replies: Any) -> Any:
            found = super().gathered(problem, replies)
            assert sum(len(reply.clients) for reply in found.values()) == len(replies)
            assert sum(r.samples for r in found.values()) == sum(
                r.samples for r in replies.values()
            )
            heard.append((len(replies), len(found)))
            return found

    two = model_of(replace(flat, algorithm=Counting(flat.algorithm, EDGES)))
    assert max(heard) > (SITES // 2, 1) and max(few for _, few in heard) == len(EDGES)
    # What is solved from sums of trained features makes rounding larger.
    assert difference(one, two) < (1e-6 if case == "spectral" else 1e-9)
    if case == "fedavg-m":
        # Three levels: the servers of all edges but the first stand behind one more edge.
        firsts = [edge[0] for edge in EDGES]
        above = Edged(flat.algorithm, [firsts[:1], firsts[1:]])
        # A single update stands for its edge under its own place, so all sites answer here.
        everybody = replace(flat, segments=0, clients=clients(SITES, probability=1.0))
        three = replace(everybody, algorithm=Edged(above, EDGES))
        assert difference(model_of(everybody), model_of(three)) < 1e-9

        def unweighted(schema: Any, replies: Any) -> Answered:
            return joined(schema, [one._replace(samples=1) for one in replies])

        monkeypatch.setattr(edges, "joined", unweighted)
        wrong = model_of(replace(flat, algorithm=Edged(flat.algorithm, EDGES)))
        assert difference(one, wrong) > 1e-5, "sites have as many samples: nothing is shown"


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"aggregator": AGGREGATORS.find("median")}, "every single 'update'"),
        ({"aggregator": AGGREGATORS.find("krum")}, "every single 'update'"),
        ({"algorithm": FedBuff()}, "every single 'update'"),
        ({"algorithm": Guarded(FedAvgM())}, "the guard judges single replies"),
        ({"privacy": PrivacyOptions("central")}, 'privacy.mode is "central"'),
        ({"privacy": PrivacyOptions("site")}, 'privacy.mode is "site"'),
        ({"aggregation": AggregationOptions(secure=True)}, "aggregation.secure masks them"),
    ],
    ids=["median", "krum", "fedbuff", "guard", "central", "site", "secure"],
)
def test_what_needs_single_replies_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_edges(many(**changes).problem)
    with pytest.raises(InputError, match="behind two edge aggregators"):
        Edged(FedAvgM(), [[0, 1], [1, 2]])
