"""Pictures show the numbers that they are given: lines, bands and cells are read back from axes."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import fedkoopman as fk

mpl.use("Agg")
from matplotlib import pyplot as plt

DT, RATE, TURNS = 0.1, -0.3, 0.7
"""A damped rotation: eigenvalues exp((RATE ± 2πi TURNS) DT)."""


@pytest.fixture(autouse=True)
def no_figure_is_left():
    yield
    plt.close("all")


def rotation(steps: int = 60) -> np.ndarray:
    t = DT * np.arange(steps)[:, None]
    turn = 2 * np.pi * TURNS * t
    return np.exp(RATE * t) * np.hstack([np.cos(turn), np.sin(turn)])


@pytest.fixture(scope="module")
def model() -> fk.DMD:
    table = pd.DataFrame(rotation(), columns=["a", "b"]).assign(time=DT * np.arange(60))
    return fk.DMD().fit(table)


def record(slot: int, seed: int, e: float, active: list[int]) -> dict:
    return {"slot": slot, "E": e, "l1": e, "l2": e, "l3": e, "arrived": [0, 1], "active": active}


def made_run(study: fk.Study | None = None) -> fk.Run:
    """Seeds with E = 10^−slot and three times that; the second has a slot less than the four."""
    records = {
        0: [record(m, 0, 10.0**-m, [m % 2]) for m in range(1, 5)],
        1: [record(m, 1, 3 * 10.0**-m, []) for m in range(1, 4)],
    }
    study = study or fk.Study.paper_default(slots=4, clients={"count": 3})
    return fk.Run(study, (0, 1), (), records, {})


def line(axes, label: str) -> np.ndarray:
    [found] = [one for one in axes.lines if one.get_label() == label]
    return np.asarray(found.get_xydata())


def test_the_spectrum_of_a_known_rotation(model: fk.DMD) -> None:
    axes = fk.plot.spectrum(model)
    points = line(axes, "fades") @ [1, 1j]
    known = np.exp((RATE + 2j * np.pi * TURNS) * DT)
    assert np.abs(points - known).min() < 1e-9 and np.abs(points - known.conj()).min() < 1e-9
    plane = fk.plot.spectrum(model, continuous=True, time_unit="s")
    points = np.vstack([one.get_xydata() for one in plane.lines if one.get_label() == "fades"])
    assert np.abs(points - [RATE, TURNS]).sum(axis=1).min() < 1e-7
    assert plane.get_ylabel() == "frequency [Hz]" and plane.get_xlabel() == "growth rate [1/s]"
    grown = fk.plot.spectrum(np.array([0.5, 1.2]))
    assert line(grown, "grows").tolist() == [[1.2, 0.0]]


def test_modes_are_relative_to_the_one_that_moves_a_state_most(model: fk.DMD) -> None:
    axes = fk.plot.modes(np.array([[2.0, 1j], [0.0, -4.0]]), names=["a", "b"])
    assert np.asarray(axes.images[0].get_array()).tolist() == [[1.0, 0.0], [0.5, 1.0]]
    words = [text.get_text() for text in fk.plot.modes(model, time_unit="s").get_yticklabels()]
    half_life = np.log(2) / -RATE
    assert f"{TURNS:.3g} Hz, halves in {half_life:.3g} s" in words


def test_a_forecast_is_drawn_where_the_closed_form_is(model: fk.DMD) -> None:
    past, ahead = rotation(40), rotation(60)[40:]
    axes = fk.plot.forecast(model, past, n_steps=20, truth=ahead)
    assert [one.get_ylabel() for one in axes] == ["a", "b"]
    for i, panel in enumerate(axes):
        drawn = line(panel, "forecast")
        np.testing.assert_allclose(drawn[:, 0], DT * np.arange(1, 21))
        np.testing.assert_allclose(drawn[:, 1], ahead[:, i], atol=1e-6)
        np.testing.assert_allclose(line(panel, "what came"), drawn, atol=1e-6)
        before = line(panel, "so far")
        assert before[-1].tolist() == [0.0, past[-1, i]]
    one = fk.plot.forecast(model.forecast(past, 5), states="b")
    assert one.get_ylabel() == "b" and len(line(one, "forecast")) == 5
    with pytest.raises(fk.InputError, match="X is missing"):
        model.plot("forecast")


def test_estimates_have_bands_of_two_standard_deviations() -> None:
    system = fk.systems.Pendulum(dt=0.05)
    x = fk.simulate(system, steps=30, seed=1)
    z = fk.observe(fk.LinearSensor([[1.0, 0.0]]), x[1:], noise=0.01, seed=0)
    found = fk.estimate(system, fk.LinearSensor([[1.0, 0.0]]), z, process_noise=1e-4)
    observed = np.column_stack([z, np.full(len(z), np.nan)])
    axes = found.plot(truth=x, observed=observed)
    assert [panel.get_ylabel() for panel in axes] == ["theta [rad]", "omega [rad/s]"]
    assert axes[-1].get_xlabel() == "time [s]"
    for i, panel in enumerate(axes):
        np.testing.assert_allclose(line(panel, "estimate")[:, 1], found.mean[:, i])
        np.testing.assert_allclose(line(panel, "truth")[:, 1], x[1:, i])
        edge = panel.collections[0].get_paths()[0].vertices
        widest = (found.mean + 2 * found.std)[:, i].max()
        assert edge[:, 1].max() == pytest.approx(widest)
    assert len(line(axes[0], "observed")) == 30
    assert not [one for one in axes[1].lines if one.get_label() == "observed"]
    figure, ax = plt.subplots()
    assert found.plot(ax=ax) is ax and {"theta", "omega"} <= {one.get_label() for one in ax.lines}
    with pytest.raises(fk.InputError, match="ax has 3 axes for 2 panels"):
        found.plot(ax=figure.subplots(3))


def test_learning_curves_are_means_and_spreads_over_the_seeds_that_are_there() -> None:
    run = made_run()
    by_slot = run.to_frame().groupby("slot")["E"]  # pandas, which leaves out what is missing
    for given in (run, run.to_frame(), {"": run}):
        axes = fk.plot.learning_curves(given, "E")
        [curve] = axes.lines
        np.testing.assert_allclose(curve.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_allclose(curve.get_ydata(), by_slot.mean())
        top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx(by_slot.mean()[1] + by_slot.std()[1])
        assert axes.get_yscale() == "log" and axes.get_xlabel() == "time slot"
    several = fk.plot.learning_curves({"mine": run, "yours": run})
    assert [one.get_label() for one in several.lines] == ["mine", "yours"]
    values = np.array([[1.0, np.nan, 2.0], [1.0, 1.0, 4.0]])
    drawn = fk.plot.learning_curves(values).lines[0].get_ydata()
    assert drawn[0] == 1 and np.isnan(drawn[1]) and drawn[2] == 3
    with pytest.raises(fk.InputError, match="records have no 'EE'"):
        run.plot(metrics="EE")


def test_the_raster_shows_who_trained() -> None:
    axes = made_run().plot("raster")
    mesh = axes.collections[0]
    code = np.asarray(mesh.get_array()).reshape(3, 4)
    assert (code[2] == 0).all()  # the third client never had data
    assert [[int(n) for n in np.flatnonzero(code[:, m] == 3)] for m in range(4)] == [[1], [0]] * 2
    assert [one.get_text() for one in axes.get_yticklabels()] == [f"client {n}" for n in range(3)]
    long = [record(m, 0, 1.0, [m % 2]) for m in range(1, 1001)]
    counted = fk.plot.raster(long).collections[0].get_array()
    assert np.asarray(counted).sum() == 1000
    with pytest.raises(fk.InputError, match="seed is 7: the run has 0, 1"):
        fk.plot.raster(made_run(), seed=7)


def test_the_phase_plane_of_a_table_with_segments(model: fk.DMD) -> None:
    table = pd.DataFrame(
        {"segment": ["x"] * 30 + ["y"] * 30, "a": rotation()[:, 0], "b": rotation()[:, 1]}
    )
    axes = fk.plot.phase_plane(table, states=("b", "a"), model=model)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("b", "a")
    first = line(axes, "states")
    np.testing.assert_allclose(first, rotation()[:30, ::-1])
    np.testing.assert_allclose(line(axes, "model"), first, atol=1e-6)
    with pytest.raises(fk.InputError, match="state 'c'"):
        fk.plot.phase_plane(table, states=("a", "c"))


def test_axes_of_the_callers_own_are_used_and_no_figure_is_made(model: fk.DMD) -> None:
    figure, axes = plt.subplots(2, 2)
    before = plt.get_fignums()
    assert fk.plot.learning_curves(made_run(), ax=axes[0, 0]) is axes[0, 0]
    assert fk.plot.raster(made_run(), ax=axes[0, 1]) is axes[0, 1]
    assert model.plot(ax=axes[1, 0]) is axes[1, 0]
    assert fk.plot.phase_plane(rotation(), ax=axes[1, 1]) is axes[1, 1]
    assert plt.get_fignums() == before
    figure.savefig("/dev/null", format="png")
    with pytest.raises(fk.InputError, match="ax is 3: give matplotlib axes"):
        model.plot(ax=3)
    with pytest.raises(fk.InputError, match="unknown plot"):
        model.plot("spectrums")


HOSTILE = "<script>alert('x')</script> $\\frac{1}{$ \" & " + "long " * 500


def test_hostile_names_are_inert() -> None:
    study = fk.Study.paper_default(slots=4, name="".join(HOSTILE.split("\n")))
    run = made_run(study)
    html = run._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and len(html) < 4000
    axes = fk.plot.learning_curves([run, run], "E")
    fk.plot.raster(run, names=[HOSTILE] * 5)
    table = pd.DataFrame(rotation(), columns=[HOSTILE[:60], "b"])
    fk.plot.forecast(fk.DMD(dt=DT).fit(table), table, 5)
    fitted = fk.DMD().fit(table)
    assert "<script" not in fitted._repr_html_() and len(fitted._repr_html_()) < 6000
    for number in plt.get_fignums():  # a formula that cannot be parsed would fail when it is drawn
        plt.figure(number).savefig("/dev/null", format="png")
    assert "\n" not in axes.get_legend().get_texts()[0].get_text()


def test_cells_tell_of_models_and_estimates(model: fk.DMD) -> None:
    assert "not yet" in fk.DeepKoopman(kind="edmd")._repr_html_()
    shown = model._repr_html_()
    assert "a, b" in shown and "0.1" in shown and "<style" not in shown
    system, sensor = fk.systems.Pendulum(), fk.LinearSensor([[1.0, 0.0]])
    found = fk.estimate(system, sensor, np.zeros((2, 5, 1)))
    assert "theta, omega" in found._repr_html_() and "2, of which 2" in found._repr_html_()


def test_matplotlib_is_loaded_on_use_only() -> None:
    code = (
        "import sys, fedkoopman as fk; fk.plot.spectrum; fk.plot.raster\n"
        "assert not {'matplotlib', 'jax'} & set(sys.modules), 'too early'\n"
        "fk.plot.spectrum([0.5, 0.2j])\n"
        "assert 'matplotlib' in sys.modules and 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "MPLBACKEND": "Agg"}
