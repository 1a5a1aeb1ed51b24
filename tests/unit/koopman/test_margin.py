"""How far beyond the training states a model goes on computing: `margin`."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import InputError


def cubic(x):
    return 0.9 * x - 0.1 * x**3


@pytest.fixture(scope="module")
def pairs():
    """Two states each, between −1 and 1."""
    first = np.linspace(-1, 1, 60)
    return [np.array([[x], [cubic(x)]]) for x in first]


def test_beyond_the_range_a_map_goes_on_as_far_as_the_margin(pairs):
    # The range is told in quarters of a standard deviation, so it ends somewhat beyond 1.
    narrow, wide = (fk.EDMD(3, margin=m).fit(pairs) for m in (0.0, 1.0))
    low, high = narrow.range_.ravel()
    assert low == pytest.approx(-high) and 1 <= high < 1.2
    np.testing.assert_allclose(wide.range_, 2 * narrow.range_)
    beyond = 1.8
    assert wide.simulate([beyond], 1)[0, 0] == pytest.approx(cubic(beyond), abs=1e-9)
    assert narrow.simulate([beyond], 1)[0, 0] == pytest.approx(cubic(high), abs=1e-9)


@pytest.mark.parametrize("kind", ["edmd", "spectral"])
def test_a_file_keeps_the_range_and_the_margin(pairs, kind, tmp_path):
    options = {} if kind == "edmd" else {"learned": False, "horizon": 1, "features": 4}
    options |= {"n_components": 5} if kind == "spectral" else {}
    for margin in (None, 0.7):
        model = fk.DeepKoopman(kind=kind, margin=margin, **options).fit(pairs)
        # A model with the usual margin has the file that it had before there was a choice.
        assert ("margin" in model.architecture_.settings()) == (margin is not None)
        model.save(tmp_path / "model.safetensors")
        again = fk.load_model(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.range_, model.range_)
        assert again.margin == (margin or 0.1)


def test_a_margin_below_zero_is_refused(pairs):
    with pytest.raises(InputError, match=r"margin is -1: it must be at least 0"):
        fk.EDMD(margin=-1).fit(pairs)
