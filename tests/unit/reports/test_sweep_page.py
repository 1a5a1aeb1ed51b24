"""The page of a sweep: its numbers are the summaries', and nothing in it can run."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from fedkoopman.config.study import Study
from fedkoopman.reports import sweep_page as page
from fedkoopman.runs.sweep import Combination, Result

HOSTILE = "<script>alert(1)</script>$\\frac{$&quot;'"


def result(values: tuple[str, ...], e: float | None, name: str = "mine") -> Result:
    study = Study.paper_default(slots=4, name=name)
    entry = {"mean": e, "std": None if e is None else e / 2}
    metrics: dict[str, Any] = dict.fromkeys(("l1", "l2", "l3", "loss", "E", "horizon"), entry)
    summary = {"seeds": [0, 1], "tail_slots": 3, "seconds": 1.0, **metrics}
    return Result(Combination(",".join(values), values, study), summary)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_numbers_are_drawn_along_their_key_and_others_are_lines() -> None:
    keys = ["training.epochs", "scheme"]
    values = {("10", "a"): 4.0, ("5", "a"): 8.0, ("10", "b"): None, ("5", "b"): 2.0}
    results = [result(pair, e) for pair, e in values.items()]
    panel = page._figure(keys, results).axes[0]
    assert panel.get_xlabel() == "training.epochs"
    lines = {box.get_label(): box.lines[0] for box in panel.containers}
    assert list(lines) == ["scheme = a", "scheme = b"]
    np.testing.assert_array_equal(lines["scheme = a"].get_xydata(), [[5, 8], [10, 4]])
    np.testing.assert_array_equal(lines["scheme = b"].get_ydata(), [2, np.nan])
    html = page.sweep_page(keys, [one.combination for one in results], results)
    [best] = re.findall(r'<tr class="best">(.*?)</tr>', html)
    assert best.startswith("<td>5</td><td>b</td>") and "not finite" in html


def test_words_have_a_row_each() -> None:
    results = [result((word,), 1.0) for word in ("mean", "median", "krum")]
    panel = page._figure(["aggregation.rule"], results).axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["mean", "median", "krum"]


@pytest.mark.parametrize("values", [(HOSTILE, "1"), ("1", HOSTILE)])
def test_hostile_names_and_values_are_inert(values: tuple[str, ...]) -> None:
    results = [result(values, 1.0, HOSTILE), result(("2", "2"), 2.0, HOSTILE)]
    html = page.sweep_page([HOSTILE, "b"], [one.combination for one in results], results)
    tags = Tags()
    tags.feed(html)
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in tags.seen}
    for _, attributes in tags.seen:
        assert not any(name.startswith("on") for name in attributes)
        places = (attributes.get("href"), attributes.get("src"), attributes.get("xlink:href"))
        assert all(place is None or place.startswith("#") for place in places)
    assert "default-src 'none'" in html and page.INK not in html and "currentColor" in html


def test_a_sweep_that_has_just_begun_has_a_page() -> None:
    one = result(("5",), 1.0).combination
    assert "0 of 1 combinations" in page.sweep_page(["training.epochs"], [one], [])
