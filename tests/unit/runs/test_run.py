"""`fk.run` and its directory: what is kept, what is refused, what is told."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.runs.run import Progress
from fedkoopman.runs.run_directory import study_in

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
POLICY = "def choose(situation):\n    return [situation.slot % 2]\n"


@pytest.fixture
def tiny() -> fk.Study:
    return fk.Study.paper_default().with_values(TINY)


@pytest.fixture
def with_policy(tmp_path: Path) -> Path:
    """A study with a policy of its own, in a directory of its own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(POLICY)
    study = fk.Study.paper_default().with_values({**TINY, "policy.name": "mine.py:choose"})
    (folder / "study.toml").write_text(study.to_toml())
    return folder / "study.toml"


def test_one_record_per_slot_and_the_untrained_model_apart(tiny: fk.Study, tmp_path: Path) -> None:
    run = fk.run(tiny, out=tmp_path / "run")
    assert [record["slot"] for record in run.records] == [1, 2, 3, 4]
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == run.records
    untrained = json.loads((tmp_path / "run" / "untrained.json").read_text())
    assert untrained["l3"] > run.records[-1]["l3"]
    assert run.summary["untrained"] == pytest.approx(untrained)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == run.summary


def test_the_summary_is_of_the_last_slots_and_over_seeds(tiny: fk.Study) -> None:
    run = fk.run(tiny.with_values({"evaluation.tail_slots": 2}), seeds=3)
    each = [np.mean([r["l3"] for r in run.all_records[seed][-2:]]) for seed in (0, 1, 2)]
    assert run.summary["tail_slots"] == 2 and run.summary["seeds"] == [0, 1, 2]
    assert run.summary["l3"]["mean"] == pytest.approx(np.mean(each))
    assert run.summary["l3"]["std"] == pytest.approx(np.std(each, ddof=1))
    assert run.summary["rounds"] == 8 and run.summary["samples"] == 8 * 30


@pytest.mark.parametrize(("scheme", "rounds"), [("centralized", 4), ("perfect-data", 8)])
def test_the_server_trains_once_for_all_where_data_is_sent(
    tiny: fk.Study, scheme: str, rounds: int
) -> None:
    run = fk.run(tiny.with_values({"scheme": scheme}))
    assert run.summary["rounds"] == run.model.information_["rounds"] == rounds


@pytest.mark.parametrize("seeds", ["[]", "[-1]", "null"])
def test_a_directory_without_proper_seeds_is_damaged(
    tiny: fk.Study, tmp_path: Path, seeds: str
) -> None:
    fk.run(tiny, out=tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text()) | {"seeds": json.loads(seeds)}
    file.write_text(json.dumps(about))
    with pytest.raises(fk.InputError, match="is damaged"):
        fk.run(tiny, out=tmp_path / "run", resume=True)


def test_the_model_knows_how_it_was_trained(tiny: fk.Study) -> None:
    study = tiny.with_values({"training.batch": 32, "training.loss_weights": [1, 0, 2], "seed": 5})
    model = fk.run(study).model
    assert model.get_params()["batch_size"] == 32
    assert model.get_params()["loss_weights"] == (1.0, 0.0, 2.0)
    assert model.random_state == 5
    assert model.information_["rounds"] == 8


@pytest.mark.parametrize("seeds", [[7], [3, 8]])
def test_chosen_seeds_have_directories_and_studies_of_their_own(
    tiny: fk.Study, tmp_path: Path, seeds: list[int]
) -> None:
    fk.run(tiny, seeds=seeds, out=tmp_path / "run")
    for seed in seeds:
        alone = fk.Study.load(tmp_path / "run" / f"seed-{seed}" / "study.toml")
        assert alone == replace(tiny, seed=seed)
        bytes_ = (tmp_path / "run" / f"seed-{seed}" / "model.safetensors").read_bytes()
        fk.run(alone, out=tmp_path / f"alone-{seed}")
        assert (tmp_path / f"alone-{seed}" / "model.safetensors").read_bytes() == bytes_


def test_estimated_settings_are_the_same_alone_together_and_after_a_resumption(
    tiny: fk.Study, tmp_path: Path
) -> None:
    study = tiny.with_values(
        {
            "scheme": "kf-fedkl",
            "estimation.method": "ukf-resampled",
            "estimation.initial_mean": "auto",
            "estimation.initial_cov": "auto",
            "estimation.lost_track": "drop",
            "clients.process_noise": "auto",
        }
    )
    fk.run(study, seeds=[0, 1], out=tmp_path / "both")
    expected = (tmp_path / "both" / "seed-1" / "model.safetensors").read_bytes()
    alone = replace(study, seed=1)

    def stop(progress: Progress) -> None:
        if progress.slot == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fk.run(alone, out=tmp_path / "alone", progress=stop)
    assert not (tmp_path / "alone" / "model.safetensors").exists()
    fk.run(alone, out=tmp_path / "alone", resume=True)
    assert (tmp_path / "alone" / "model.safetensors").read_bytes() == expected


def test_metrics_that_are_not_finite_are_null_in_memory_and_on_disk(
    tiny: fk.Study, tmp_path: Path
) -> None:
    study = tiny.with_values({"training.learning_rate": 1e25})
    run = fk.run(study, out=tmp_path / "run")
    assert any(record.get("refused") for record in run.records) or any(
        record["loss"] is None for record in run.records
    )
    again = fk.run(study, out=tmp_path / "run", resume=True)
    assert again.records == run.records


class TestResuming:
    def test_another_seed_is_refused(self, tiny: fk.Study, tmp_path: Path) -> None:
        fk.run(tiny, out=tmp_path / "run")
        with pytest.raises(fk.InputError, match=r"seeds \[0\] but \[3\]"):
            fk.run(replace(tiny, seed=3), out=tmp_path / "run", resume=True)

    def test_more_seeds_are_added_to_what_is_there(self, tiny: fk.Study, tmp_path: Path) -> None:
        fk.run(tiny, seeds=2, out=tmp_path / "r")
        records = tmp_path / "r" / "seed-0" / "records.jsonl"
        before = records.read_bytes()
        told: list[int] = []
        more = fk.run(
            tiny, seeds=3, out=tmp_path / "r", resume=True, progress=lambda p: told.append(p.seed)
        )
        assert more.seeds == (0, 1, 2) and told.count(0) == 1 and told.count(2) > 1
        assert records.read_bytes() == before
        whole = fk.run(tiny, seeds=3, out=tmp_path / "w")
        for seed in more.seeds:
            models = [tmp_path / d / f"seed-{seed}" / "model.safetensors" for d in "rw"]
            assert models[0].read_bytes() == models[1].read_bytes()
        ours, theirs = (dict(run.summary) for run in (more, whole))
        assert ours.pop("seconds") and theirs.pop("seconds") and ours == theirs
        assert fk.run(tiny, out=tmp_path / "r", resume=True).seeds == (0, 1, 2)
        with pytest.raises(fk.InputError, match=r"holds a run of seeds \[0, 1, 2\] but \[0\] were"):
            fk.run(tiny, seeds=1, out=tmp_path / "r", resume=True)

    def test_a_run_of_one_seed_alone_takes_no_others(self, tiny: fk.Study, tmp_path: Path) -> None:
        fk.run(tiny, out=tmp_path / "r")
        with pytest.raises(fk.InputError, match="holds a run of seeds"):
            fk.run(tiny, seeds=2, out=tmp_path / "r", resume=True)

    def test_a_run_without_records_may_be_begun_again(self, tiny: fk.Study, tmp_path: Path) -> None:
        out = tmp_path / "run"
        failing = tiny.with_values({"policy.name": "bad.py:choose"})
        (tmp_path / "bad.py").write_text("def choose(situation):\n    raise ValueError\n")
        with pytest.raises(fk.InputError, match="the policy failed in slot 1"):
            fk.run(replace(failing, folder=tmp_path), out=out)
        assert len(fk.run(tiny, out=out).records) == 4

    def test_one_that_crashed_before_it_began_is_begun(
        self, tiny: fk.Study, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"
        fk.run(tiny, out=out)
        shutil.rmtree(out / "checkpoint")
        for file in out.iterdir():
            if file.name not in ("study.toml", ".lock"):
                file.unlink()
        assert len(fk.run(tiny, out=out, resume=True).records) == 4

    def test_a_users_own_files_are_never_replaced(self, tiny: fk.Study, tmp_path: Path) -> None:
        for name in ("study.toml", "rollout.json", "report.html"):
            (tmp_path / name).mkdir()
            own = tmp_path / name / name
            own.write_text("mine")
            for resume in (False, True):
                with pytest.raises(fk.InputError, match="which a run would replace"):
                    fk.run(tiny, out=own.parent, resume=resume)
            assert own.read_text() == "mine"

    @pytest.mark.parametrize("name", ["records.jsonl", "checkpoint/state.safetensors", "run.json"])
    @pytest.mark.parametrize("how", ["flip", "cut", "empty"])
    def test_a_changed_file_is_noticed(
        self, tiny: fk.Study, tmp_path: Path, name: str, how: str
    ) -> None:
        out = tmp_path / "run"
        fk.run(tiny, out=out)
        content = bytearray((out / name).read_bytes())
        if how == "flip":
            content[len(content) // 2] ^= 0x10
        (out / name).write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(how, 9**9)])
        with pytest.raises(fk.InputError) as caught:
            fk.run(tiny, out=out, resume=True)
        assert "\n" not in str(caught.value) and out.name in str(caught.value)

    def test_a_users_python_goes_with_the_run(self, with_policy: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        before = fk.run(with_policy, out=out)
        assert [record["active"] for record in before.records] == [[1], [0], [1], [0]]
        with_policy.with_name("mine.py").write_text(POLICY.replace("% 2", "% 1"))
        with pytest.raises(fk.InputError, match=r"other contents of mine\.py"):
            fk.run(with_policy, out=out, resume=True)
        assert fk.run(study_in(out), out=out, resume=True).records == before.records
        copy = fk.Study.load(out / "study.toml")
        assert copy.folder == out.absolute()

    def test_python_above_the_study_and_data_beside_it_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "numbers.txt").write_text("1")
        (tmp_path / "shared" / "helper.py").write_text("EXTRA = 0\n")
        (tmp_path / "shared" / "p.py").write_text(
            "from pathlib import Path\nfrom helper import EXTRA\n"
            "N = int((Path(__file__).parent / 'numbers.txt').read_text()) + EXTRA\n"
            "def choose(situation):\n    return [N]\n"
        )
        (tmp_path / "mine").mkdir()
        study = fk.Study.paper_default().with_values(
            {**TINY, "policy.name": "../shared/p.py:choose"}
        )
        (tmp_path / "mine" / "s.toml").write_text(study.to_toml())
        run = fk.run(tmp_path / "mine" / "s.toml", out=tmp_path / "out")
        assert all(record["active"] == [1] for record in run.records)
        again = fk.run(study_in(tmp_path / "out"), out=tmp_path / "out", resume=True)
        assert again.records == run.records


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"study": "nowhere.toml"}, "nowhere.toml does not exist"),
        ({"study": 3}, "study is 3"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": []}, "distinct seeds"),
        ({"seeds": [1, 1]}, "distinct seeds"),
        ({"seeds": [-1]}, "seed is -1"),
        ({"seeds": 10**9}, "at most 10000"),
        ({"seeds": 1.5}, "seeds is 1.5"),
        ({"out": ""}, "out is empty"),
    ],
    ids=str,
)
def test_misuse_is_refused(tiny: fk.Study, arguments: dict, says: str) -> None:
    with pytest.raises(fk.InputError, match=says):
        fk.run(**{"study": tiny, **arguments})


def test_numpys_numbers_will_do(tiny: fk.Study) -> None:
    assert fk.run(tiny, seeds=np.int64(2)).seeds == (0, 1)


def test_per_client_noise_and_beliefs_do_not_cost_a_filter_each(tiny: fk.Study) -> None:
    """Clients of one kind share calls of the filter, whatever their numbers are."""
    from fedkoopman.federation.sites import Address, Sites
    from fedkoopman.federation.workers import Workers
    from fedkoopman.runs.experiment import experiment_of

    study = tiny.with_values(
        {"clients.observation_noise": [1.0, 4.0], "clients.dynamics": {"b": [28.0, 27.0]}}
    )
    sites = Sites(experiment_of(study, 0), perfect=False)
    wanted = [Address(1, 0), Address(1, 1)]
    assert len(sites._groups(wanted, sites.lanes)) == 1
    with Workers(1) as pool:
        together = sites.segments(wanted, pool)
        for address in wanted:
            [alone] = sites.segments([address], pool).values()
            assert np.array_equal(alone, together[address])


def test_slots_before_the_first_training_are_not_in_the_tail() -> None:
    study = fk.Study.paper_default().with_values(
        {**TINY, "slots": 6, "policy.segments": 3, "clients.probability": 1}
    )  # three segments: nobody trains before slot 3
    run = fk.run(study)
    assert [bool(record["active"]) for record in run.records[:3]] == [False, False, True]
    trained = [record["E"] for record in run.records[2:]]
    assert run.summary["tail_slots"] == 4
    assert run.summary["E"]["mean"] == pytest.approx(np.mean(trained))


def test_a_run_that_never_trains_is_summed_up_as_it_is() -> None:
    run = fk.run(fk.Study.paper_default().with_values({**TINY, "policy.segments": 100}))
    assert run.summary["tail_slots"] == 4
    assert run.summary["E"]["mean"] == pytest.approx(run.summary["untrained"]["E"])
