"""The two ship laboratories of `benchmarks/measured.py`: conversions, and what federating brings.

A made-up ship, whose states are known, is written down as each laboratory would: at full scale with
three digits, an offset and a useless clock, and at model scale. Both must come back as one ship.
"""

import importlib
import math
import os
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MEASURED = os.environ.get("FEDKOOPMAN_MEASURED")
FROUDE = math.sqrt(45.714)
OFFSET = 0.005


@pytest.fixture
def load(monkeypatch):
    """Modules of benchmarks/, which is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def true_states(time):
    """u, v, r of the model at an instant, in m/s and rad/s."""
    return np.stack(
        [1.1 - 0.1 * np.sin(0.1 * time), 0.2 * np.sin(0.2 * time), 0.04 * np.cos(0.2 * time)], -1
    )


def true_rudder(time):
    """In degrees."""
    return 20 * np.sin(0.2 * time)


def recorded(time):
    """What instruments of the model see: columns psi, dx0, dy0, r, delta."""
    u, v, r = true_states(time).T
    psi = 0.2 * np.sin(0.2 * time)  # ∫ r
    north, east = u * np.cos(psi) - v * np.sin(psi), u * np.sin(psi) + v * np.cos(psi)
    return np.rad2deg(psi), north, east, np.rad2deg(r), true_rudder(time)


def write(path, head, columns, form):
    path.parent.mkdir(exist_ok=True)
    rows = [",".join(format(value, form) for value in row) for row in np.column_stack(columns)]
    path.write_text("\n".join([head, *rows]) + "\n")


@pytest.fixture
def folder(tmp_path):
    """Manoeuvres of the same ship in both laboratories' forms."""
    time = np.arange(4000) * 0.135264 / FROUDE
    psi, north, east, r, delta = recorded(time)
    none = np.zeros(len(time))
    for name in ("zz_20", "zz_10", "tc_35"):
        full = [
            none,
            none,
            none,
            none,
            psi,
            north * FROUDE,
            east * FROUDE,
            none,
            r / FROUDE + OFFSET,
        ]
        if name == "tc_35":
            full[5] = np.where(np.arange(len(time)) < len(time) - 100, full[5], 99.0)
        write(
            tmp_path / "marin" / f"MARIN_FREE_KVLCC2_{name}_m.csv",
            "time,x0,y0,phi,psi,dx0,dy0,p,r,delta,rpm",
            [*full, delta, none + 91.7],
            ".2e",
        )
    time = np.arange(1600) * 0.05
    psi, north, east, r, delta = recorded(time)
    none = np.zeros(len(time))
    for name in ("15_05", "20_10_S", "10_05"):
        write(
            tmp_path / "hsva" / f"HSVA_CPMC_KVLCC2_Z_{name}.csv",
            "time,x0,y0,psi,dx0,dy0,r,phi,delta,n,thrust,torque",
            [time, none, none, psi, north, east, r, none, delta, none + 10.2, none, none],
            ".9f",
        )
    return tmp_path


def test_both_laboratories_come_back_as_one_ship(load, folder):
    data = load("measured_ships_data")
    for lab, interval, digits in ((data.MARIN, 0.02, 0.01), (data.HSVA, 0.05, 0.001)):
        found = lab.manoeuvres(folder)
        assert set(lab.held_out) < set(found)
        for one in found.values():
            # A mean of samples from t on is that of an instant half a sample earlier.
            time = 0.5 * np.arange(1, len(one.states) + 1) - interval / 2
            error = np.abs(lab.model_scale(one.states) - true_states(time)).max(axis=0)
            assert (error < digits * np.array([1.1, 0.2, 0.04]) + 1e-4).all(), (lab.name, error)
            between = true_rudder(time[:-1] + 0.25)[:, None]
            np.testing.assert_allclose(one.rudder[:-1], between, atol=0.1)


def test_the_end_of_a_circle_is_left_out(load, folder):
    data = load("measured_ships_data")
    lengths = {name: len(one.states) for name, one in data.MARIN.manoeuvres(folder).items()}
    assert lengths["zz_20"] - lengths["tc_35"] == 4  # 100 rows are 2 s
    spoilt = data.MARIN.manoeuvres(folder, artefact=0)["tc_35"]
    assert spoilt.states[-1, 0] > 50


def test_the_offset_of_the_yaw_rate_is_found_from_coarse_headings(load):
    data = load("measured_ships_data")
    time = np.arange(5000) * 0.135264
    psi, r = 30 * np.sin(0.01 * time), 0.3 * np.cos(0.01 * time)
    found = data.yaw_offset(np.round(psi, 1), r + OFFSET, 0.135264)
    assert found == pytest.approx(OFFSET, abs=1e-5)


def test_the_mirror_image_goes_to_the_other_side(load, folder):
    one = load("measured_ships_data").HSVA.manoeuvres(folder)["10_05"]
    other = one.mirrored()
    np.testing.assert_array_equal(other.states, one.states * [1, -1, -1])
    np.testing.assert_array_equal(other.rudder, -one.rudder)


def test_least_squares_finds_a_bilinear_map_exactly(load):
    choice = load("measured_ships_choice")
    random = np.random.default_rng(0)

    def step(x, rudder):
        u, v, r = x
        return np.array(
            [
                0.9 * u + 0.1 - 0.2 * v * r,
                0.8 * v + 0.1 * rudder * u,
                0.7 * r + 0.2 * rudder - 0.1 * v,
            ]
        )

    paths = []
    for _ in range(6):
        rudder = random.uniform(-1, 1, (60, 1))
        x = [random.uniform(-0.5, 0.5, 3)]
        for one in rudder[:-1, 0]:
            x.append(step(x[-1], one))
        paths.append((np.array(x), rudder))
    model = choice.fit(choice.Setting(2, True, 1e-12), [paths[:3], paths[3:5]])
    assert choice.errors(model, paths[:5], np.ones(3)) < 1e-8
    held = model.step(np.array([[50.0, 0, 0]]), np.zeros((1, 1)))  # far beyond the range
    assert np.abs(held).max() < 3
    weak = choice.fit(choice.Setting(1, False, 1e-12), [paths[:5]])
    assert choice.errors(weak, paths[:5], np.ones(3)) > 1e-3


def test_a_study_of_both_laboratories_can_be_loaded(load, folder, tmp_path):
    import fedkoopman as fk

    data, federation = load("measured_ships_data"), load("measured_ships_federation")
    recordings = {lab.name: lab.manoeuvres(folder) for lab in data.LABORATORIES}
    network = federation.edmd(load("measured_ships_choice").Setting(2, True, 1e-6))
    path = federation.write_federation(tmp_path, recordings, data.LABORATORIES, network)
    study = fk.Study.load(path)
    assert study.network.inputs == ("rudder",) and study.network.bilinear
    rows = (tmp_path / "marin" / "manoeuvres.csv").read_text().splitlines()
    assert rows[0] == "manoeuvre,time,u,v,r,delta"
    assert float(rows[1].split(",")[2]) == pytest.approx(1.1 * FROUDE, rel=0.1)  # still full scale


def test_goals_are_judged_against_the_better_of_two_settings(load):
    ships = load("measured_ships_verdicts")
    test = "HSVA zig-zags"
    rows = {
        name: ships.Row(name, {test: error})
        for name, error in {
            "federated": 0.04, "marin own": 0.2, "marin same": 0.07, "hsva own": 0.05,
            "hsva same": 0.037,
        }.items()
    }  # fmt: skip
    others, own = ships.judged(rows, test, "as recorded")
    assert "0.5 × MARIN" in others["goal"] and not others["met"]
    assert "1.1 × HSVA" in own["goal"] and own["met"] and "1.08 ×" in own["result"]


def test_the_least_errors_are_named_whoever_has_them(load):
    rows = [["**ours**", "", 0.1, 0.5, 0.2], ["theirs", "", None, "not finite", 0.04]]
    told = load("measured_ships_verdicts").winners(rows)
    assert "MARIN circle: ours (0.50)" in told and "HSVA zig-zags: theirs (0.040)" in told


@pytest.mark.slow
@pytest.mark.skipif(
    MEASURED is None or not (Path(MEASURED) / "kvlcc2").exists(),
    reason="the ships' manoeuvres are not here: FEDKOOPMAN_MEASURED names the folder with kvlcc2/",
)
def test_together_the_laboratories_know_more_than_either(load):
    choice, federation = load("measured_ships_choice"), load("measured_ships_federation")
    ships = federation.Ships.read(Path(MEASURED) / "kvlcc2")
    setting, _ = choice.chosen(ships.training, ships.spread, federation.BOTH)
    scores = {
        names: ships.scores(federation.simulate_of(ships.learned(federation.edmd(setting), names)))
        for names in (("marin", "hsva"), ("marin",), ("hsva",))
    }
    both, marin, hsva = scores.values()
    assert both["HSVA zig-zags"] <= 0.5 * marin["HSVA zig-zags"]
    assert both["HSVA zig-zags"] <= 1.1 * hsva["HSVA zig-zags"]
    assert both["MARIN zig-zag"] <= 1.1 * marin["MARIN zig-zag"]
    # The same least squares in NumPy, on all rows in one place.
    pooled = choice.fit(
        setting, [choice.paths_of(ships.training, name) for name in federation.BOTH]
    )
    lab, names = federation.TESTS["HSVA zig-zags"]
    paths = [
        (lab.model_scale(one.states), one.rudder)
        for key, one in ships.data[lab.name].items()
        if key in names
    ]
    expected = choice.errors(pooled, paths, ships.spread)
    assert both["HSVA zig-zags"] == pytest.approx(expected, rel=0.05)
