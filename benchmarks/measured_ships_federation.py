"""Two laboratories as a federation: study, site files and recordings, and the models they learn.

Each is a site of a real federation (`fk.run` on a study with two site files), or the only one.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measured_ships_choice import Data, Setting, paths_of, root_mean_square
from measured_ships_data import ARTEFACT, DT, HSVA, LABORATORIES, MARIN, Array, Laboratory

import fedkoopman as fk

Simulate = Callable[[Array, Array], Array]
"""From a first state and rudder (T, 1) to the states that follow, (T, 3)."""
TESTS = {
    "MARIN zig-zag": (MARIN, MARIN.zigzags),
    "MARIN circle": (MARIN, MARIN.circles),
    "HSVA zig-zags": (HSVA, HSVA.zigzags),
}
BOTH = ("marin", "hsva")
STUDY = """name = "kvlcc2"
slots = {slots}
[system]
name = "random-walk"      # nobody writes the hull's equations down
parameters = {{ states = ["u", "v", "r"], order = 0, dt = {dt} }}
[estimation]
method = "ekf"
[sites]
files = [{files}]
repeat = {repeat}            # false: every sample counts once, as if all were in one place
[clients]
count = {count}
probability = [{probability}]
[policy]
segments = 1
[segments]
steps = 100
[network]
{network}
"""
SITE = """name = "{name}"
[data]
files = ["manoeuvres.csv"]
columns = [{columns}]
inputs = [{inputs}]
hold = "from"             # a row's rudder acts from that row on
segment = "manoeuvre"
scale = [{scale}]
held_out = [{held_out}]
[sensor]
kind = "identity"
[noise]
{noise}
"""
HANDED_ON = """observation = { diagonal = [1e-6, 1e-6, 1e-8] }
process = { diagonal = [1.0, 1.0, 0.1] }   # far above the noise: observations are handed on"""


def write_federation(
    folder: Path,
    data: Data,
    laboratories: Sequence[Laboratory],
    network: Mapping[str, object],
    *,
    slots: int | None = None,
    repeat: bool = False,
    held_out: Mapping[str, Iterable[str]] | None = None,
    noise: Mapping[str, str] | None = None,
) -> Path:
    """Study, site files and recordings of some laboratories; the study's path.

    Arguments:
        data: manoeuvres by name, by laboratory.
        network: keys of the study's section network.
        slots: None: so many that all recordings are there when the scale is agreed on, after a
            twentieth of them. From the first few alone it would be another one, and so would be
            the directions that the ridge leaves out.
        repeat: whether segments come again and again, for features that are trained.
        held_out: manoeuvres that nobody learns from, by laboratory, in place of its own.
        noise: the site file's section, by laboratory, in place of handing observations on.
    """
    for lab in laboratories:
        site = folder / lab.name
        site.mkdir(parents=True, exist_ok=True)
        lines = [",".join(["manoeuvre", "time", *lab.columns])]
        for name, one in data[lab.name].items():
            rows = np.hstack([one.states, one.rudder])
            lines += [
                f"{name},{k * DT:.1f}," + ",".join(f"{value:.9g}" for value in row)
                for k, row in enumerate(rows)
            ]
        (site / "manoeuvres.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        apart = (held_out or {}).get(lab.name, lab.held_out)
        text = SITE.format(
            name=lab.name,
            columns=_quoted(lab.columns[:3]),
            inputs=_quoted(lab.columns[3:]),
            scale=", ".join(repr(value) for value in lab.scale),
            held_out=_quoted(apart),
            noise=(noise or {}).get(lab.name, HANDED_ON),
        )
        (site / "site.toml").write_text(text, encoding="utf-8")
    counts = [len(data[lab.name]) for lab in laboratories]
    study = STUDY.format(
        slots=slots or 20 * (1 + max(counts)),
        repeat=_toml(repeat),
        dt=DT,
        files=_quoted(f"{lab.name}/site.toml" for lab in laboratories),
        count=len(laboratories),
        # Where recordings come again, all come equally often: none counts more than another.
        probability=", ".join(str(round(n / max(counts), 3) if repeat else 1.0) for n in counts),
        network="\n".join(f"{name} = {_toml(value)}" for name, value in network.items()),
    )
    (folder / "study.toml").write_text(study, encoding="utf-8")
    return folder / "study.toml"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{_quoted(value)}]" if isinstance(value, list | tuple) else repr(value)


@dataclass(frozen=True)
class Ships:
    """All manoeuvres, and by what errors are divided."""

    data: Data
    spread: Array

    @classmethod
    def read(cls, folder: Path, artefact: int = ARTEFACT) -> "Ships":
        """From the published files; `artefact` as in `Laboratory.manoeuvres`."""
        data = {lab.name: lab.manoeuvres(folder, artefact) for lab in LABORATORIES}
        for lab in LABORATORIES:
            if missing := set(lab.held_out) - data[lab.name].keys():
                raise SystemExit(f"{folder / lab.name} lacks {', '.join(sorted(missing))}")
        every = [x for name in BOTH for x, _ in paths_of(_training(data), name)]
        return cls(data, np.concatenate(every).std(axis=0))

    @property
    def training(self) -> Data:
        """Without the held-out manoeuvres."""
        return _training(self.data)

    def mirrored(self) -> "Ships":
        """With the mirror image of every manoeuvre that is learned from."""
        extra = {
            name: {f"{key}_mirrored": one.mirrored() for key, one in some.items()}
            for name, some in self.training.items()
        }
        both = {name: {**self.data[name], **extra[name]} for name in self.data}
        return Ships(both, self.spread)

    def learned(
        self,
        network: Mapping[str, object],
        names: Sequence[str] = BOTH,
        *,
        held_out: Mapping[str, Sequence[str]] | None = None,
        **settings: object,
    ) -> fk.DeepKoopman:
        """The model of a federation of some laboratories, or of one alone."""
        labs = [lab for lab in LABORATORIES if lab.name in names]
        apart = {lab.name: [*lab.held_out, *(held_out or {}).get(lab.name, ())] for lab in labs}
        with tempfile.TemporaryDirectory() as folder:
            study = write_federation(
                Path(folder), self.data, labs, network, held_out=apart, **settings
            )
            return fk.run(fk.Study.load(study)).model

    def scores(self, simulate: Simulate) -> dict[str, float]:
        """Errors of whole held-out manoeuvres, in standard deviations, by test."""
        return {test: self.error(simulate, lab, names) for test, (lab, names) in TESTS.items()}

    def error(self, simulate: Simulate, lab: Laboratory, names: Sequence[str]) -> float:
        """Root mean square over rows, channels and manoeuvres."""
        found = []
        for name in names:
            one = self.data[lab.name][name]
            states = lab.model_scale(one.states)
            found.append((simulate(states[0], one.rudder[:-1]) - states[1:]) / self.spread)
        return root_mean_square(found)

    def one_step(self, model: fk.DeepKoopman, lab: Laboratory, names: Sequence[str]) -> float:
        """The same, one step ahead of every row."""
        found = []
        for name in names:
            one = self.data[lab.name][name]
            x = lab.model_scale(one.states)
            found.append((model.predict(x, U=one.rudder)[:-1] - x[1:]) / self.spread)
        return root_mean_square(found)


def _training(data: Data) -> Data:
    return {
        lab.name: {key: one for key, one in data[lab.name].items() if key not in lab.held_out}
        for lab in LABORATORIES
    }


def simulate_of(model: fk.DeepKoopman) -> Simulate:
    """Lifted anew at every step, as a map; other kinds than EDMD as often as they decided."""
    relift = 1 if model.architecture_.name == "edmd" else None
    return lambda start, rudder: model.simulate(start, U=rudder, relift=relift)


def edmd(setting: Setting) -> dict[str, object]:
    """The study's section network."""
    return {
        "kind": "edmd",
        "degree": setting.degree,
        "bilinear": setting.bilinear,
        "ridge": setting.ridge,
        "inputs": ["rudder"],
    }
