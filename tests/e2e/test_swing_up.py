"""The recordings of the example swing-up; `test_examples.py` has what is learned from them."""

import io
import itertools
import sys

import numpy as np
import pytest
from reference.examples import files_of, write_example

import fedkoopman as fk
from fedkoopman.config.swing_up_recordings import PLACES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `fedkoopman init --example swing-up` writes."""
    found = tmp_path_factory.mktemp("example") / "swing-up"
    write_example(found, "swing-up")
    return found


@pytest.fixture(scope="module")
def swing_up(folder):
    """The example's own functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import swing_up

        yield swing_up
        for name in ("swing_up", "pendulum"):
            sys.modules.pop(name, None)


def recording(lab):
    content = files_of("swing-up")[f"{lab}/data.csv"]
    return np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)


@pytest.mark.parametrize("lab", PLACES)
def test_a_laboratory_sees_its_own_range_only(lab):
    segment, cosine, sine, _, torque = recording(lab).T
    apart, (least, most, _) = np.abs(np.arctan2(sine, cosine)), PLACES[lab]
    assert apart.min() > least - 0.01 and apart.max() < most + 0.01
    assert np.ptp(apart) > 0.8 * (most - least) and len(set(segment)) > 50
    assert 4 < np.abs(torque).max() <= 5


def test_the_recordings_obey_the_equation(swing_up):
    """The true system of the example, by another integrator, goes on as the next row says."""
    rows = recording("lab-side")[:40]
    for now, after in itertools.pairwise(rows):
        if now[0] == after[0]:
            start = [np.arctan2(now[2], now[1]), now[3]]
            x = fk.simulate(swing_up.SYSTEM, 1, initial=start, inputs=after[4:5][None])
            np.testing.assert_allclose(swing_up.seen(x[-1]), after[1:4], atol=0.01)
