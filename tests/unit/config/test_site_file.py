"""A site file is read strictly, written with its meaning, and checked against sensor and system."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.config.site_file import SiteFile
from fedkoopman.errors import InputError

CONTENT = """
name = "lab-a"
[data]
files = "data/*.csv"
columns = ["angle"]
segment = "segment"
time = "time"
off_grid = "refuse"
scale = [0.0174533]
shift = [0.0]
inputs = []
held_out = 0.2
longest = 10000
[sensor]
kind = "linear"
matrix = [[1, 0]]
[noise]
observation = 0.01
process = 1e-4
[initial]
mean = [0.0, 0.0]
cov = 1.0
[bounds]
theta = [-20.0, 20.0]
"""
LEAST = 'name = "lab"\n[data]\nfiles = "z.csv"\n[sensor]\nkind = "identity"\n'


def site_file(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    site = SiteFile.load(site_file(tmp_path, CONTENT))
    assert site.name == "lab-a"
    assert site.data.files == ("data/*.csv",)
    assert (site.data.columns, site.data.segment, site.data.time) == (("angle",), "segment", "time")
    assert (site.data.scale, site.data.shift) == ((0.0174533,), (0.0,))
    assert (site.data.held_out, site.data.longest) == (0.2, 10000)
    assert site.sensor == {"kind": "linear", "matrix": ((1.0, 0.0),)}
    assert (site.noise.observation, site.noise.process) == (0.01, 1e-4)
    assert (site.initial.mean, site.initial.cov) == ((0.0, 0.0), 1.0)
    assert site.bounds == {"theta": (-20.0, 20.0)}
    assert site.folder == tmp_path
    site.check_states(["theta", "omega"])


def test_what_is_left_out_takes_its_default(tmp_path: Path) -> None:
    site = SiteFile.load(site_file(tmp_path, LEAST))
    assert (site.data.columns, site.data.segment, site.data.time) == ((), "auto", "auto")
    assert (site.data.scale, site.data.shift, site.data.off_grid) == (1.0, 0.0, "refuse")
    assert (site.noise.observation, site.noise.process) == ("auto", "auto")
    assert (site.initial.mean, site.initial.cov, site.bounds) == ("auto", "auto", {})
    site.check_states(["a", "b", "c"])


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("[1, 2]", {"diagonal": (1.0, 2.0)}),
        ("[[1, 0], [0, 2]]", {"matrix": ((1.0, 0.0), (0.0, 2.0))}),
    ],
)
def test_a_bare_list_is_a_covariance(tmp_path: Path, given: str, form: dict[str, Any]) -> None:
    text = LEAST + f"[noise]\nobservation = {given}\nprocess = {given}\n[initial]\ncov = {given}\n"
    site = SiteFile.load(site_file(tmp_path, text))
    assert site.noise.observation == site.noise.process == site.initial.cov == form


def test_a_drawn_sensor_has_its_seed(tmp_path: Path) -> None:
    text = LEAST.replace('"identity"', '"random-frame"\nseed = 3')
    assert SiteFile.load(site_file(tmp_path, text)).sensor == {"kind": "random-frame", "seed": 3}


@pytest.mark.parametrize("comments", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        CONTENT,
        LEAST,
        LEAST + '[bounds]\n"my state" = [-inf, 1]\n[noise]\nprocess = { diagonal = [1, 2] }\n',
        LEAST.replace('"z.csv"', '["a.csv", "b.csv"]\nheld_out = ["run 1", "run 2"]'),
    ],
)
def test_what_is_written_reads_back(text: str, comments: bool) -> None:
    site = SiteFile.from_dict(tomllib.loads(text))
    assert SiteFile.from_dict(tomllib.loads(site.to_toml(comments))) == site
    assert SiteFile.from_dict(site.to_dict()) == site


def test_every_key_is_explained(tmp_path: Path) -> None:
    lines = SiteFile.load(site_file(tmp_path, CONTENT)).to_toml().splitlines()
    inside = ""
    for before, line in zip(["", *lines], lines, strict=False):
        assert len(line) <= 100
        inside = line if line.startswith("[") else inside
        free = inside in ("[sensor]", "[bounds]") and not line.startswith("[")
        if line and not line.startswith("#") and not free:
            assert before.startswith("#"), line
    assert "# Samples; longer segments are cut" in "\n".join(lines)


def bad(text: str, *says: str) -> Any:
    return pytest.param(text, says, id=says[0][:40])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        bad("", "name is missing"),
        bad('nam = "a"', "unknown key 'nam': did you mean 'name'?"),
        bad(LEAST.replace('"lab"', '""'), "name is ''"),
        bad(LEAST.replace('"lab"', '"a/b"'), "name is 'a/b'", "slash"),
        bad(LEAST.replace('"lab"', '"a\\\\b"'), r"name is 'a\\b'"),
        bad(LEAST.replace('"lab"', '".."'), "name is '..'"),
        bad(LEAST.replace('"lab"', "5"), "name is 5"),
        bad('name = "a"', "data.files is missing"),
        bad('name = "a"\n[data]\nfile = "x"', "'data.file': did you mean 'data.files'?"),
        bad('name = "a"\ndata = 5\n[sensor]\nkind = "identity"', "data is 5", "[data]"),
        bad('name = "a"\n[data]\nfiles = "x"', "sensor is missing", "[sensor]"),
        bad(LEAST.replace('"z.csv"', "[]"), "data.files is []"),
        bad(LEAST.replace('"z.csv"', "5"), "data.files is 5"),
        bad(LEAST.replace('"z.csv"', '["a", "a"]'), "data.files names 'a' twice"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\nsegments = "s"'), "did you mean 'data.segment'?"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\noff_grid = "resampel"'), "did you mean 'resample'"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\ncolumns = "a"'), "data.columns is 'a'"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\ncolumns = ["a", ""]'), "data.columns[1] is ''"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\ntime = 5'), "data.time is 5", "column's name"),
        bad(
            LEAST.replace('"z.csv"', '"z.csv"\ncolumns = ["a"]\ntime = "a"'),
            "data.time names 'a', which data.columns names too",
        ),
        bad(
            LEAST.replace('"z.csv"', '"z.csv"\ncolumns = ["a"]\nscale = [1, 2]'),
            "data.scale has 2 numbers but data.columns names 1 component:",
        ),
        bad(
            LEAST.replace('"z.csv"', '"z.csv"\ncolumns = ["a", "b"]\nshift = [1]'),
            "data.shift has 1 numbers but data.columns names 2 components:",
        ),
        bad(LEAST.replace('"z.csv"', '"z.csv"\nscale = 0'), "data.scale is 0"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\nshift = 1e200'), "data.shift is 1e+200"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\nheld_out = 1.0'), "data.held_out is 1.0", "0.9"),
        bad(LEAST.replace('"z.csv"', '"z.csv"\nlongest = 1'), "data.longest is 1"),
        bad(LEAST.replace('"identity"', '"linar"'), "did you mean 'linear'?"),
        bad(LEAST.replace('"identity"', '"random-frame"'), "sensor.kind is 'random-frame'"),
        bad(LEAST.replace("kind = ", "kin = "), "sensor has no kind"),
        bad(LEAST.replace('"identity"', '"linear"\nmatrx = [[1]]'), "'matrx': did you mean 'mat"),
        bad(LEAST.replace('"identity"', '"linear"'), 'sensor of kind "linear" has no matrix'),
        bad(
            LEAST.replace('"identity"', '"linear"\nmatrix = [[1]]\nangles = [1]'),
            "sensor.angles is [1] but the sensor observes 1 component",
        ),
        bad(
            CONTENT.replace("[[1, 0]]", "[[1, 0], [0, 1]]"),
            "sensor.matrix has 2 rows but data.columns names 1 component:",
        ),
        bad(
            LEAST.replace('"identity"', '"linear"\nmatrix = [[1]]').replace(
                '"z.csv"', '"z.csv"\ncolumns = ["a", "b"]'
            ),
            "sensor.matrix has 1 row but data.columns names 2 components",
        ),
        bad(
            LEAST.replace('"identity"', '"function"\nfunction = "h.py:h"\ndim = 3').replace(
                '"z.csv"', '"z.csv"\ncolumns = ["a", "b"]'
            ),
            "sensor.dim is 3 but data.columns names 2 components",
        ),
        bad(
            LEAST.replace('"identity"', '"function"\nfunction = "h.py:h"\nobserved = 3').replace(
                '"z.csv"', '"z.csv"\ncolumns = ["a", "b"]'
            ),
            "sensor.observed is 3 but data.columns names 2 components",
        ),
        bad(
            LEAST.replace('"identity"', '"function"\nfunction = "h.py:h"\nobserved = 3\ndim = 3'),
            "sensor has both observed and dim: keep observed",
        ),
        bad(
            LEAST.replace('"identity"', '"function"\nfunction = "h.py:h"'),
            'sensor of kind "function" has no observed',
        ),
        bad(LEAST + "[noise]\nobservation = -1", "noise.observation is -1", '"auto" or'),
        bad(
            CONTENT.replace("observation = 0.01", "observation = { diagonal = [1, 2] }"),
            "noise.observation.diagonal has 2 numbers but data.columns names 1 component",
        ),
        bad(
            CONTENT.replace("observation = 0.01", "observation = [1, 2]"),
            "noise.observation.diagonal has 2 numbers but data.columns names 1 component",
        ),
        bad(LEAST + "[noise]\nobservation = [1, -2]", "noise.observation.diagonal[1] is -2"),
        bad(LEAST + "[noise]\nobservation = []", "noise.observation is []", "list of variances"),
        bad(LEAST + "[initial]\nmean = []", "initial.mean is []"),
        bad(LEAST + "[bounds]\ntheta = 5", "bounds.theta is 5", "[lowest, highest]"),
        bad(LEAST + "[bounds]\ntheta = [1, -1]", "bounds.theta is [1, -1]"),
        bad(LEAST + "[bounds]\ntheta = [nan, 1]", "bounds.theta is [nan, 1]"),
        bad("name = ", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    tmp_path: Path, text: str, says: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as raised:
        SiteFile.load(site_file(tmp_path, text))
    message = str(raised.value)
    assert "site.toml" in message
    assert "\n" not in message
    for words in says:
        assert words in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        bad(CONTENT.replace("matrix = [[1, 0]]", "matrix = [[1]]"), "sensor.matrix has rows of 1"),
        bad(CONTENT.replace("mean = [0.0, 0.0]", "mean = [0.0]"), "initial.mean has 1 numbers"),
        bad(CONTENT.replace("cov = 1.0", "cov = { diagonal = [1] }"), "initial.cov.diagonal has 1"),
        bad(CONTENT.replace("1e-4", "{ matrix = [[1]] }"), "noise.process.matrix has 1 rows"),
        bad(CONTENT.replace("theta", "thet"), "unknown state in bounds 'thet'", "'theta'"),
        bad(
            LEAST.replace('"z.csv"', '"z.csv"\nscale = [1.0]'),
            "data.scale has 1 numbers but the identity sensor observes 2",
        ),
    ],
)
def test_what_does_not_fit_the_system_is_refused(
    tmp_path: Path, text: str, says: tuple[str, ...]
) -> None:
    site = SiteFile.load(site_file(tmp_path, text))
    with pytest.raises(InputError) as raised:
        site.check_states(["theta", "omega"])
    for words in ("site.toml", *says):
        assert words in str(raised.value)


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"the site file .* (does not exist|is a directory)"):
        SiteFile.load(tmp_path / name)


def with_files(folder: Path, files: str) -> SiteFile:
    return SiteFile.load(site_file(folder, LEAST.replace('"z.csv"', files)))


def test_files_come_pattern_by_pattern_each_once(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep.csv").mkdir(parents=True)
    for name in ("b.csv", "a.csv", "deep.csv/c.csv", "d.npy"):
        (tmp_path / "data" / name).write_text("z\n1\n", encoding="utf-8")
    found = with_files(tmp_path, '["data/d.npy", "data/*.csv", "data/**/*.csv"]').files()
    names = [path.relative_to(tmp_path / "data").as_posix() for path in found]
    assert names == ["d.npy", "a.csv", "b.csv", "deep.csv/c.csv"]


def test_links_do_not_make_two_files_of_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("z\n1\n", encoding="utf-8")
    (tmp_path / "data" / "b.csv").symlink_to("a.csv")
    (tmp_path / "data" / "loop").symlink_to(".")
    found = with_files(tmp_path, '["data/**/*.csv", "data/../data/a.csv"]').files()
    assert [path.name for path in found] == ["a.csv"]


def test_a_path_below_the_working_directory_is_shown_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    site = with_files(tmp_path / "lab", '"*.csv"')
    with pytest.raises(InputError, match=r"^lab/site\.toml: data\.files names '\*\.csv'"):
        site.files()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ('"*.csv"', "data.files names '.*csv', which matches no file"),
        ('["z.npy", "none.csv"]', "names 'none.csv', which matches no file"),
        ('"folder"', "folder is a directory: name the files in it"),
        ('"notes.txt"', "notes.txt ends in '.txt', which names no format"),
        ('"empty.npy"', "empty.npy is empty"),
        ('"broken.csv"', "matches no file|there is no file"),
    ],
)
def test_what_is_no_file_of_data_is_refused(tmp_path: Path, files: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "z.npy").write_text("z", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("z", encoding="utf-8")
    (tmp_path / "empty.npy").touch()
    if files == '"broken.csv"':
        (tmp_path / "broken.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(InputError, match=message):
        with_files(tmp_path, files).files()


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "z.csv").write_text("z\n1\n", encoding="utf-8")
    site = with_files(tmp_path, '"z.csv"')

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InputError, match=r"cannot read .*z\.csv: Permission denied"):
        site.files()


def test_reading_and_writing_needs_neither_jax_nor_numpy(tmp_path: Path) -> None:
    path = site_file(tmp_path, CONTENT)
    code = "import sys; from fedkoopman.config.site_file import SiteFile; "
    code += "SiteFile.load(sys.argv[1]).to_toml(); print({'jax', 'numpy'} & {*sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"
