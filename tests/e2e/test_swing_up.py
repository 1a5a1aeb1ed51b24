"""The example swing-up: three laboratories' shared model swings a pendulum up, none alone can."""

import sys
from pathlib import Path

import pytest

import fedkoopman as fk
from fedkoopman.config.study import Study

FOLDER = Path(__file__).parents[2] / "examples" / "swing-up"
LABS = ("lab-low", "lab-side", "lab-top")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example's own functions, and its study with recordings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import record
        import swing_up

        folder = tmp_path_factory.mktemp("swing-up")
        record.main(folder)
        yield swing_up, folder / "study.toml"
        for name in ("record", "swing_up", "pendulum"):
            sys.modules.pop(name, None)


def test_the_shared_model_swings_up_from_rest(example):
    swing_up, file = example
    model = fk.run(Study.load(file)).model
    assert model.input_names_ == ("torque",)
    loop = fk.control.closed_loop(
        swing_up.SYSTEM, swing_up.controller(model), [0.0, 0.0], swing_up.STEPS, seen=swing_up.seen
    )
    assert swing_up.stands(loop.states)
    assert abs(loop.inputs).max() <= swing_up.STRONGEST < 9.8


@pytest.mark.slow
def test_from_fifty_starts_together_and_hardly_ever_alone(example):
    swing_up, file = example
    shared = swing_up.successes(fk.run(Study.load(file)).model, 50)
    assert shared >= 48
    for lab in LABS:
        values = {"sites.files": [f"{lab}/site.toml"], "clients.count": 1}
        alone = swing_up.successes(fk.run(Study.load(file, values)).model, 20)
        assert alone <= 10, lab
