"""`fk.load_run`: what is on disk comes back as it was in memory, finished or not."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkoopman as fk

TINY = {
    "slots": 4,
    "segments.steps": 30,
    "training.epochs": 1,
    "policy.segments": 1,
    "clients.count": 2,
    "clients.probability": 1.0,
    "evaluation.trajectories": 2,
    "scheme": "perfect-data",
}


@pytest.fixture(scope="module")
def tiny() -> fk.Study:
    return fk.Study.paper_default().with_values(TINY)


def test_a_finished_run_of_several_seeds_comes_back(tiny: fk.Study, tmp_path: Path) -> None:
    run = fk.run(tiny, seeds=[3, 5], out=tmp_path / "run")
    copy = shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "run")
    found = fk.load_run(copy)
    assert found.seeds == (3, 5) and found.all_records == run.all_records
    assert found.summary == run.summary and found.study.digest() == tiny.digest()
    pd.testing.assert_frame_equal(found.to_frame(), run.to_frame())
    x0 = np.ones(3)
    for ours, read in zip(run.models, found.models, strict=True):
        np.testing.assert_array_equal(ours.simulate(x0, 3), read.simulate(x0, 3))
    assert found.models[0] is found.model and len(found.models[:2]) == 2
    alone = fk.load_run(copy / "seed-5")
    assert alone.seeds == (5,) and alone.records == run.all_records[5]
    np.testing.assert_array_equal(alone.model.operator_, run.models[1].operator_)


def test_the_table_has_a_row_per_seed_and_slot(tiny: fk.Study) -> None:
    run = fk.run(tiny, seeds=2)
    table = run.to_frame()
    assert (
        len(table) == 8 and table.groupby("seed")["slot"].apply(list).tolist() == [[1, 2, 3, 4]] * 2
    )
    tail = table[table.slot > 2]
    by_hand = tail.groupby("seed")["E"].mean()
    two = fk.run(tiny.with_values({"evaluation.tail_slots": 2}), seeds=2)
    assert two.summary["E"]["mean"] == pytest.approx(by_hand.mean())
    assert two.summary["E"]["std"] == pytest.approx(by_hand.std())
    assert table["E"].dtype == float and table["active"][0] == run.records[0]["active"]


def test_an_unfinished_run_has_records_and_says_that_it_has_no_model(
    tiny: fk.Study, tmp_path: Path
) -> None:
    def stop(event: object) -> None:
        if event.slot == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fk.run(tiny, out=tmp_path / "run", progress=stop)
    with (tmp_path / "run" / "records.jsonl").open("a") as file:
        file.write('{"slot": 3, "E"')  # as if it were being written
    found = fk.load_run(tmp_path / "run")
    assert [record["slot"] for record in found.records] == [1, 2]
    assert found.summary["finished"] is False and found.summary["tail_slots"] == 2
    assert "2 of 4" in repr(found)
    with pytest.raises(fk.InputError, match="the run is not finished"):
        _ = found.model
    ended = fk.run(tiny, out=tmp_path / "run", resume=True)
    assert fk.load_run(tmp_path / "run").records == ended.records


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fk.InputError, match="there is no run directory"):
        fk.load_run(tmp_path / "none")
    with pytest.raises(fk.InputError, match="holds no run"):
        fk.load_run(tmp_path)
