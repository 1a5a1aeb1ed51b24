"""The examples' made-up recordings are what their site files and READMEs say they are."""

import io
from pathlib import Path

import numpy as np
import pytest
from reference.examples import files_of, write_example

from fedkoopman.config.example_recordings import RANGES
from fedkoopman.config.scaffold import example_files
from fedkoopman.config.site_file import SiteFile


def farthest(path: str) -> float:
    """How far a swing goes, in rad, from what the laboratory's sensor says."""
    table = np.loadtxt(io.BytesIO(files_of("regimes")[path]), delimiter=",", skiprows=1)
    if path.startswith("lab-small"):
        return float(np.radians(abs(table[:, 1]).max()))
    if path.startswith("lab-middle"):  # energy is ω²/2 below, and 9.8 (1 − cos θ) at the far end
        return float(np.arccos(1 - abs(table[:, 1]).max() ** 2 / 2 / 9.8))
    return float(np.arccos(1 - table[:, 2].max() / 100))


@pytest.mark.parametrize("lab", RANGES)
def test_each_laboratory_trains_on_its_own_range_and_tests_on_all(lab: str, tmp_path: Path) -> None:
    write_example(tmp_path / "regimes", "regimes")
    site = SiteFile.load(tmp_path / "regimes" / f"lab-{lab}" / "site.toml")
    swings = sorted(path for path in files_of("regimes") if path.startswith(f"lab-{lab}/data/"))
    held_out = {path for path in swings if Path(path).stem in site.data.held_out}
    assert len(swings) == 16 and len(held_out) == 6
    for path in swings:
        name = Path(path).stem.split("-")[1] if path in held_out else lab
        low, high = RANGES[name]
        assert low - 0.1 < farthest(path) < high + 0.15, path


def test_the_same_recordings_every_time() -> None:
    assert example_files("regimes") == files_of("regimes")
