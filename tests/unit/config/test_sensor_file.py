"""A sensor file is the part of a site file that it stands for, and is read as strictly."""

from pathlib import Path

import numpy as np
import pytest

from fedkoopman.config.parts import sensor_for
from fedkoopman.config.sensor_file import in_flat_words, read_sensor
from fedkoopman.config.site_file import SiteFile
from fedkoopman.errors import InputError
from fedkoopman.sensors import LinearSensor, Sensor

X = np.array([1.0, 2.0, 3.0])


def read(folder: Path, text: str) -> SiteFile:
    """The site that a sensor file stands for, beside a file of observations."""
    path = folder / "sensor.toml"
    path.write_text(text, encoding="utf-8")
    (folder / "z.csv").write_text("a,b,c\n1,2,3\n", encoding="utf-8")
    return read_sensor(path, folder / "z.csv")


def built(folder: Path, text: str) -> Sensor:
    return sensor_for(read(folder, text), 3)


@pytest.mark.parametrize(
    ("text", "z"),
    [
        ('kind = "identity"', X),
        ('kind = "linear"\nmatrix = [[0, 0, 2]]\noffset = [0, 0, 1]', [4.0]),
        ('kind = "function"\nfunction = "seen.py:squared"\nobserved = 2', [1.0, 4.0]),
        ('kind = "function"\nfunction = "seen.py:squared"\ndim = 2', [1.0, 4.0]),
    ],
)
def test_a_file_becomes_the_sensor_it_describes(tmp_path: Path, text: str, z: np.ndarray) -> None:
    (tmp_path / "seen.py").write_text("def squared(x):\n    return x[:2] ** 2\n", encoding="utf-8")
    sensor = built(tmp_path, text)
    np.testing.assert_allclose(sensor(X), z)


def test_a_random_frame_is_drawn_from_its_seed(tmp_path: Path) -> None:
    text = 'kind = "random-frame"\nseed = 3'
    first, again = built(tmp_path, text), built(tmp_path, text)
    other = built(tmp_path, text.replace("3", "4"))
    assert first.dim == 2
    assert built(tmp_path, text + "\ndim = 1").dim == 1
    assert built(tmp_path, text + "\nobserved = 1").dim == 1
    expected = LinearSensor.random_frame(3, seed=3)
    np.testing.assert_array_equal(first(X), expected(X))
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
    found = read(tmp_path, text)
    assert found.data.columns == ("a", "b", "c")
    assert found.noise.observation == {"diagonal": (1, 2, 3)}
    assert found.initial.mean == (1, 0, 0)
    assert found.initial.cov == 4
    assert sensor_for(found, 3).angles == (0,)
    assert found.files() == (tmp_path / "z.csv",)
    found.check_states(["x1", "x2", "x3"])


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("0.5", 0.5),
        ("[1, 2]", {"diagonal": (1, 2)}),
        ("{ diagonal = [1, 2] }", {"diagonal": (1, 2)}),
        ("[[1, 0], [0, 2]]", {"matrix": ((1, 0), (0, 2))}),
        ("{ matrix = [[1, 0], [0, 2]] }", {"matrix": ((1, 0), (0, 2))}),
        ('"auto"', "auto"),
    ],
)
def test_noise_has_the_forms_of_a_site_file(tmp_path: Path, given: str, form: object) -> None:
    text = 'kind = "linear"\nmatrix = [[1, 0, 0], [0, 1, 0]]\n'
    assert read(tmp_path, f"{text}noise = {given}").noise.observation == form
    assert read(tmp_path, text).noise.observation == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no kind"),
        ('kind = "linar"', r"sensor.toml: kind is 'linar': did you mean 'linear'\?"),
        ('kind = "linear"', 'of kind "linear" has no matrix'),
        (
            'kind = "linear"\nmatrx = [[1]]',
            "'matrx': did you mean 'matrix'",
        ),
        ('kind = "identity"\nmatrix = [[1]]', 'unknown key in sensor of kind "identity" .matrix.'),
        (
            'kind = "linear"\nmatrix = [[1, 0], [1]]',
            "matrix is .*: give a list of rows of numbers, all of one length",
        ),
        ('kind = "linear"\nmatrix = [1, 0]', r"matrix\[0\] is 1: give a list of numbers"),
        ('kind = "linear"\nmatrix = [["a"]]', r"matrix\[0\]\[0\] is 'a': give a finite number"),
        ('kind = "linear"\nmatrix = [[nan]]', r"matrix\[0\]\[0\] is nan: give a finite number"),
        (
            'kind = "linear"\nmatrix = [[1, 0]]\nnoise = -1',
            "sensor.toml: noise is -1: give .* a variance >= 0",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0]]\nnoise = [1, 1]',
            r"noise.diagonal has 2 numbers but the sensor observes 1 component",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0], [0, 1]]\nnoise = [[1, 2], [2, 1]]',
            r"sensor.toml: noise.matrix .* is not positive semi-definite",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0]]\ncolumns = ["a", "b"]',
            "matrix has 1 row but columns names 2 components",
        ),
        ('kind = "linear"\nmatrix = [[1, 0]]\nangles = [1]', "give indices from 0 to 0"),
        ('kind = "identity"\nangles = 1', "angles is 1: give a list"),
        ('kind = "identity"\nangles = [-1]', "whole number >= 0"),
        ('kind = "identity"\ncolumns = [1]', r"columns\[0\] is 1: give text"),
        (
            'kind = "random-frame"',
            "kind is 'random-frame', which is drawn at random: give its seed",
        ),
        ('kind = "random-frame"\nseed = 1.5', "seed is 1.5: give a whole number"),
        ('kind = "function"\nfunction = "seen.py:h"', 'of kind "function" has no observed'),
        ('kind = "identity', "is not valid TOML"),
        (
            'kind = "identity"\ninitial_cov = -1',
            'initial_cov is -1: give "auto" or a variance >= 0',
        ),
        ('kind = "function"\nobserved = 1\nfunction = "seen"', 'give "file.py:function"'),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'kind = "linear"\nmatrix = [[1, 0]]',
            "matrix has rows of 2 numbers but the system has 3 states",
        ),
        (
            'kind = "linear"\nmatrix = [[1, 0, 0]]\noffset = [1]',
            "offset has 1 numbers",
        ),
        (
            'kind = "identity"\nnoise = [1, 2]',
            "noise.diagonal has 2 numbers but the identity sensor observes 3",
        ),
        ('kind = "identity"\ninitial_mean = [0]', "sensor.toml: initial_mean has 1 numbers"),
        ('kind = "identity"\ninitial_cov = [1]', "initial_cov.diagonal has 1 numbers"),
        ('kind = "function"\ndim = 1\nfunction = "none.py:h"', "there is no file"),
        ('kind = "function"\ndim = 1\nfunction = "seen.py:g"', "defines no 'g'"),
        (
            'kind = "function"\ndim = 1\nfunction = "seen.py:number"',
            r"is an int \(.*\), but a plain function",
        ),
        ('kind = "function"\ndim = 1\nfunction = "broken.py:h"', "failed with ZeroDivisionError"),
    ],
)
def test_a_sensor_that_does_not_fit_the_system_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "seen.py").write_text("number = 1\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    found = read(tmp_path, text)
    with pytest.raises(InputError, match=message), in_flat_words():
        found.check_states(["x1", "x2", "x3"])
        sensor_for(found, 3)
