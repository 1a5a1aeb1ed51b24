"""A sensor file is read strictly: what it does not understand, it refuses."""

from pathlib import Path

import numpy as np
import pytest

from fedkoopman.config.sensor_file import read_sensor
from fedkoopman.errors import InputError

X = np.array([1.0, 2.0, 3.0])


def sensor_file(folder: Path, text: str) -> Path:
    path = folder / "sensor.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "z"),
    [
        ('kind = "identity"', X),
        ('kind = "linear"\nmatrix = [[0, 0, 2]]\noffset = [0, 0, 1]', [4.0]),
        ('kind = "function"\nfunction = "seen.py:squared"\ndim = 2', [1.0, 4.0]),
    ],
)
def test_a_file_becomes_the_sensor_it_describes(tmp_path: Path, text: str, z: np.ndarray) -> None:
    (tmp_path / "seen.py").write_text("def squared(x):\n    return x[:2] ** 2\n", encoding="utf-8")
    sensor = read_sensor(sensor_file(tmp_path, text)).sensor(3)
    np.testing.assert_allclose(sensor(X), z)


def test_a_random_frame_is_drawn_from_its_seed(tmp_path: Path) -> None:
    text = 'kind = "random-frame"\nseed = 3'
    first = read_sensor(sensor_file(tmp_path, text)).sensor(3)
    again = read_sensor(sensor_file(tmp_path, text)).sensor(3)
    other = read_sensor(sensor_file(tmp_path, text.replace("3", "4"))).sensor(3)
    assert first.dim == 2
    np.testing.assert_array_equal(first(X), again(X))
    assert not np.allclose(first(X), other(X))


def test_everything_else_is_kept(tmp_path: Path) -> None:
    text = """
kind = "identity"
noise = [1, 2, 3]
angles = [0]
columns = ["a", "b", "c"]
initial_mean = [1, 0, 0]
initial_cov = 4
"""
    found = read_sensor(sensor_file(tmp_path, text))
    assert found.columns == ("a", "b", "c")
    np.testing.assert_array_equal(found.noise, [1, 2, 3])
    np.testing.assert_array_equal(found.initial_mean, [1, 0, 0])
    assert found.initial_cov == 4
    assert found.sensor(3).angles == (0,)
    found.check_states(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no kind"),
        ('kind = "linar"', "kind = 'linar': write kind as one of linear, identity"),
        ('kind = "linear"', "has no 'matrix'"),
        (
            'kind = "linear"\nmatrx = [[1]]',
            "'matrx': did you mean 'matrix'",
        ),
        ('kind = "identity"\nmatrix = [[1]]', "'matrix', which kind = 'identity' does not take"),
        ('kind = "linear"\nmatrix = [[1, 0], [1]]', "rows of different lengths"),
        ('kind = "linear"\nmatrix = [1, 0]', "write a list of rows"),
        ('kind = "linear"\nmatrix = [["a"]]', "write numbers"),
        ('kind = "linear"\nmatrix = [[nan]]', "write finite numbers"),
        ('kind = "linear"\nmatrix = [[1, 0]]\nnoise = -1', "noise in sensor.toml is not positive"),
        (
            'kind = "linear"\nmatrix = [[1, 0]]\nnoise = [1, 1]',
            r"noise .* has shape \(2,\)",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0], [0, 1]]\nnoise = [[1, 2], [2, 1]]',
            "noise in sensor.toml is not positive semi-definite",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0]]\ncolumns = ["a", "b"]',
            "names 2 columns but",
        ),
        ('kind = "linear"\nmatrix = [[1, 0]]\nangles = [1]', "write indices from 0 to 0"),
        ('kind = "identity"\nangles = 1', "write a list"),
        ('kind = "identity"\nangles = [-1]', "integer of at least 0"),
        ('kind = "identity"\ncolumns = [1]', "write text in quotes"),
        ('kind = "random-frame"', "has no 'seed'"),
        ('kind = "random-frame"\nseed = 1.5', "write an integer"),
        ('kind = "function"\nfunction = "seen.py:h"', "has no 'dim'"),
        ('kind = "identity', "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_sensor(sensor_file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "linear"\nmatrix = [[1, 0]]', "has 2 columns but the system has 3 states"),
        (
            'kind = "linear"\nmatrix = [[1, 0, 0]]\noffset = [1]',
            "offset .* has 1 numbers",
        ),
        ('kind = "identity"\nnoise = [1, 2]', "noise in sensor.toml has shape"),
        ('kind = "identity"\ninitial_mean = [0]', "initial_mean in sensor.toml has 1 numbers"),
        ('kind = "identity"\ninitial_cov = -1', "initial_cov in sensor.toml is not positive"),
        ('kind = "function"\ndim = 1\nfunction = "seen"', "write file.py:name"),
        ('kind = "function"\ndim = 1\nfunction = "none.py:h"', "there is no file"),
        ('kind = "function"\ndim = 1\nfunction = "seen.py:g"', "defines no 'g'"),
        (
            'kind = "function"\ndim = 1\nfunction = "seen.py:number"',
            r"seen.py:number in .* is an int \(.*\), but a plain function",
        ),
        ('kind = "function"\ndim = 1\nfunction = "broken.py:h"', "failed with ZeroDivisionError"),
    ],
)
def test_a_sensor_that_does_not_fit_the_system_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "seen.py").write_text("number = 1\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    found = read_sensor(sensor_file(tmp_path, text))
    with pytest.raises(InputError, match=message):
        found.sensor(3)
        found.check_states(3)
