"""Studies on measured states: reading the files, running, resuming."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.io

import fedkoopman as fk
from fedkoopman.config.recordings import recordings_of
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.run_directory import study_in

STEPS = 12
TINY = {
    "system.name": "van-der-pol",
    "slots": 3,
    "segments.steps": STEPS,
    "clients.count": 2,
    "clients.probability": 1.0,
    "clients.sensor": {"kind": "identity"},
    "policy.segments": 1.0,
    "training.epochs": 1,
    "evaluation.trajectories": 2,
    "evaluation.horizon": 2,
    "recordings.train": ["a.csv", "b.npy"],
    "recordings.test": ["test.csv"],
}


def csv(states: np.ndarray, header: str = "x1,x2") -> str:
    return "\n".join([header, *(",".join(map(repr, row)) for row in states.tolist())]) + "\n"


@pytest.fixture(scope="module")
def measured() -> np.ndarray:
    return fk.simulate(fk.systems.VanDerPol(), steps=99, seed=1)


@pytest.fixture
def files(tmp_path: Path, measured: np.ndarray) -> Path:
    (tmp_path / "a.csv").write_text(csv(measured))
    np.save(tmp_path / "b.npy", measured[:40][::-1])
    (tmp_path / "test.csv").write_text(csv(measured[: 2 * STEPS + 1]))
    return tmp_path


def study(folder: Path, **changes: object) -> fk.Study:
    return fk.Study.from_dict({}, folder).with_values({**TINY, **changes})


class TestReading:
    def test_states_are_read_exactly(self, files: Path, measured: np.ndarray) -> None:
        given = study(files, **{"recordings.windows": "consecutive"})
        given.check()
        found = recordings_of(given, fk.systems.VanDerPol())
        assert found is not None and found.consecutive
        np.testing.assert_array_equal(found.train[0], measured)
        np.testing.assert_array_equal(found.train[1], measured[:40][::-1])
        np.testing.assert_array_equal(found.test[0], measured[: 2 * STEPS + 1])

    def test_without_recordings_there_are_none(self) -> None:
        assert recordings_of(fk.Study.paper_default(), fk.systems.Lorenz63()) is None
        assert experiment_of(fk.Study.paper_default(), 0).recordings is None

    def test_a_changed_file_is_read_again(self, files: Path, measured: np.ndarray) -> None:
        system = fk.systems.VanDerPol()
        before = recordings_of(study(files), system)
        np.save(files / "b.npy", measured[:50])
        after = recordings_of(study(files), system)
        assert before is not None and after is not None
        assert (len(before.train[1]), len(after.train[1])) == (40, 50)

    @pytest.mark.parametrize("suffix", ["parquet", "mat", "npz"])
    def test_every_format_of_sites_will_do(
        self, files: Path, measured: np.ndarray, suffix: str
    ) -> None:
        columns = {"x1": measured[:40, 0], "x2": measured[:40, 1]}
        path = files / f"other.{suffix}"
        if suffix == "parquet":
            pa_parquet.write_table(pa.table(columns), path)
        elif suffix == "mat":
            scipy.io.savemat(path, columns)
        else:
            np.savez(path, **columns)  # type: ignore[arg-type]
        given = study(files, **{"recordings.train": ["a.csv", path.name]})
        found = recordings_of(given, fk.systems.VanDerPol())
        assert found is not None
        np.testing.assert_array_equal(found.train[1], measured[:40])

    def test_spaces_byte_order_mark_and_blank_last_lines_do_no_harm(self, files: Path) -> None:
        text = "\ufeffx1, x2\r\n" + "1.5, 2\r\n" * 30 + "\r\n\r\n"
        (files / "a.csv").write_bytes(text.encode())
        found = recordings_of(study(files), fk.systems.VanDerPol())
        assert found is not None
        np.testing.assert_array_equal(found.train[0], [[1.5, 2.0]] * 30)

    def test_the_toml_is_read_back(self, files: Path) -> None:
        given = study(files)
        (files / "study.toml").write_text(given.to_toml())
        assert fk.Study.load(files / "study.toml") == given


ROWS = "1,2\n" * 30
BAD_TEXT = {
    "": "is empty: it needs a row of states",
    "\ufeff": "begins with a blank line: its first line names the columns",
    "x1,x2\n": "has no rows",
    "\n" + ROWS: "begins with a blank line: its first line names the columns",
    ROWS: r"begins with numbers \(1, 2\): add a first line that names the columns",
    "x2,x1\n" + ROWS: "begins with 'x2,x1' but the states are x1,x2",
    "x1,x2,x3\n" + ROWS: "begins with 'x1,x2,x3' but",
    "x1,x2\n" + ROWS + "1,2,3\n": r"line 32 of .*a\.csv has 3 cells but the first line names 2",
    "x1,x2\n1\n" + ROWS: r"line 2 of .*a\.csv has 1 cells but the first line names 2",
    "x1,x2\n" + ROWS + "1,nan\n": r"row 31 of .*a\.csv \(line 32\) holds nan .* give a finite",
    "x1,x2\n-inf,1\n" + ROWS: r"row 1 of .*a\.csv \(line 2\) holds -inf",
    "x1,x2\n1,\n" + ROWS: r"row 1 of .*a\.csv \(line 2\) holds nan",
    "x1,x2\n1,two\n" + ROWS: r"line 2 of .*a\.csv holds 'two'",
    "x1,x2\n1,1_0\n" + ROWS: r"line 2 of .*a\.csv holds '1_0'",
    "x1,x2\n1,2\n\n" + ROWS: r"line 3 of .*a\.csv is blank",
    "x1,x2\n1,2\n": r"a\.csv has 1 rows, fewer than segments\.steps = 12: .* at most 1 steps",
}


class TestErrors:
    @pytest.mark.parametrize("text", BAD_TEXT)
    def test_of_text(self, files: Path, text: str) -> None:
        (files / "a.csv").write_text(text)
        self.check(study(files), r"recordings\.train\[0\]: .*" + BAD_TEXT[text])

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (np.zeros(30), "has 1 columns: give one trajectory with 2 columns, x1,x2"),
            (np.zeros((30, 3)), "has 3 columns: give one trajectory with 2"),
            (np.zeros((0, 2)), "has no rows"),
            (np.zeros((2, 30, 2)), "has several segments: give one trajectory"),
            (np.full((30, 2), "a"), "holds <U1, not numbers"),
            (np.zeros((30, 2), complex), "holds complex128, not numbers"),
            (np.array([[1.0, 2.0]] * 6 + [[3.0, np.nan]] * 24), "row 7 of .* column 2, x2"),
        ],
        ids=str,
    )
    def test_of_arrays(self, files: Path, content: np.ndarray, says: str) -> None:
        np.save(files / "b.npy", content)
        self.check(study(files), r"recordings\.train\[1\]: .*" + says)

    @pytest.mark.parametrize("content", [b"", b"nonsense", "zip", "object", "cut"])
    def test_of_files_that_are_no_arrays(self, files: Path, content: bytes | str) -> None:
        path = files / "b.npy"
        if content == "zip":
            np.savez(files / "b.npz", np.zeros((30, 2)))
            (files / "b.npz").rename(path)
        elif content == "object":
            np.save(path, np.array([{"a": 1}]), allow_pickle=True)
        elif content == "cut":
            path.write_bytes(path.read_bytes()[:-8])
        else:
            assert isinstance(content, bytes)
            path.write_bytes(content)
        self.check(
            study(files),
            r"recordings\.train\[1\]: .*b\.npy (is empty|is not a NumPy file|holds Python)",
        )

    def test_of_bytes_that_are_no_text(self, files: Path) -> None:
        (files / "a.csv").write_bytes(b"x1,x2\n\xff\xfe,2\n")
        self.check(study(files), r"a\.csv is not a text file in UTF-8")

    def test_of_missing_files(self, files: Path) -> None:
        (files / "test.csv").unlink()
        self.check(
            study(files), r"recordings\.test\[0\]: .*test\.csv does not exist: give the path"
        )
        (files / "test.csv").mkdir()
        self.check(study(files), r"recordings\.test\[0\]: .*test\.csv is a directory")

    def test_of_too_few_test_trajectories(self, files: Path) -> None:
        wanted = study(files, **{"evaluation.trajectories": 3})
        self.check(wanted, r"recordings\.test holds 2 trajectories .* give at most 2, or more data")
        (files / "test.csv").write_text("x1,x2\n" + "1,2\n" * STEPS)
        self.check(study(files), r"holds 0 trajectories of .* give at least 13 rows")

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ({"recordings.test": []}, "recordings.test is empty but recordings.train is not"),
            ({"recordings.train": []}, "recordings.train is empty but recordings.test is not"),
            ({"segments.restart": 2}, r"segments\.restart is 2 but the states are recorded"),
            ({"recordings.train": "a.csv"}, r"train is 'a\.csv': give a list of files that end in"),
            ({"recordings.train": [3]}, r"recordings\.train\[0\] is 3: give text"),
            ({"recordings.train": ["a.txt"]}, r"recordings\.train\[0\] is 'a\.txt': give a file"),
            ({"recordings.windows": "all"}, 'give "random" or "consecutive"'),
            ({"recordings.trian": []}, "did you mean 'recordings.train'"),
        ],
        ids=str,
    )
    def test_of_values_are_told_without_the_files(self, values: dict, says: str) -> None:
        with pytest.raises(fk.InputError, match=says):
            study(Path("nowhere"), **values)

    @staticmethod
    def check(given: fk.Study, says: str) -> None:
        with pytest.raises(fk.InputError, match=says) as caught:
            given.check()
        assert "\n" not in str(caught.value)


class TestRunning:
    @pytest.mark.parametrize("windows", ["random", "consecutive"])
    def test_a_run_learns_from_them(self, files: Path, windows: str) -> None:
        given = study(files, **{"recordings.windows": windows})
        found = fk.run(given)
        assert [record["active"] for record in found.records] == [[0, 1]] * 3
        assert all(np.isfinite(record["l3"]) for record in found.records)
        assert found.records != fk.run(study(files, seed=1)).records

    def test_models_are_scored_on_the_test_recording(self, files: Path) -> None:
        from fedkoopman.evaluation import TestSet, evaluate

        states = np.loadtxt(files / "test.csv", delimiter=",", skiprows=1)
        test = TestSet(np.stack([states[: STEPS + 1], states[STEPS:]]), 2, 0.4)
        found = fk.run(study(files))
        experiment = experiment_of(study(files), 0)
        from fedkoopman.federation.simulation import first_state

        before = evaluate(
            experiment.architecture,
            experiment.architecture.from_named(first_state(experiment).arrays),
            test,
        )
        assert found.summary["untrained"]["l3"] == pytest.approx(before.l3, rel=1e-6)

    def test_simulated_studies_do_not_change(self, files: Path) -> None:
        """The truth of a study without recordings is what it was before there were any."""
        from fedkoopman.federation.sites import held_out
        from fedkoopman.federation.streams import subseed

        given = study(files, **{"recordings": {"train": [], "test": []}})
        trajectories = held_out(experiment_of(given, 4))[0].trajectories
        expected = fk.simulate(fk.systems.VanDerPol(), STEPS, seed=subseed(4, "test"), batch=2)
        np.testing.assert_array_equal(trajectories, expected)

    def test_resuming_ends_with_the_same_model(self, files: Path, tmp_path: Path) -> None:
        given = study(files, slots=6)
        whole = fk.run(given)
        out = tmp_path / "run"

        def stop(event: object) -> None:
            if event.slot == 3:  # type: ignore[attr-defined]
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fk.run(given, out=out, progress=stop)
        again = fk.run(study_in(out), out=out, resume=True)
        for name in ("l1", "l2", "l3", "E"):
            assert [r[name] for r in again.records] == [r[name] for r in whole.records]

    def test_other_contents_are_refused_and_nothing_is_copied(
        self, files: Path, tmp_path: Path, measured: np.ndarray
    ) -> None:
        out = tmp_path / "run"
        fk.run(study(files), out=out, seeds=1)
        names = {path.name for path in out.rglob("*")}
        assert not names & {"a.csv", "b.npy", "test.csv"}
        assert set(json.loads((out / "run.json").read_text())["files"]) == {
            "a.csv", "b.npy", "test.csv",
        }  # fmt: skip
        for name in ("a.csv", "test.csv"):
            before = (files / name).read_text()
            (files / name).write_text(before.replace(repr(float(measured[3, 0])), "0.5"))
            with pytest.raises(fk.InputError, match=r"run with other contents of a\.csv, b\.npy"):
                fk.run(study(files), out=out, seeds=1, resume=True)
            with pytest.raises(fk.InputError, match=r"not all of a\.csv, .* are as they were"):
                study_in(out)
            (files / name).write_text(before)
        fk.run(study(files), out=out, seeds=1, resume=True)

    def test_a_run_may_move_together_with_its_recordings(self, files: Path, tmp_path: Path) -> None:
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        for name in ("a.csv", "b.npy", "test.csv"):
            shutil.move(files / name, old / name)
        before = fk.run(study(old), out=old / "run", seeds=1)
        old.rename(new)
        after = fk.run(study(new), out=new / "run", seeds=1, resume=True)
        assert after.records == before.records
