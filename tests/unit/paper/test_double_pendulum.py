"""The measured double pendulum: reading it, its velocities, and what its figure says."""

import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.paper import double_pendulum_arms as arms
from fedkoopman.paper import double_pendulum_data as data
from fedkoopman.paper import double_pendulum_motion as motion
from fedkoopman.paper import fig_double_pendulum as item
from fedkoopman.paper.arms import Arm
from fedkoopman.paper.items import Options

MEASURED = os.environ.get("FEDKOOPMAN_DOUBLE_PENDULUM")
ROWS = 6201


def text(angles: np.ndarray, interval: float = 0.002) -> str:
    out = io.StringIO()
    np.savetxt(out, np.stack([np.arange(len(angles)) * interval, angles], axis=1), delimiter=",")
    return out.getvalue()


def angle(trial: int, link: int) -> np.ndarray:
    """Degrees, every file its own: at rest, lifted from 2 to 4 s, held up, and free after 5 s."""
    time = np.arange(ROWS) * 0.002
    up = 180 * np.sin(np.pi / 4 * np.clip(time - 2, 0, 2)) ** 2
    since = np.maximum(time - 5 - 0.02 * trial, 0)
    return up + 40 * np.sin((2 + trial + link) * since) + 10 * link * since


FILES = {
    f"Trial{trial}/DPmean_data_RB{link}.csv": text(angle(trial, link))
    for trial in (1, 2, 3)
    for link in (0, 1)
}


def in_folder(path: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path


def in_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_folder(tmp_path_factory.mktemp("pendulum"), FILES)


class TestVelocities:
    def test_are_exact_for_a_quadratic_away_from_the_ends(self) -> None:
        """The central difference of a t² + b t + c is its derivative 2 a t + b."""
        time = np.arange(1000) * 0.002
        found = data.velocities(3 * time**2 - 7 * time + 1)
        np.testing.assert_allclose(found[200:-200], (6 * time - 7)[200:-200], atol=1e-9)

    def test_are_one_sided_at_the_ends(self) -> None:
        time = np.arange(1000) * 0.002
        angles = time**2
        found = data.velocities(angles)
        assert found[0] == pytest.approx((angles[200] - angles[0]) / 0.4)
        assert found[50] == pytest.approx((angles[250] - angles[0]) / 0.5)
        assert found[-1] == pytest.approx((angles[-1] - angles[-201]) / 0.4)

    def test_states_are_in_radians_upper_link_first(self) -> None:
        time = np.arange(1000) * 0.002
        states = data.states_of(90 * time, -180 * time + 360)
        expected = [np.pi / 2 * time, np.pi / 2 + 0 * time, (2 - time) * np.pi, -np.pi + 0 * time]
        np.testing.assert_allclose(states, np.stack(expected, axis=1), atol=1e-9)


class TestReading:
    @pytest.mark.parametrize("prefix", ["", "Video_Tracking_Data/", "a/b/c/", "../../", "a\\b\\"])
    def test_a_zip_gives_what_a_folder_gives(
        self, folder: Path, tmp_path: Path, prefix: str
    ) -> None:
        clutter = {
            f"__MACOSX/{prefix}Trial1/._DPmean_data_RB0.csv": "not this",
            "Trial1/raw.mov": "nor this",
            "Trial4/DPmean_data_RB0.csv": "nor that",
        }
        files = {prefix + name: content for name, content in FILES.items()}
        found = data.read_trials(in_zip(tmp_path / "Data.ZIP", files | clutter))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["Data.ZIP"]
        for mine, theirs in zip(found, data.read_trials(folder), strict=True):
            np.testing.assert_array_equal(mine, theirs)

    def test_every_trial_and_link_is_its_own(self, folder: Path) -> None:
        for trial, states in enumerate(data.read_trials(folder), start=1):
            for link in (0, 1):
                expected = np.radians(angle(trial, link))
                np.testing.assert_allclose(states[:, 2 * link], expected, atol=1e-12)

    def test_folders_may_be_nested(self, folder: Path, tmp_path: Path) -> None:
        files = {f"data/{n.replace('/', '/tracked/')}": content for n, content in FILES.items()}
        found = data.read_trials(in_folder(tmp_path, files))
        np.testing.assert_array_equal(found[2], data.read_trials(folder)[2])

    @pytest.mark.skipif(
        MEASURED is None or not Path(MEASURED).is_dir(),
        reason="FEDKOOPMAN_DOUBLE_PENDULUM names no folder (a zip is read the same way)",
    )
    def test_the_authors_data(self) -> None:
        """By an independent reading, at some samples and both ends."""
        trials = data.read_trials(Path(str(MEASURED)))
        assert [states.shape for states in trials] == [(38827, 4)] * 3
        files = Path(str(MEASURED)).rglob("DPmean_data_RB1.csv")
        [third] = [path for path in files if "Trial3" in str(path)]
        raw = np.genfromtxt(third, delimiter=",")[:, 1] * np.pi / 180
        for k in (0, 57, 1000, 3000, 38700, 38826):
            i, j = max(0, k - 200), min(k + 200, 38826)
            velocity = (raw[j] - raw[i]) / (0.002 * (j - i))
            np.testing.assert_allclose(trials[2][k, 2:], [raw[k], velocity], rtol=1e-12)


BROKEN = {
    "a missing file": ({"Trial2/DPmean_data_RB1.csv": None}, "holds no Trial2/DPmean_data_RB1.csv"),
    "a second one": ({"copy/Trial2/DPmean_data_RB1.csv": "1,2"}, "holds 2 files Trial2/DPmean"),
    "three columns": ({"Trial1/DPmean_data_RB0.csv": "0,1,2\n"}, "line 1 .* has 3 cells instead"),
    "text": ({"Trial1/DPmean_data_RB0.csv": "time,angle\n0,0\n"}, "line 1 .* holds 'time'"),
    "NaN": ({"Trial3/DPmean_data_RB1.csv": "0,0\n0.002,nan\n"}, "line 2 .* holds 'nan'"),
    "an empty file": ({"Trial3/DPmean_data_RB1.csv": ""}, "has 0 rows instead of 38827"),
    "too few rows": (
        {"Trial1/DPmean_data_RB0.csv": text(np.zeros(6200))},
        "has 6200 rows instead of 38827, and at least 6201 are needed",
    ),
    "other lengths": (
        {"Trial1/DPmean_data_RB0.csv": text(np.zeros(6300))},
        "trial 1 .* has 6300 rows of the upper link and 6201 of the lower",
    ),
    "another interval": (
        {"Trial1/DPmean_data_RB0.csv": text(np.zeros(ROWS), 0.004)},
        "lines 1 and 2 .* are 0.004 s apart instead of 0.002",
    ),
}


class TestErrors:
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("what", BROKEN)
    def test_of_contents(self, tmp_path: Path, what: str, packed: bool) -> None:
        changes, says = BROKEN[what]
        files = {n: c for n, c in (FILES | changes).items() if c is not None}
        path = in_zip(tmp_path / "d.zip", files) if packed else in_folder(tmp_path / "d", files)
        self.check(path, says)

    def test_of_paths(self, tmp_path: Path) -> None:
        self.check(tmp_path / "nowhere", "there is no .*nowhere")
        self.check(tmp_path, "holds no Trial1/DPmean_data_RB0.csv")
        (tmp_path / "text.zip").write_text("no archive")
        self.check(tmp_path / "text.zip", "is no zip archive, or not whole")

    def test_of_damaged_archives(self, tmp_path: Path) -> None:
        whole = in_zip(tmp_path / "d.zip", FILES).read_bytes()
        (tmp_path / "d.zip").write_bytes(whole[: len(whole) // 2])
        self.check(tmp_path / "d.zip", "is no zip archive, or not whole")
        changed = bytearray(whole)
        changed[200] ^= 0xFF
        (tmp_path / "d.zip").write_bytes(changed)
        self.check(tmp_path / "d.zip", r"(not whole|cannot read)")

    def test_of_files_beyond_measure(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(data, "LARGEST", 1000)
        self.check(folder, "is larger than 1000 bytes")
        self.check(in_zip(tmp_path / "d.zip", FILES), "is larger than 1000 bytes")

    @staticmethod
    def check(path: Path, says: str) -> None:
        with pytest.raises(fk.InputError, match=says) as caught:
            data.read_trials(path)
        told = str(caught.value)
        assert "\n" not in told
        assert "10.17632/7yd2ntbh3w" in told and "Trial1, Trial2 and Trial3" in told


class TestStudies:
    def test_are_the_papers(self, tmp_path: Path) -> None:
        studies = {arm.label: arm.study for arm in item.arms(Options(tmp_path))}
        random = studies["random windows"]
        assert (random.slots, random.segments.steps, random.training.epochs) == (50, 100, 25)
        assert random.trajectories == "per-client" and random.scheme == "kf-fedkl"
        assert random.network == fk.Study.paper_default().network
        assert random.clients.sensor == {"kind": "perturbed-identity"}
        assert random.clients.observation_noise == {"diagonal": (0.01, 1.0, 0.01, 1.0)}
        assert len({study.name for study in studies.values()}) == len(studies)
        windows = {label: study.recordings.windows for label, study in studies.items()}
        assert windows["consecutive windows"] == "consecutive"

    @pytest.mark.parametrize("label", [arms.FREE, arms.FREE_MATCHED, arms.ALL, arms.EXCLUDED])
    def test_other_samples_are_all_that_differs_from_the_papers(
        self, tmp_path: Path, label: str
    ) -> None:
        studies = {arm.label: arm.study for arm in item.arms(Options(tmp_path))}
        papers, mine = studies["random windows"], studies[label]
        assert mine.recordings.train != papers.recordings.train
        same = mine.recordings.test == papers.recordings.test
        assert same == (label in (arms.ALL, arms.EXCLUDED))
        assert replace(mine, recordings=papers.recordings, name=papers.name) == papers

    def test_slices_are_the_samples_and_are_read_back_exactly(
        self, folder: Path, tmp_path: Path
    ) -> None:
        options = Options(tmp_path / "runs", data=folder)
        trials = data.read_trials(folder)
        item._write(tmp_path / "runs" / item.FOLDER, item.slices(trials))
        for arm in item.arms(options):
            arm.study.check()
        from fedkoopman.config.recordings import recordings_of

        studies = {arm.label: arm.study for arm in item.arms(options)}

        def read(label: str) -> tuple[np.ndarray, ...]:
            found = recordings_of(studies[label], fk.systems.DoublePendulum())
            assert found is not None and found.test_count(100) == 20
            return (*found.train, *found.test)

        released = motion.releases(trials)
        ends = (6000, 6000, released[2] + 2000)
        places = zip(trials, released, ends, strict=True)
        free = [(states, slice(first, last + 1)) for states, first, last in places]
        tested = trials[2][1000:3001]
        expected = {
            arms.RANDOM: [trials[0][1000:6001], trials[1][1000:6001], tested],
            arms.FREE: [states[part] for states, part in free],
            arms.FREE_MATCHED: [motion.matched(states)[part] for states, part in free],
            arms.ALL: [trials[0], trials[1], tested],
            arms.EXCLUDED: [trials[0][6001:], trials[1][6001:], tested],
        }
        for label, states in expected.items():
            for mine, theirs in zip(read(label), states, strict=True):
                np.testing.assert_array_equal(mine, theirs)

    def test_samples_in_the_range_of_the_test_are_counted(self) -> None:
        """Angles alone count, and both must be in range."""
        test = np.array([[0, 9, 0, 9], [1, -9, 2, 9.0]])
        mine = np.array([[0.5, 99, 1, -99], [0.5, 0, 3, 0], [2, 0, 1, 0], [1, 0, 2, 0]])
        files = {f"trial-{k}{end}.csv": mine for k in (1, 2) for end in ("", "-after")}
        files |= {"trial-3.csv": test, "trial-2-after.csv": mine[1:2]}
        assert arms.inside(files) == {"papers": 0.5, "after": 0.25}

    def test_the_data_is_part_of_the_settings(self, folder: Path, tmp_path: Path) -> None:
        options = Options(tmp_path / "runs", data=folder)
        turned = angle(2, 1)
        turned[2600:6000] += np.linspace(0, 1, 3400)
        changed = {**FILES, "Trial2/DPmean_data_RB1.csv": text(turned)}
        other = replace(options, data=in_zip(tmp_path / "d.zip", changed))
        mine, theirs = item.ITEM.settings(options), item.ITEM.settings(other)
        assert mine["studies"] == theirs["studies"]
        differ = {name for name in mine["data"] if mine["data"][name] != theirs["data"][name]}
        assert "trial-2.csv" in differ and not any("trial-1" in name for name in differ)
        made = [item.slices(data.read_trials(o.data)) for o in (options, other)]
        item._write(options.runs / item.FOLDER, made[0])
        with pytest.raises(fk.InputError, match=r"trial-2.*\.csv was made from other data"):
            item._write(options.runs / item.FOLDER, made[1])

    def test_samples_outside_the_slices_are_part_of_the_settings(
        self, folder: Path, tmp_path: Path
    ) -> None:
        early = angle(3, 1)
        early[500:700] += 5
        changed = {**FILES, "Trial3/DPmean_data_RB1.csv": text(early)}
        options = Options(tmp_path / "runs", data=folder)
        other = replace(options, data=in_folder(tmp_path / "d", changed))
        mine, theirs = item.ITEM.settings(options), item.ITEM.settings(other)
        assert mine["data"] == theirs["data"] and mine["motion"] != theirs["motion"]

    def test_a_pendulum_that_nobody_lets_go_is_refused(self, tmp_path: Path) -> None:
        files = {name: text(np.zeros(ROWS)) for name in FILES}
        options = Options(tmp_path / "runs", data=in_folder(tmp_path / "d", files))
        with pytest.raises(fk.InputError, match=r"trial 1 should be lifted.*authors' angles"):
            item.ITEM.settings(options)

    def test_without_data_nothing_can_be_computed(self, tmp_path: Path) -> None:
        assert item.ITEM.slots(Options(tmp_path, seeds=2)) == 2 * 50 * len(arms.ARMS)
        with pytest.raises(fk.InputError, match=r"needs --data PATH: .*Mendeley"):
            item.ITEM.settings(Options(tmp_path))


def test_runs_have_limits_and_both_parts_beside_them(folder: Path, tmp_path: Path) -> None:
    """With two of the settings."""
    wanted = (arms.RANDOM, arms.FREE)

    def two(options: Options) -> tuple[Arm, ...]:
        return tuple(arm for arm in item.arms(options) if arm.label in wanted)

    few = replace(item.ITEM, arms=two)
    options = Options(tmp_path / "runs", seeds=2, fast=True, data=folder)
    told: list[Any] = []
    found = few.compute(options, told.append)
    assert few.compute(options, lambda _: None) == found
    papers, free = found["arms"]
    assert "limits" in papers and "limits" in free and "measured data" in told
    assert [trial["release"] for trial in papers["motion"]] == pytest.approx(
        [2510, 2520, 2530], abs=5
    )
    assert "parts" not in free  # its test has no samples before the release
    assert {name: part["windows"] for name, part in papers["parts"].items()} == {
        "before the release": 15, "after the release": 4,
    }  # fmt: skip
    assert all(len(part["models"]["l3"]) == 2 for part in papers["parts"].values())


@pytest.mark.slow
def test_the_item_runs_and_goes_on(folder: Path, tmp_path: Path) -> None:
    options = Options(tmp_path / "runs", seeds=2, fast=True, data=folder)
    found = item.ITEM.compute(options, lambda _: None)
    assert item.ITEM.compute(options, lambda _: None) == found
    assert len(item.ITEM.findings(json.loads(json.dumps(found))).claims) == 26
