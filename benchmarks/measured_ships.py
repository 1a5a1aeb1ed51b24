"""KVLCC2: two laboratories, MARIN and HSVA, learn one model of the same ship.

Each is a site of a real federation (`fk.run` on a study with two site files), or the only one of a
study. Whole manoeuvres are simulated from their first states and the recorded rudder.
"""

import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from accuracy_page import Options, short
from measured_ships_choice import (
    FOLDS,
    Fit,
    Setting,
    chosen,
    errors,
    fit,
    paths_of,
    root_mean_square,
    validation_error,
)
from measured_ships_data import (
    ARTEFACT,
    DT,
    HSVA,
    LABORATORIES,
    MARIN,
    Array,
    Laboratory,
    Manoeuvre,
    write_federation,
)
from measured_ships_text import INTRO, KINDS, MIRRORED, RECORDED, reason

import fedkoopman as fk

Data = Mapping[str, Mapping[str, Manoeuvre]]
Simulate = Callable[[Array, Array], Array]
"""From a first state and rudder (T, 1) to the states that follow, (T, 3)."""
TESTS = {
    "MARIN zig-zag": (MARIN, MARIN.zigzags),
    "MARIN circle": (MARIN, MARIN.circles),
    "HSVA zig-zags": (HSVA, HSVA.zigzags),
}
BOTH = ("marin", "hsva")
AUTO = 'observation = "auto"\nprocess = "auto"'
SAME, OTHERS = 1.1, 0.5
"""Of a laboratory's error alone: on its own manoeuvres, and on the other's, at most."""


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
    """Lifted anew as often as the model itself decided."""
    return lambda start, rudder: model.simulate(start, U=rudder)


def edmd(setting: Setting) -> dict[str, object]:
    """The study's section network."""
    return {
        "kind": "edmd",
        "degree": setting.degree,
        "bilinear": setting.bilinear,
        "ridge": setting.ridge,
        "inputs": ["rudder"],
    }


SPECTRAL = {
    "kind": "spectral",
    "components": 20,
    "degree": 3,
    "features": 16,
    "bilinear": True,
    "inputs": ["rudder"],
}


@dataclass(frozen=True)
class Row:
    """A model in a table."""

    name: str
    scores: Mapping[str, float | None]
    note: str = ""

    @property
    def cells(self) -> list[object]:
        return [self.name, self.note, *self.scores.values()]


def compared(ships: Ships, mirror: bool) -> tuple[dict[str, Row], list[Row]]:
    """The federation and each laboratory alone: with the setting that each would choose, and with
    the federation's; pooled; holding; peers."""
    learned_from = ships.training
    data = ships.mirrored() if mirror else ships
    setting, validated = chosen(learned_from, ships.spread, BOTH, mirror)
    say(f"together: {setting}, {validated:.3f} on left-out manoeuvres")
    rows = {}

    def row(key: str, name: str, model: fk.DeepKoopman, note: str) -> None:
        rows[key] = Row(name, ships.scores(simulate_of(model)), note)
        say(f"{name}: {rows[key].scores}")

    row("federated", "**federated**", data.learned(edmd(setting)), str(setting))
    for lab in LABORATORIES:
        own, _ = chosen(learned_from, ships.spread, [lab.name], mirror)
        for key, one in (("own", own), ("same", setting)):
            if key == "same" and own == setting:
                rows[f"{lab.name} same"] = rows[f"{lab.name} own"]
                continue
            model = data.learned(edmd(one), [lab.name])
            name = f"**{lab.name.upper()} alone**"
            row(f"{lab.name} {key}", name, model, f"{one}" + (" (as federated)" * (key == "same")))
    every = [path for name in BOTH for path in paths_of(learned_from, name, mirror=mirror)]
    options = {"degree": setting.degree, "bilinear": setting.bilinear, "ridge": setting.ridge}
    pooled = fk.EDMD(dt=DT, **options).fit([x for x, _ in every], U=[u for _, u in every])
    row("pooled", "**pooled** (all rows in one place, `fk.EDMD`)", pooled, str(setting))
    others = [Row("holding the first state", ships.scores(_held))]
    for name, function, options in PEERS:
        others.append(_peer(ships, every, name, function, options))
        say(f"{name}: {others[-1].scores}")
    return rows, others


PEERS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("PyDMD, DMDc", "pydmd_dmdc", {}),
    ("pykoop, EDMD of degree 2", "pykoop_edmd", {"degree": 2}),
    ("pykoop, EDMD of degree 3", "pykoop_edmd", {"degree": 3}),
)


def _peer(
    ships: Ships, every: Sequence[tuple[Array, Array]], name: str, function: str, options: dict
) -> Row:
    """A library of others on all rows in one place, standardised; without it a row of dashes."""
    try:
        learn = getattr(importlib.import_module("measured_peers"), function)
        mean = np.concatenate([x for x, _ in every]).mean(axis=0)
        size = float(np.concatenate([u for _, u in every]).std())
        model = learn([((x - mean) / ships.spread, u / size) for x, u in every], **options)
    except ImportError as error:
        return Row(name, dict.fromkeys(TESTS), f"not installed ({error.name})")

    def simulate(start: Array, rudder: Array) -> Array:
        found = model.simulate((start[None] - mean) / ships.spread, rudder / size)
        return found * ships.spread + mean

    return Row(name, ships.scores(simulate), f"pooled; {model.how}")


def _held(start: Array, rudder: Array) -> Array:
    return np.repeat(start[None], len(rudder), axis=0)


def by_kind(ships: Ships, quick: bool) -> list[list[object]]:
    """Every model kind, learned by both, by MARIN and by HSVA."""
    kinds: dict[str, Mapping[str, object]] = {
        f"EDMD, degree {degree}, {'bilinear' if bilinear else 'linear in δ'}": edmd(
            Setting(degree, bilinear, 1e-6)
        )
        for degree, bilinear in ((1, False), (1, True), (2, True), (3, False), (3, True))
    }
    kinds["spectral, 20 components, bilinear"] = SPECTRAL
    found: list[list[object]] = []
    for name, network in kinds.items():
        if quick and network is SPECTRAL:
            continue
        more = {"slots": 100, "repeat": True} if network is SPECTRAL else {}
        models = [ships.learned(network, names, **more) for names in (BOTH, ["marin"], ["hsva"])]
        scores = [ships.scores(simulate_of(model)) for model in models]
        ahead = ships.one_step(models[0], *TESTS["HSVA zig-zags"])
        cells = [" / ".join(short(each[test]) for each in scores) for test in TESTS]
        found.append([f"**{name}**", *cells, ahead])
        say(str(found[-1]))
    return found


def tried(ships: Ships, whole: Ships, setting: Setting) -> list[list[object]]:
    """Other ways to treat MARIN's rows: by left-out manoeuvres, and on the held-out ones.

    Arguments:
        whole: the same manoeuvres, with the rows at the end of MARIN's circles.
    """
    learned_from, found = ships.training, list[list[object]]()

    def tests(model: Fit) -> list[float]:
        return [
            errors(model, [_path(ships, lab, key) for key in names], ships.spread)
            for lab, names in TESTS.values()
        ]

    def plain(name: str, one: Setting = setting, weight: float = 1.0) -> None:
        model = fit(one, [paths_of(learned_from, each) for each in BOTH], [weight, 1.0])
        left_out = validation_error(learned_from, one, ships.spread, weights=[weight, 1.0])
        found.append([name, left_out, *tests(model)])

    plain("as chosen")
    plain("degree 4", Setting(4, setting.bilinear, setting.ridge))
    for ridge in (1e-12, 1e-9, 1e-5, 1e-4):
        plain(f"ridge {ridge:.0e}", Setting(setting.degree, setting.bilinear, ridge))
    for weight in (0.03, 0.1, 0.3, 3.0):
        plain(f"MARIN's rows count {weight:g} times", weight=weight)
    for what, other, settings in (
        ("the last 100 rows of MARIN's circles kept", whole, {}),
        ("MARIN smooths (both noises `auto`)", ships, {"noise": {"marin": AUTO}}),
    ):
        left_out = _validated(ships, other, edmd(setting), **settings)
        model = other.learned(edmd(setting), **settings)
        found.append([f"{what}, `fk.run`", left_out, *ships.scores(simulate_of(model)).values()])
        say(str(found[-1]))
    model = fit(setting, [paths_of(ships.data, name) for name in BOTH])
    found.append(["*not held out: learned from the test manoeuvres too*", None, *tests(model)])
    return found


def _path(ships: Ships, lab: Laboratory, key: str) -> tuple[Array, Array]:
    one = ships.data[lab.name][key]
    return lab.model_scale(one.states), one.rudder


def _validated(
    ships: Ships, other: Ships, network: Mapping[str, object], **settings: object
) -> float:
    """As `validation_error`, of federations that learn from other rows than they are judged by."""
    found: dict[str, list[float]] = {name: [] for name in BOTH}
    for left_out in FOLDS:
        simulate = simulate_of(other.learned(network, held_out=left_out, **settings))
        for lab in LABORATORIES:
            found[lab.name].append(ships.error(simulate, lab, left_out[lab.name]))
    return float(np.exp(np.mean([np.log(root_mean_square(each)) for each in found.values()])))


def judged(rows: Mapping[str, Row], test: str, how: str) -> list[dict]:
    """The issue's two goals on one test: half of the other's error, 1.1 times one's own.

    A laboratory alone counts with the better of its two settings on this very test: the federation
    is not to win because somebody chose badly.
    """
    lab = TESTS[test][0]
    found = []
    for one in LABORATORIES:
        alone = min(rows[f"{one.name} {key}"].scores[test] for key in ("own", "same"))
        mine = rows["federated"].scores[test]
        most = SAME if one is lab else OTHERS
        found.append(
            {
                "goal": f"{test}, {how}: federated at most {most:g} × {one.name.upper()} alone",
                "result": f"{short(mine)} and {short(alone)}: {mine / alone:.2f} ×",
                "met": bool(mine <= most * alone),
            }
        )
    return found


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def part(options: Options) -> dict:
    """The part of the page."""
    assert options.data is not None
    ships = Ships.read(options.data / "kvlcc2")
    tables, verdicts, settings = [], [], []
    for mirror, how in ((False, "as recorded"), (True, "with mirror images")):
        rows, others = compared(ships, mirror)
        unique = list({id(row): row for row in rows.values()}.values())
        tables.append(
            {
                "title": f"Simulation of whole held-out manoeuvres, {how}",
                "columns": ["learned from", "setting", *TESTS],
                "rows": [row.cells for row in [*unique, *others]],
                "note": MIRRORED if mirror else RECORDED,
            }
        )
        for test in TESTS:
            verdicts += judged(rows, test, how)
        settings.append(chosen(ships.training, ships.spread, BOTH, mirror)[0])
    tables.append(
        {
            "title": "By model kind: federated / MARIN alone / HSVA alone, as recorded",
            "columns": ["model", *TESTS, "one step, federated, HSVA"],
            "rows": by_kind(ships, options.quick),
            "note": KINDS,
        }
    )
    whole = Ships.read(options.data / "kvlcc2", artefact=0)
    others = tried(ships, whole, settings[0])
    tables.append(
        {
            "title": "What else was tried for the federation, as recorded",
            "columns": ["what", "left-out manoeuvres", *TESTS],
            "rows": others,
            "note": reason(others[-1][2], tables[0]["rows"]),
        }
    )
    return {"intro": INTRO, "tables": tables, "verdicts": verdicts}
