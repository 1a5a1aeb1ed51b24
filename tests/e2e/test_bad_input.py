"""A user's mistake: one line with cause, value and remedy, exit code 2, no output left behind."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

GOOD = ["z.csv", "--system", "lorenz63", "--sensor", "sensor.toml", "--out", "states.csv"]
LINEAR = 'kind = "linear"\nmatrix = [[1, 0, 0], [0, 1, 0]]\n'


class Case(NamedTuple):
    """What differs from the good call, and what the message says of it."""

    says: tuple[str, ...]
    data: str | None = None
    sensor: str | None = None
    more: tuple[str, ...] = ()
    instead: dict[str, str] = {}  # noqa: RUF012 - a constant


CASES = {
    # wrong shapes
    "ragged-csv": Case(("line 3", "1 cells", "2 columns"), data="z1,z2\n1,2\n3\n"),
    "too-few-columns": Case(("matrix has 2 rows", "z.csv has 1 component:"), data="z1\n1\n2\n"),
    "too-many-columns": Case(
        ("matrix has 2 rows", "z.csv has 3 components"), data="a,b,c\n1,2,3\n"
    ),
    "matrix-rows-differ": Case(
        ("sensor.toml: matrix is", "all of one length"),
        sensor='kind = "linear"\nmatrix = [[1, 0, 0], [0, 1]]\n',
    ),
    "process-noise-shape": Case(("process_noise", "(2,)"), more=("--process-noise", "1,2")),
    "initial-mean-shape": Case(
        ("initial_mean", "2 numbers", "3 states"), sensor=LINEAR + "initial_mean = [0, 0]\n"
    ),
    # noise that is no covariance
    "negative-noise": Case(("sensor.toml: noise is -1", ">= 0"), sensor=LINEAR + "noise = -1\n"),
    "indefinite-noise": Case(
        ("sensor.toml: noise", "positive semi-definite", "-1"),
        sensor=LINEAR + "noise = [[1, 2], [2, 1]]\n",
    ),
    "asymmetric-noise": Case(
        ("sensor.toml: noise", "not symmetric"), sensor=LINEAR + "noise = [[1, 0], [1, 1]]\n"
    ),
    "negative-process-noise": Case(("process_noise", "positive"), more=("--process-noise=-2",)),
    "text-process-noise": Case(("--process-noise", "'much'"), more=("--process-noise", "much")),
    # the estimator
    "alpha-zero": Case(("alpha is 0",), more=("--alpha", "0")),
    "alpha-negative": Case(("alpha is -1",), more=("--alpha=-1",)),
    "kappa": Case(("kappa is -3", "3 components"), more=("--kappa=-3",)),
    "unknown-method": Case(("'ukff'", "did you mean 'ukf'"), more=("--method", "ukff")),
    "no-particles": Case(("'--particles'", "0 is below 2"), more=("--particles", "0")),
    "text-alpha": Case(("'--alpha'", "'wide' is not a number"), more=("--alpha", "wide")),
    "fractional-seed": Case(("'--seed'", "'1.5' is not a whole"), more=("--seed", "1.5")),
    "dt-zero": Case(("--dt is 0",), more=("--dt", "0")),
    # a sensor that does not fit
    "sensor-dimension": Case(
        ("sensor.toml: matrix has rows of 2 numbers", "3 states"),
        sensor='kind = "linear"\nmatrix = [[1, 0], [0, 1]]\n',
    ),
    "sensor-identity": Case(
        ("z.csv has 2 observed components", "observes 3"), sensor='kind = "identity"\n'
    ),
    "sensor-function": Case(
        ("none.py",), sensor='kind = "function"\nfunction = "none.py:h"\ndim = 2\n'
    ),
    "unknown-key": Case(("'nois'", "did you mean 'noise'"), sensor=LINEAR + "nois = 1\n"),
    "malformed-toml": Case(("sensor.toml is not valid TOML", "line 1"), sensor="kind = linear\n"),
    "missing-sensor": Case(("no sensor file no.toml",), instead={"sensor.toml": "no.toml"}),
    # the data
    "empty-file": Case(("z.csv is empty",), data=""),
    "header-only": Case(("z.csv has no rows",), data="z1,z2\n"),
    "no-header": Case(("begins with numbers", "names the columns"), data="1,2\n3,4\n"),
    "text-cell": Case(("line 3", "'high'", "column 'z2'"), data="z1,z2\n1,2\n3,high\n"),
    "infinite-cell": Case(("inf", "row 1", "line 2"), data="z1,z2\ninf,2\n3,4\n"),
    "unknown-column": Case(("'z3'", "z1, z2"), more=("--columns", "z1,z3")),
    "unknown-column-in-sensor": Case(("'q2'",), sensor=LINEAR + 'columns = ["z1", "q2"]\n'),
    "segments-interleaved": Case(
        ("segment 'a' comes back in row 3", "sort the rows by segment"),
        data="segment,z1,z2\na,1,2\nb,1,2\na,1,2\n",
    ),
    "unknown-segment": Case(("'trial'",), more=("--segment-column", "trial")),
    "unknown-time": Case(("'clock'",), more=("--time-column", "clock")),
    "missing-file": Case(("there is no file no.csv",), instead={"z.csv": "no.csv"}),
    "unknown-suffix": Case(("z.xlsx", "'.xlsx'", ".parquet"), instead={"z.csv": "z.xlsx"}),
    # the system
    "unknown-system": Case(
        ("'lorenz-63'", "did you mean 'lorenz63'"), instead={"lorenz63": "lorenz-63"}
    ),
    "unknown-parameter": Case(("'rho'", "a, b, c"), more=("--set-parameter", "rho=28")),
    "text-parameter": Case(("'b=large'",), more=("--set-parameter", "b=large")),
    "system-file": Case(("no.py",), instead={"lorenz63": "no.py:system"}),
    # the output
    "out-suffix": Case(("'.txt'", ".csv"), instead={"states.csv": "states.txt"}),
    "out-no-directory": Case(
        ("no directory", "create it"), instead={"states.csv": "no/states.csv"}
    ),
    "out-is-input": Case(("z.csv is given twice",), instead={"states.csv": "z.csv"}),
    "plot-suffix": Case(("'.bmp'", ".png"), more=("--plot", "states.bmp")),
    # the command line itself
    "unknown-option": Case(("--sensors",), more=("--sensors", "x")),
    "missing-option": Case(("--system",), instead={"--system": "--seed", "lorenz63": "1"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_is_one_line(site, case: Case) -> None:
    if case.data is not None:
        (site.folder / "z.csv").write_text(case.data, encoding="utf-8")
    if case.sensor is not None:
        (site.folder / "sensor.toml").write_text(case.sensor, encoding="utf-8")
    before = {name: (site.folder / name).read_bytes() for name in site.files()}
    arguments = [case.instead.get(word, word) for word in GOOD]

    outcome = site.run("estimate", *arguments, *case.more)

    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1 and outcome.err.endswith("\n")
    for words in case.says:
        assert words in outcome.err
    assert {name: (site.folder / name).read_bytes() for name in site.files()} == before


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3, 4, 2)), np.zeros((0, 2)), np.zeros((5, 3)), np.array([["a", "b"]])],
    ids=["four-axes", "no-rows", "too-wide", "text"],
)
def test_bad_arrays_are_one_line(site, array: np.ndarray) -> None:
    np.save("z.npy", array)
    outcome = site.run("estimate", "z.npy", *GOOD[1:])
    assert outcome.code == 2
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert site.files() == {"z.csv", "sensor.toml", "z.npy"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["estimte"], "Did you mean 'estimate'"),
        (["reproduce"], "table-estimators"),
        (["reproduce", "table-estimator"], "did you mean 'table-estimators'"),
        (["reproduce", "table-estimators", "--out", "z.csv"], "z.csv is a file"),
        (["reproduce", "table-estimators", "--out", "no/where"], "no directory no"),
        (["reproduce", "table-estimators", "--trajectories", "0"], "0 is below 2"),
    ],
)
def test_bad_commands_are_one_line(site, arguments: list[str], says: str) -> None:
    outcome = site.run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert says in outcome.err


@pytest.mark.parametrize("name", ["text-cell", "indefinite-noise", "alpha-zero"])
def test_as_a_process_of_its_own(site, name: str) -> None:
    case = CASES[name]
    for file, text in (("z.csv", case.data), ("sensor.toml", case.sensor)):
        if text is not None:
            (site.folder / file).write_text(text, encoding="utf-8")
    outcome = site.run_alone("estimate", *GOOD, *case.more)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    assert site.files() == {"z.csv", "sensor.toml"}


def test_a_users_broken_sensor_function_is_one_line(site) -> None:
    Path("seen.py").write_text("def h(x):\n    return x[:5].reshape(5)\n", encoding="utf-8")
    Path("sensor.toml").write_text(
        'kind = "function"\nfunction = "seen.py:h"\ndim = 2\n', encoding="utf-8"
    )
    outcome = site.run("estimate", *GOOD)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
