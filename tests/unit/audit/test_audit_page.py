"""Words, verdicts and files of an audit, from numbers that are given."""

import json
from dataclasses import replace

import pytest

import fedkoopman as fk
from fedkoopman.audit.audit import Audit, Result
from fedkoopman.audit.membership import Membership
from fedkoopman.audit.noise_level import NoiseLevel
from fedkoopman.audit.page import write_audit
from fedkoopman.audit.reconstruction import Reconstruction
from fedkoopman.audit.source import Source
from fedkoopman.audit.statistics import Measured
from fedkoopman.audit.verdict import claims_of, sentence, whole_claim

NAN, FOUND = float("nan"), Measured(0.26, 0.24, 0.28, 0.05, 0.1)


def area(value, wide=0.02, chance=0.5, small=0.6):
    return Measured(value, value - wide, value + wide, chance, small)


def ratio(value, wide=0.02):
    return Reconstruction(Measured(value, value - wide, value + wide, 1.0, 0.9), 1.4, 4, 9, 1)


def arm(name, source=0.5, member=0.5, gradient=1.0, update=1.0, noise=0.5, **more):
    return Result(
        name=name, title=f"<{name}>", updates=100, epsilon=None, record="sample", single=0.7,
        source=Source(area(source), Measured(0.93, 0.9, 0.96, 0.2, 0.36), 0.5, 100, 5),
        membership=Membership(area(member), area(member), FOUND, 9, 8, 1),
        gradient=ratio(gradient), update=ratio(update),
        noise=NoiseLevel(area(noise), 0.5, 12, 12), **more,
    )  # fmt: skip


LEAKY = {"source": 0.9, "member": 0.9, "gradient": 0.3, "update": 0.3, "noise": 0.9}


def audit(raw, smoothed):
    study = fk.Study.paper_default()
    return Audit(study, 200, 5, False, (arm("raw", **raw), arm("smoothed", **smoothed)), ("Note.",))


def verdicts(found):
    return {claim.attack: claim.verdict for claim in claims_of(found)}


def test_the_claim_holds_where_only_raw_observations_leak():
    found = audit(LEAKY, {})
    assert set(verdicts(found).values()) == {"holds"}
    assert whole_claim(claims_of(found)).verdict == "holds"


def test_one_attack_that_works_as_well_is_enough_against_it():
    found = audit(LEAKY, {"member": 0.85})
    assert verdicts(found)["membership"] == "does not hold"
    assert verdicts(found)["source"] == "holds"
    whole = whole_claim(claims_of(found))
    assert (whole.verdict, whole.why) == ("does not hold", "it fails in membership")


@pytest.mark.parametrize("own", [0.62, 0.58])
def test_a_leak_much_smaller_than_that_of_raw_observations_is_undecided(own):
    found = audit(LEAKY, {"source": own})
    assert verdicts(found)["source"] == "undecided"
    assert whole_claim(claims_of(found)).verdict == "undecided"


def test_where_nothing_leaks_there_is_nothing_to_compare():
    assert set(verdicts(audit({}, {})).values()) == {"undecided"}


def test_sentences_are_counts():
    one = arm("raw", member=0.77, gradient=0.53, noise=0.94)
    assert sentence(one, "source") == (
        "Of 100 updates, the server can tell the site of 93 [90 to 96] (20 would be chance)."
    )
    assert "in 77 [75 to 79] of 100 cases (50 would be chance)" in sentence(one, "membership")
    assert "it finds 26 of 100 used segments" in sentence(one, "membership")
    assert "off by 53 [51 to 55] % of the error" in sentence(one, "gradient")
    assert "which is noisier for 94 [92 to 96]" in sentence(one, "noise")
    assert sentence(replace(one, noise="too few"), "noise") == "Not measured: too few."


def test_both_files_say_the_same_and_need_nothing_else(tmp_path):
    found = audit(LEAKY, {"member": 0.85})
    few = replace(found.results[0], update=replace(ratio(1.0), ratio=Measured(1, NAN, NAN, 1, 0.9)))
    found = replace(found, results=(few, replace(found.results[1], noise="too few", epsilon=2.5)))
    numbers, page = write_audit(found, tmp_path / "new" / "leaks")
    told = json.loads(numbers.read_text())
    assert told["arms"][0]["update"]["ratio"]["low"] is None
    assert told["arms"][1]["verdicts"]["noise"] == "not measured"
    assert told["claim"]["verdict"] == "does not hold"
    text = page.read_text()
    body = text[: text.index("<script>")]
    for arm_told in told["arms"]:
        for words in arm_told["sentences"].values():
            assert words in body
    assert "ε = 2.5 per sample" in body
    assert "does not hold: it fails in membership" in body
    assert "<raw>" not in body
    assert "src=" not in body
    assert body.count("href=") == body.count('href="#')  # within the page
