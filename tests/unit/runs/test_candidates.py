"""What a tuning tries: rungs that let clients train, sizes within the budget, distinct studies."""

from itertools import pairwise

import pytest

from fedkoopman.config.parts import architecture_of, system_of
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.runs.candidates import (
    ESTIMATED,
    GIVEN,
    candidates,
    choices,
    rungs_of,
    sizes_of,
)

DEFAULT = Study.paper_default()
OWN_KIND = """
from dataclasses import dataclass
from typing import ClassVar

from fedkoopman.koopman.kinds.paper import KIND


@dataclass(frozen=True)
class Own(KIND):
    name: ClassVar[str] = "own"
"""


@pytest.mark.parametrize(
    ("changes", "rungs"),
    [
        ({}, (25, 50, 100, 200)),
        ({"slots": 64}, (16, 32, 64)),  # 8 slots are too few for 5 segments, and for 10
        ({"slots": 20}, (20,)),
        ({"slots": 3}, (3,)),
        ({"slots": 1, "policy.segments": 0}, (1,)),
        ({"slots": 20, "policy.segments": 0}, (3, 5, 10, 20)),
        ({"slots": 20, "policy.name": "random"}, (3, 5, 10, 20)),
        ({"slots": 80, "clients.probability": "[0, 0, 0, 1, 1]"}, (80,)),
        ({"slots": 80, "clients.probability": "[0, 0, 1, 1, 1]"}, (10, 20, 40, 80)),
        ({"slots": 80, "clients.probability": 0, "policy.segments": 0}, (10, 20, 40, 80)),
    ],
    ids=str,
)
def test_rungs_let_most_clients_train_twice(changes: dict, rungs: tuple[int, ...]) -> None:
    assert rungs_of(DEFAULT.with_values(changes)) == rungs


@pytest.mark.parametrize("rungs", [(25, 50, 100, 200), (16, 32, 64), (20,), (1,), (3, 5, 10, 20)])
@pytest.mark.parametrize("budget", [3, 4, 10, 33])
def test_halves_fill_the_budget(rungs: tuple[int, ...], budget: int) -> None:
    """The study as given and all trials together stay within it; with one more they would not."""

    def slots(sizes: tuple[int, ...]) -> int:
        return rungs[-1] + sum(size * n for size, n in zip(sizes, rungs, strict=True))

    sizes = sizes_of(rungs, budget)
    assert sizes[-1] >= 1
    for this, following in pairwise(sizes):
        assert following == (this + 1) // 2
    assert slots(sizes) <= budget * rungs[-1]
    more = [sizes[0] + 1]
    while len(more) < len(rungs):
        more.append(-(-more[-1] // 2))
    assert slots(tuple(more)) > budget * rungs[-1]


def test_the_default_budget() -> None:
    assert sizes_of((25, 50, 100, 200), 10) == (16, 8, 4, 2)


def test_candidates_are_distinct_studies_beside_the_given_one() -> None:
    found, refused = candidates(DEFAULT, 12, 7)
    assert len(found) == 13
    assert (found[0].name, found[0].values, found[0].study) == (GIVEN, {}, DEFAULT)
    assert len({one.study.digest() for one in found}) == 13
    for one in found[1:]:
        assert one.study == DEFAULT.with_values(one.values)
        for key, value in one.values.items():  # what does not differ is not told
            assert DEFAULT.with_values({key: value}) != DEFAULT
    assert candidates(DEFAULT, 12, 7) == (found, refused)
    assert candidates(DEFAULT, 5, 7)[0] == found[:6]
    assert candidates(DEFAULT, 12, 8)[0] != found


def test_every_kind_is_tried_soon_and_once_by_itself() -> None:
    known = [kind for kind in ("spectral", "edmd", "inclusive", "paper") if kind in KINDS]
    found, _ = candidates(DEFAULT, 3 * len(known), 0)
    seen = [one.study.network.kind for one in found]
    assert set(seen) == set(known)
    able = [key for key in ESTIMATED if accepts_auto(key)]
    alone = [{"network.kind": kind} for kind in known if kind != "paper"]
    values = [one.values for one in found[1:]]
    assert values[: len(alone)] == alone
    if able:
        noise = dict.fromkeys(able, "auto")
        given = {"paper": {}} | {one["network.kind"]: one for one in alone}
        soon = values[len(alone) : len(alone) + len(known)]
        assert all(given[kind] | noise in soon for kind in known)


def tried(study: Study, kind: str) -> dict[str, list[str]]:
    """Values by key of [network], beside the study's own."""
    found: dict[str, list[str]] = {}
    for factor in choices(study, kind, 3):
        for values in factor:
            for key, value in values.items():
                if key.startswith("network."):
                    found.setdefault(key.removeprefix("network."), []).append(value)
    return found


def test_what_is_tried_of_each_kind() -> None:
    sizes, windows = {"components": ["6", "12", "24", "36"]}, {"window": ["2", "4"]}
    widths, ridges = {"width": ["16", "64", "128"]}, {"ridge": ["1e-08", "1e-05"]}
    features, degrees = {"features": ["32", "128"]}, {"degree": ["2", "5"]}
    spectral = sizes | features | {"discount": ["1.0", "3.0"]} | ridges | windows
    assert tried(DEFAULT, "paper") == sizes | widths | windows
    assert tried(DEFAULT, "inclusive") == {"kind": ["inclusive"]} | sizes | widths | windows
    assert tried(DEFAULT, "edmd") == {"kind": ["edmd"]} | degrees | ridges | windows
    assert tried(DEFAULT, "spectral") == {"kind": ["spectral"]} | spectral
    other = DEFAULT.with_values({"network.components": 24, "network.width": 64})
    assert tried(other, "paper")["components"] == ["6", "12", "36"]
    assert tried(other, "paper")["width"] == ["16", "128"]
    cosines = DEFAULT.with_values({"network.dictionary": "fourier"})
    assert tried(cosines, "edmd") == {"kind": ["edmd"]} | features | ridges | windows
    for factor in choices(DEFAULT, "spectral", 3)[1:]:
        assert factor[0] == {}


def test_one_model_written_in_two_ways_is_tried_once() -> None:
    """ "auto" components are 12, and edmd's are those of its dictionary."""
    every, _ = candidates(DEFAULT, 10_000, 0)
    models = [
        (architecture_of(one.study, system_of(one.study)), repr(one.study.clients)) for one in every
    ]
    assert len(set(models)) == len(models) > 100


def test_a_very_large_dictionary_is_refused() -> None:
    study = DEFAULT.with_values({"network.kind": "edmd", "algorithm.name": "staged"})
    _, refused = candidates(study, 10_000, 0)
    large = [
        one.reason
        for one in refused
        if one.values.get("network.degree") == "5" and one.values.get("network.window") == "4"
    ]
    assert large and all("functions" in reason or "numbers at once" in reason for reason in large)
    assert any("numbers at once" in one.reason for one in refused)


def test_a_kind_of_ones_own_is_tried_with_the_keys_that_it_has(tmp_path) -> None:
    (tmp_path / "own.py").write_text(OWN_KIND, encoding="utf-8")
    (tmp_path / "plain.py").write_text("from reference.closed_form_kind import LeastSquares\n")
    study = Study.from_dict({"network": {"kind": "own.py:Own"}}, tmp_path)
    found, _ = candidates(study, 12, 0)
    assert {"own.py:Own", "paper"} <= {one.study.network.kind for one in found}
    assert tried(study, "own.py:Own")["width"] == ["16", "64", "128"]
    assert set(tried(study, "plain.py:LeastSquares")) == {"kind", "components", "window"}


def test_noise_is_estimated_where_the_study_says_it_and_can() -> None:
    """Sites say their own in files that stay with them; true states need no filter."""

    def noise(study: Study) -> list[dict[str, str]]:
        [*_, last] = choices(study, "paper", 3)
        return [values for values in last if set(values) & set(ESTIMATED)]

    able = [key for key in ESTIMATED if accepts_auto(key)]
    assert noise(DEFAULT) == ([dict.fromkeys(able, "auto")] if able else [])
    assert noise(DEFAULT.with_values(dict.fromkeys(able, "auto"))) == []
    assert noise(DEFAULT.with_values({"scheme": "perfect-data"})) == []
    assert noise(Study.from_dict({"sites": {"files": ["a.toml"]}, "clients": {"count": 1}})) == []


def accepts_auto(key: str) -> bool:
    try:
        DEFAULT.with_values({key: "auto"})
    except InputError:
        return False
    return True


def test_an_algorithm_that_is_named_limits_the_kinds() -> None:
    study = DEFAULT.with_values({"algorithm.name": "fedavg-m"})
    found, _ = candidates(study, 30, 0)
    assert {KINDS.find(one.study.network.kind).algorithm for one in found} == {"fedavg-m"}


def test_what_does_not_fit_is_refused_with_the_reason_and_replaced() -> None:
    short = DEFAULT.with_values({"segments.steps": 4, "evaluation.horizon": 3})
    found, refused = candidates(short, 10, 0)
    assert len(found) == 11
    reasons = [one.reason for one in refused if one.values.get("network.window") == "4"]
    assert any("segments.steps is 4" in reason for reason in reasons)
    assert all(one.study.network.window < 4 for one in found)
