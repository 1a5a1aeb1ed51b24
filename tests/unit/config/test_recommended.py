"""The study that we recommend: the paper's federation, another model kind and better states."""

import pytest

from fedkoopman import Study
from fedkoopman.cli.options import read_study
from fedkoopman.config.study import RECOMMENDED, RECOMMENDED_SIMULATED


def test_it_differs_from_the_papers_in_what_is_recommended_and_nothing_else():
    ours, papers = Study.recommended(slots=60, seed=3), Study.paper_default(slots=60, seed=3)
    ours.check()
    changed = {
        f"{section}.{key}"
        for section, table in ours.to_dict().items()
        if isinstance(table, dict)
        for key, value in table.items()
        if value != papers.to_dict()[section][key]
    }
    assert changed == {*RECOMMENDED, *RECOMMENDED_SIMULATED, "evaluation.tail_slots"}
    assert (ours.slots, ours.seed, ours.name) == (60, 3, "recommended")
    assert ours.evaluation.tail_slots == 3  # of models that are solved, not previews


def test_other_keys_may_be_given_as_for_the_papers():
    study = Study.recommended(clients={"count": 3})
    assert study.clients.count == 3 and study.clients.process_noise == "auto"


def test_words_count_after_the_recommendation():
    study = read_study(None, ["network.kind=edmd", "slots=40"], recommended=True)
    assert (study.network.kind, study.slots) == ("edmd", 40)
    assert study.estimation.method == "ukf-resampled"
    assert study.evaluation.tail_slots == 2


def test_sites_say_for_themselves_what_they_know():
    study = Study.from_dict({"sites": {"files": ["a.toml"]}, "clients": {"count": 1}})
    ours = study.as_recommended()
    assert ours.network.kind == "spectral" and ours.estimation.method == "ukf-resampled"
    assert ours.clients.process_noise == 1.0 and ours.estimation.initial_cov == 1.0


@pytest.mark.parametrize("slots", [1, 5, 19])
def test_few_slots_have_a_tail_of_one(slots):
    assert Study.recommended(slots=slots).evaluation.tail_slots == 1
