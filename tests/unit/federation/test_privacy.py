"""ε by dp-accounting, budgets, the server's noise, and resumption, in the in-process engine."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from reference.federations import clients, experiment, final, run

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.central_privacy import noised_mean
from fedkoopman.federation.options import PrivacyOptions
from fedkoopman.federation.privacy import (
    RELEASES,
    Release,
    epsilon,
    privacy_told,
    secret_number,
    spent_by,
)

SITE = PrivacyOptions(mode="site", noise=1.5)


def independent(events, delta):
    """dp-accounting by itself: (q, σ, steps) composed one after the other."""
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant()
    for q, sigma, steps in events:
        for _ in range(2):  # in two halves, another composition than ours
            event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))
            accountant.compose(event, steps // 2)
    return accountant.get_epsilon(delta)


def test_epsilon_is_that_of_dp_accounting():
    events = [(0.04, 1.1, 240), (0.04, 1.1, 60), (0.02, 2.0, 100)]
    releases = [Release(*event) for event in events]
    assert epsilon(releases, 1e-5) == pytest.approx(independent(events, 1e-5), rel=1e-9)
    assert epsilon([], 1e-5) == 0.0


def test_releases_without_sampling_are_gaussian():
    import dp_accounting as dp

    releases = [Release(1.0, 3.0, 1, "site")] * 5
    found = dp.rdp.RdpAccountant()
    found.compose(dp.GaussianDpEvent(3.0), 5)
    assert epsilon(releases, 1e-6, "site") == pytest.approx(found.get_epsilon(1e-6), rel=1e-9)


def test_protected_examples_say_nothing_of_segments():
    assert epsilon([Release(0.1, 1.0, 10, "sample")], 1e-5, "segment") == math.inf
    assert epsilon([Release(0.1, 1.0, 10, "segment")], 1e-5, "sample") < math.inf


def test_without_the_accountant_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[privacy\]'"):
        Study.paper_default(privacy={"mode": "site"}).check()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"privacy": {"mode": "central"}, "aggregation": {"secure": True}}, "aggregation.secure"),
        ({"privacy": {"mode": "site"}, "scheme": "centralized"}, "centralized"),
        ({"privacy": {"mode": "site"}, "network": {"kind": "spectral"}}, "sums of states"),
        ({"privacy": {"mode": "central"}, "network": {"kind": "edmd"}}, "sums of states"),
    ],
)
def test_what_does_not_go_together_is_refused(values, words):
    with pytest.raises(InputError, match=words):
        Study.paper_default(**values).check()


def test_noise_of_the_server_goes_with_the_mean_only(tmp_path):
    (tmp_path / "rule.py").write_text("def rule(current, updates, sizes): return updates[0]\n")
    table = {"privacy": {"mode": "central"}, "aggregation": {"rule": "rule.py:rule"}}
    with pytest.raises(InputError, match=r"aggregation\.rule"):
        Study.from_dict(table, tmp_path)


def test_a_run_accounts_for_what_its_clients_sent():
    e = experiment(privacy=SITE, slots=3)
    outcomes = run(e)
    problem, state = e.problem, outcomes[-1].state.arrays
    trainings = [one.record["active"] for one in outcomes]
    for n in range(3):
        count = sum(n in active for active in trainings)
        found = spent_by(problem, state, n)
        # every training is of one segment of 40 samples: 39 examples, batches of 16
        assert all(one.rate == 2 ** (-20 / 16) for one in found)
        assert sum(one.steps for one in found) == count * 2 * math.ceil(1 / 2 ** (-20 / 16))
    told = privacy_told(problem, state, ["a", "b", "c"])["privacy"]
    assert told["sites"]["a"]["trainings"] == sum(0 in active for active in trainings)
    steps = sum(one.steps for one in spent_by(problem, state, 0))
    alone = independent([(2 ** (-20 / 16), 1.5, steps)], 1e-5)
    assert told["sites"]["a"]["epsilon"] == pytest.approx(alone, rel=1e-9)
    assert not any(name.startswith("privacy.") for name in problem.algorithm.model(problem, state))


def test_a_private_run_goes_on_bit_for_bit():
    e = experiment(privacy=SITE)
    whole = run(e)
    rest = run(e, whole[2].state)
    assert final(rest) == final(whole)
    assert RELEASES in rest[-1].state.arrays


def test_a_client_stops_before_its_budget_is_exceeded():
    rich = experiment(privacy=SITE, clients=clients(3, probability=1.0))
    free = run(rich)
    one = epsilon(spent_by(rich.problem, free[1].state.arrays, 1), 1e-5)
    poor = replace(rich.clients[1], budget=1.2 * one)
    e = replace(rich, clients=(rich.clients[0], poor, rich.clients[2]))
    outcomes = run(e)
    assert [1 in each.record["active"] for each in outcomes] == [False, True, False, False, False]
    assert [each.record.get("budget_spent") for each in outcomes[1:]] == [None, [1], [1], [1]]
    told = privacy_told(e.problem, outcomes[-1].state.arrays, ["a", "b", "c"])["privacy"]
    assert told["sites"]["b"] == {"epsilon": pytest.approx(one), "trainings": 1, "stopped": 2}
    assert told["sites"]["a"]["trainings"] == 4
    assert final(run(e, outcomes[2].state)) == final(outcomes)  # it stays stopped


def test_central_noise_has_the_stated_mean_and_standard_deviation():
    options = PrivacyOptions(mode="central", clip=0.5, noise=2.0)
    problem = experiment(privacy=options).problem
    current = {"a": np.zeros((30, 40)), "b": np.zeros(300)}
    long = {"a": np.ones((30, 40)), "b": np.ones(300)}  # of length √1500
    short = {"a": np.full((30, 40), 1e-3), "b": np.zeros(300)}
    found = noised_mean(problem, current, {0: long, 2: short})
    expected = {
        "a": (0.5 / math.sqrt(1500) + 1e-3) / 2,
        "b": 0.5 / math.sqrt(1500) / 2,
    }
    rest = np.concatenate([(found[name] - mean).ravel() for name, mean in expected.items()])
    sigma = 2.0 * 0.5 / 2
    assert abs(rest.mean()) < 4.5 * sigma / math.sqrt(1500)
    assert abs(rest.std() / sigma - 1) < 4.5 / math.sqrt(3000)
    again = noised_mean(problem, current, {0: long, 2: short})
    assert all(np.array_equal(found[name], again[name]) for name in found)
    other = noised_mean(replace(problem, secret=b"x"), current, {0: long, 2: short})
    assert not np.array_equal(found["b"], other["b"])


def test_a_central_run_is_one_release_per_slot_of_a_site():
    options = PrivacyOptions(mode="central", clip=0.1, noise=1.0)
    e = experiment(privacy=options)
    outcomes = run(e)
    count = sum(0 in one.record["active"] for one in outcomes)
    (release,) = spent_by(e.problem, outcomes[-1].state.arrays, 0)
    assert release == Release(1.0, 1.0, count, "site")
    assert final(run(e, outcomes[2].state)) == final(outcomes)


def test_secrets_differ_by_address_and_secret():
    numbers = {secret_number(s, *a) for s in (b"1", b"2") for a in ((1, "x"), (1, "y"), (2, "x"))}
    assert len(numbers) == 6 and all(0 <= one < 2**128 for one in numbers)
