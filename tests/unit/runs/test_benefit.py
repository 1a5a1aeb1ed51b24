"""Does federating help? What is said where the model wins, loses, or both."""

import json
from typing import Any

import numpy as np
import pytest

from fedkoopman.runs.benefit import benefit

HORIZONS = (1, 5, 20, 50, 100)
GOOD = {"holding": 1.0, "alone": 0.5, "dmd": 0.4, "edmd": 0.3, "federated": 0.25}


def site(far: int = 5, **factors: Any) -> dict[str, np.ndarray]:
    """Errors that grow with the horizon, known for the first `far`; factors by forecast."""
    grown = np.where(np.arange(5) < far, np.array([0.1, 0.3, 1.0, 1.5, 2.0]), np.nan)
    return {name: grown * factors.get(name, usual) for name, usual in GOOD.items()}


def told(sites: dict[str, Any], kind: str = "paper", clients: int = 3) -> dict[str, Any]:
    found = benefit(sites, HORIZONS, kind=kind, degree=3, clients=clients)
    assert found is not None
    json.dumps(found, allow_nan=False)
    return found


def test_a_model_that_wins_is_told_by_how_much() -> None:
    found = told({"a": site(), "b": site(alone=1.0)})
    assert found["sentence"] == (
        "At 20 steps the shared model is 4 times better than holding the last value, 3 times "
        "better than a site alone, 1.6 times better than linear DMD and 1.2 times better than "
        "EDMD of degree 3 (means over 2 sites)."
    )
    assert found["worse_than"] == {"holding": [], "alone": [], "dmd": [], "edmd": []}
    assert found["mean"]["alone"][2] == pytest.approx(0.75)
    assert found["sites"]["b"]["alone"] == pytest.approx([0.1, 0.3, 1.0, 1.5, 2.0])
    assert found["horizons"] == list(HORIZONS) and found["degree"] == 3


def test_a_model_that_loses_says_to_what_and_what_to_try() -> None:
    found = told({"a": site(federated=2.0), "b": site(federated=2.0)})
    words = found["sentence"]
    assert words.startswith("At 20 steps the shared model is 2 times worse than holding the last")
    assert (
        "It is worse than holding the last value at 1, 5, 20, 50 and 100 steps and than linear"
        in words
    )
    assert 'try network.kind = "spectral"' in words
    assert "every site alone forecasts better" in words
    assert found["worse_than"]["dmd"] == list(HORIZONS)


def test_losing_at_one_horizon_is_said_though_the_first_sentence_is_good() -> None:
    near = np.array([2.0, 0.25, 0.25, 0.25, 0.25])
    found = told({"a": site(federated=near)}, kind="spectral", clients=2)
    assert "is 4 times better than holding" in found["sentence"]
    assert (
        "worse than holding the last value at 1 step and than linear DMD at 1 step: try"
        in (found["sentence"])
    )
    assert 'kind = "spectral"' not in found["sentence"], "it is that already"
    assert found["worse_than"] == {"holding": [1], "alone": [1], "dmd": [1], "edmd": [1]}


def test_losing_to_edmd_only_names_edmd() -> None:
    words = told({"a": site(edmd=0.1)})["sentence"]
    assert "but is 2.5 times worse than EDMD of degree 3" in words
    assert 'network.kind = "edmd" learns it in one round' in words
    assert 'kind = "edmd"' not in told({"a": site(edmd=0.1)}, kind="edmd")["sentence"]


def test_sites_that_are_better_off_alone_are_named() -> None:
    words = told({"a": site(), "b": site(alone=0.1), "c": site()})["sentence"]
    assert words.endswith("Better off alone: b.")


def test_nearly_equal_is_as_good_as() -> None:
    found = told({"a": site(dmd=0.2475)})
    assert "as good as linear DMD" in found["sentence"] and not found["worse_than"]["dmd"]


def test_one_site_has_nothing_to_federate() -> None:
    words = told({"a": site(alone=np.nan)}, clients=1)["sentence"]
    assert "With one site there is nothing to federate: alone it is the same." in words
    assert "a site alone" not in words and "means over" not in words


def test_what_diverges_is_called_so() -> None:
    found = told({"a": site(federated=np.inf), "b": site()})
    assert found["sites"]["a"]["federated"] == ["diverges"] * 5
    assert found["mean"]["federated"] == ["diverges"] * 5
    assert found["sentence"].startswith("At 20 steps the shared model's forecast diverges.")
    assert found["worse_than"]["holding"] == list(HORIZONS)
    other = told({"a": site(edmd=np.inf)})["sentence"]
    assert "has a forecast where EDMD of degree 3 diverges" in other


def test_horizons_end_where_segments_do_and_silent_sites_are_named() -> None:
    found = told({"a": site(2), "b": site(1), "c": site(0)})
    assert found["horizons"] == [1, 5] and list(found["sites"]) == ["a", "b"]
    assert found["sites"]["b"]["holding"][1] is None
    assert found["sentence"].startswith("At 5 steps")
    assert "Not compared, as nothing long enough is held out: c." in found["sentence"]
    assert benefit({"c": site(0)}, HORIZONS, kind="paper", degree=3, clients=1) is None
    assert benefit({}, HORIZONS, kind="paper", degree=3, clients=1) is None
