"""A study for real sites, ready to be filled in; or an example with made-up data, ready to run."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.tables import SiteName
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paths import folder_name

LABS = ("lab-a", "lab-b", "lab-c")
SWINGS, SAMPLES, DT = 10, 300, 0.02

Files = dict[str, bytes]
"""Contents by path within the new directory."""


def plain_files(name: str, sites: Sequence[str]) -> Files:
    """A study with some sites, to be filled in."""
    for site in sites:
        SiteName().read(site, "--sites")
    if len(set(sites)) < len(sites):
        raise InputError(f"--sites names one twice ({', '.join(sites)}): give every site its own")
    listed = ", ".join(f'"{site}/site.toml"' for site in sites)
    # A directory's name may hold characters that a text in TOML may not.
    values = {"name": folder_name(name), "files": listed, "count": str(len(sites))}
    found = {
        file: _text(f"plain/{file}", values) for file in ("study.toml", "dynamics.py", "README.md")
    }
    for site in sites:
        found[f"{site}/site.toml"] = _text("plain/site.toml", {"name": site})
        found[f"{site}/data/.gitkeep"] = b""
    return found


def example_files(name: str) -> Files:
    """An example's study with its data."""
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES)
    return EXAMPLES[name]()


def write_scaffold(directory: Path, content: Files) -> None:
    """Write a new directory; one that has anything in it is refused."""
    with writing(directory):
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            what = "is not empty" if directory.is_dir() else "is a file"
            raise InputError(f"{directory} {what}: give the name of a new directory")
        for path in content:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
    # The study is written last, as a sign that everything is there.
    for path in sorted(content, key=lambda path: path == "study.toml"):
        write_whole(directory / path, content[path])


def _pendulum() -> Files:
    names = ("study.toml", "dynamics.py", "README.md")
    found = {name: _text(f"pendulum/{name}") for name in names}
    for lab in LABS:
        found[f"{lab}/site.toml"] = _text(f"pendulum/{lab}.toml")
    found["lab-c/sensor.py"] = _text("pendulum/sensor.py")
    rng = np.random.default_rng(0)
    time = np.arange(1, SAMPLES + 1) * DT

    def swings() -> list[tuple[str, NDArray[np.float64]]]:
        starts = rng.uniform((0.3, -1.0), (2.0, 1.0), (SWINGS, 2))
        return [(f"swing-{i + 1:02}", _swing(x0)) for i, x0 in enumerate(starts)]

    for name, x in swings():
        angle = np.degrees(x[:, 0]) + rng.normal(0, 2.0, SAMPLES)
        found[f"lab-a/data/{name}.csv"] = _csv("time,angle_deg", time, angle)
    rows = []
    for name, x in swings():
        rate = x[:, 1] + rng.normal(0, 0.1, SAMPLES)
        lost = rng.random(SAMPLES) < 0.05
        rows += [
            f"{name},{t:.2f},{'' if gone else f'{value:.4f}'}"
            for t, value, gone in zip(time, rate, lost, strict=True)
        ]
    found["lab-b/data/gyroscope.csv"] = ("swing,time,rate\n" + "\n".join(rows) + "\n").encode()
    for name, x in swings():
        place = 100 * np.column_stack([np.sin(x[:, 0]), 1 - np.cos(x[:, 0])])
        place += rng.normal(0, 2.0, place.shape)
        kept = np.ones(SAMPLES, bool)
        for first in rng.integers(20, SAMPLES - 20, 3):
            kept[first : first + 8] = False
        columns = (time[kept], *place[kept].T)
        found[f"lab-c/data/{name}.csv"] = _csv("time,across_cm,up_cm", *columns)
    return found


def _swing(x0: NDArray[np.float64]) -> NDArray[np.float64]:
    """A pendulum of one metre, (SAMPLES, 2), by small steps of the fourth-order Runge-Kutta."""
    small = 10
    h = DT / small

    def f(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([x[1], -9.8 * np.sin(x[0])])

    x, found = x0, []
    for k in range(SAMPLES * small):
        k1 = f(x)
        k2 = f(x + h / 2 * k1)
        k3 = f(x + h / 2 * k2)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + h * k3))
        if k % small == small - 1:
            found.append(x)
    return np.array(found)


def _csv(header: str, *columns: NDArray[Any]) -> bytes:
    rows = [",".join(f"{v:.4f}" for v in row) for row in np.column_stack(columns)]
    return ("\n".join([header, *rows]) + "\n").encode()


def _text(path: str, values: dict[str, str] | None = None) -> bytes:
    # Templates in Python have another suffix, so that no tool takes them for our modules.
    name = f"{path}.template" if path.endswith(".py") else path
    text = (files("fedkoopman.config") / "templates" / name).read_text(encoding="utf-8")
    return (Template(text).substitute(values) if values else text).encode()


EXAMPLES: dict[str, Callable[[], Files]] = {"pendulum": _pendulum}
"""By name."""
