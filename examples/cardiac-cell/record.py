"""Make up what three laboratories record of sinoatrial cells: the voltage, and nothing else.

python record.py DIR

Copies the study and the site files into DIR and writes the recordings beside them. A cell beats by
itself; every recording begins at some moment of a beat, after a stimulus that shifted the voltage.
What the seven states really were goes into DIR/truth, which only compare.py looks at.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

import fedkoopman as fk

HERE = Path(__file__).parent
SITES = ("patch-clamp", "microelectrode", "dye")
PERIOD = 341
"""Milliseconds from beat to beat."""


def cells(count: int, milliseconds: int, rng: np.random.Generator) -> np.ndarray:
    """True states (count, milliseconds, 7), from some moment of a beat on."""
    system = fk.systems.YNI(dt=1.0)
    beat = fk.simulate(system, steps=milliseconds, seed=0)[-PERIOD:]
    starts = beat[rng.integers(PERIOD, size=count)]
    starts[:, 0] += rng.uniform(-15.0, 15.0, count)
    return fk.simulate(system, steps=milliseconds, initial=starts)[:, 1:]


def recorded(site: str, voltage: np.ndarray, rng: np.random.Generator) -> str:
    """A recording as CSV, with the site's noise and what it loses.

    Arguments:
        site: which.
        voltage: true, in millivolts, every millisecond.
    """
    time, noise = np.arange(1, len(voltage) + 1), rng.normal(size=len(voltage))
    if site == "patch-clamp":  # every millisecond, little noise
        return _csv("time_ms,V_mV", time, voltage + 0.5 * noise)
    if site == "microelectrode":  # a tenth of the samples is lost, and left blank
        seen = np.where(rng.random(len(voltage)) < 0.1, np.nan, voltage + 1.5 * noise)
        return _csv("time_ms,V_mV", time, seen)
    # The dye's light in percent, 500 pictures a second; once the shutter stays closed for 40 ms.
    light = (voltage + 4.0 * noise + 60.0) / 10.0
    closed = rng.integers(50, len(voltage) - 90)
    open_ = (time % 2 == 1) & ~((time > closed) & (time <= closed + 40))
    return _csv("time_ms,light_percent", time[open_], light[open_])


def _csv(header: str, time: np.ndarray, values: np.ndarray) -> str:
    cells = ["" if np.isnan(value) else f"{value:.3f}" for value in values]
    rows = [f"{t},{cell}\n" for t, cell in zip(time, cells, strict=True)]
    return f"{header}\n{''.join(rows)}"


def main() -> None:
    """Write everything."""
    say = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    say.add_argument("directory", type=Path)
    say.add_argument("--recordings", type=int, default=10, help="per laboratory")
    say.add_argument("--milliseconds", type=int, default=700, help="per recording")
    given = say.parse_args()
    if given.recordings < 2 or given.milliseconds < 2 * PERIOD:
        say.error(f"give at least 2 recordings of {2 * PERIOD} milliseconds")
    rng = np.random.default_rng(0)
    given.directory.mkdir(parents=True, exist_ok=True)
    for name in ("study.toml", "compare.py"):
        shutil.copy(HERE / name, given.directory)
    for site in SITES:
        data, truth = given.directory / site / "data", given.directory / "truth" / site
        data.mkdir(parents=True, exist_ok=True)
        truth.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / site / "site.toml", data.parent)
        for i, x in enumerate(cells(given.recordings, given.milliseconds, rng), 1):
            text = recorded(site, x[:, 0], rng)
            (data / f"recording-{i:02}.csv").write_text(text, encoding="utf-8")
            np.save(truth / f"recording-{i:02}.npy", x)
    print(f"wrote {given.recordings} recordings for each of {', '.join(SITES)}")
    print(f"next: fedkoopman check {given.directory / 'study.toml'}")


if __name__ == "__main__":
    main()
