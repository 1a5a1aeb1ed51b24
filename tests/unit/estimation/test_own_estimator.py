"""An estimator in one file is used by `fk.estimate`, by `fedkoopman estimate` and by a study."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from reference import filters
from reference.extension import file_of
from reference.problems import lorenz63

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.config.user_files import user_files
from fedkoopman.errors import InputError

FILE = file_of("cubature")
METHOD = f"{FILE}:ESTIMATOR"


@pytest.fixture(scope="module")
def case():
    return lorenz63(steps=20)


def test_it_is_the_textbooks_filter(case):
    """Cubature points are sigma points with α = 1, β = κ = 0, whose centre has no weight."""
    chosen = {"alpha": 1.0, "beta": 0.0, "kappa": 0.0}
    given = (case.f, case.h, case.z, case.q, case.r, case.mean, case.cov)
    means, covs, likelihood = filters.ukf(*given, **chosen, resample=True)
    e = case.estimate(method=METHOD, smooth=False)
    np.testing.assert_allclose(e.mean, means[1:], rtol=1e-8)
    np.testing.assert_allclose(e.cov, covs[1:], rtol=1e-6, atol=1e-8)
    assert e.log_likelihood == pytest.approx(likelihood, rel=1e-9)
    assert e.method == METHOD
    smooth = case.estimate(method=METHOD)
    assert np.trace(smooth.cov[0]) < np.trace(e.cov[0])


def test_it_streams(case):
    online = fk.estimation.OnlineFilter(
        case.system, case.sensor, process_noise=case.q, observation_noise=case.r, method=METHOD
    )
    state, _ = online.step(online.start(case.mean, case.cov), case.z[0])
    e = case.estimate(method=METHOD, smooth=False)
    np.testing.assert_allclose(state.mean, e.mean[0], rtol=1e-12)


def test_the_command_line_takes_it(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, "cubature.py")
    np.save("z.npy", case.z)
    rows = np.asarray(case.sensor.matrix).tolist()
    offset = np.asarray(case.sensor.offset).tolist()
    Path("sensor.toml").write_text(f'kind = "linear"\nmatrix = {rows}\noffset = {offset}\n')
    words = ["estimate", "z.npy", "--system", "lorenz63", "--sensor", "sensor.toml"]
    words += ["--method", "cubature.py:ESTIMATOR", "--out", "x.npz", "--no-progress"]
    assert main(words) == 0, capsys.readouterr().err
    ours, theirs = fk.estimate(case.system, case.sensor, case.z, method=METHOD), np.load("x.npz")
    np.testing.assert_allclose(theirs["x1"], ours.mean[:, 0], rtol=1e-9)
    np.testing.assert_allclose(theirs["cov"], ours.cov, rtol=1e-9)


def test_a_study_takes_it_from_its_own_folder(tmp_path):
    shutil.copy(FILE, tmp_path / "cubature.py")
    (tmp_path / "study.toml").write_text(
        "slots = 2\n[clients]\ncount = 2\nprobability = 1.0\n[segments]\nsteps = 20\n"
        '[estimation]\nmethod = "cubature.py:ESTIMATOR"\n[policy]\nsegments = 1\n'
        "[training]\nepochs = 1\n[evaluation]\ntrajectories = 2\n"
    )
    study = fk.Study.load(tmp_path / "study.toml")
    assert study.estimation.method == "cubature.py:ESTIMATOR"
    assert user_files(study) == [Path("cubature.py")]
    run, plain = fk.run(study), fk.run(study.with_values({"estimation.method": "ekf"}))
    assert run.summary["dropped"] == 0
    assert run.records[-1]["E"] != plain.records[-1]["E"]


def test_what_is_no_estimator_is_refused_in_one_line(case, tmp_path):
    (tmp_path / "own.py").write_text("KALMAN = [1, 2]\n")
    with pytest.raises(InputError, match=r"is no estimator: .*\(it is \[1, 2\]\)"):
        case.estimate(method=f"{tmp_path / 'own.py'}:KALMAN")
    (tmp_path / "study.toml").write_text('[estimation]\nmethod = "own.py:KALMAN"\n')
    with pytest.raises(InputError, match=r"estimation.method: .*is no estimator"):
        fk.Study.load(tmp_path / "study.toml")


def test_a_method_without_a_smoother_says_so(case, monkeypatch):
    monkeypatch.setattr(type(fk.estimation.ESTIMATORS.find("ekf")), "smooths", False)
    with pytest.raises(InputError, match="method 'ekf' has no smoother: pass smooth=False"):
        case.estimate(method="ekf")
    with pytest.raises(InputError, match=r"estimation.smooth is true .* 'ekf' has no smoother"):
        fk.Study.paper_default(estimation={"method": "ekf"}).check()
