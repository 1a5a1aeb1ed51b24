"""KVLCC2: two laboratories, MARIN and HSVA, learn one model of the same ship.

The tables and verdicts of the page: federated, alone and pooled, by model kind, and what else was
tried. What is compared is the simulation of whole held-out manoeuvres.
"""

from collections.abc import Mapping, Sequence

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
from measured_ships_data import DT, LABORATORIES, Array, Laboratory
from measured_ships_federation import BOTH, TESTS, Ships, edmd, simulate_of
from measured_ships_peers import PEERS
from measured_ships_text import INTRO, KINDS, MIRRORED, RECORDED, reason
from measured_ships_verdicts import Row, judged, winners

import fedkoopman as fk

AUTO = 'observation = "auto"\nprocess = "auto"'


SPECTRAL = {
    "kind": "spectral",
    "components": 20,
    "degree": 3,
    "features": 16,
    "horizon": 5,
    "ridge": 1e-6,
    "bilinear": True,
    "inputs": ["rudder"],
}


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
    for name in PEERS:
        others.append(_peer(ships, every, name))
        say(f"{name}: {others[-1].scores}")
    return rows, others


def _peer(ships: Ships, every: Sequence[tuple[Array, Array]], name: str) -> Row:
    """A library of others on all rows in one place, standardised; without it a row of dashes."""
    mean = np.concatenate([x for x, _ in every]).mean(axis=0)
    size = float(np.concatenate([u for _, u in every]).std())
    try:
        simulate = PEERS[name]([((x - mean) / ships.spread, u / size) for x, u in every])
    except ImportError as error:
        return Row(name, dict.fromkeys(TESTS), f"not installed ({error.name})")

    def scaled(start: Array, rudder: Array) -> Array:
        return simulate((start - mean) / ships.spread, rudder / size) * ships.spread + mean

    return Row(name, ships.scores(scaled), "pooled")


def _held(start: Array, rudder: Array) -> Array:
    return np.repeat(start[None], len(rudder), axis=0)


def by_kind(ships: Ships, quick: bool) -> tuple[list[list[object]], str]:
    """Every model kind, learned by both, by MARIN and by HSVA; and which is best where."""
    kinds: dict[str, Mapping[str, object]] = {
        f"EDMD, degree {degree}, {'bilinear' if bilinear else 'linear in δ'}": edmd(
            Setting(degree, bilinear, 1e-6)
        )
        for degree, bilinear in ((1, False), (1, True), (2, True), (3, False), (3, True))
    }
    kinds["spectral, 20 components, bilinear"] = SPECTRAL
    found, every = list[list[object]](), dict[str, dict[str, float]]()
    for name, network in kinds.items():
        if quick and network is SPECTRAL:
            continue
        more = {"slots": 100, "repeat": True} if network is SPECTRAL else {}
        models = [ships.learned(network, names, **more) for names in (BOTH, ["marin"], ["hsva"])]
        scores = [ships.scores(simulate_of(model)) for model in models]
        every |= {
            f"{name}, {who}": one
            for who, one in zip(("federated", "MARIN alone", "HSVA alone"), scores, strict=True)
        }
        ahead = ships.one_step(models[0], *TESTS["HSVA zig-zags"])
        cells = [" / ".join(short(each[test]) for each in scores) for test in TESTS]
        found.append([f"**{name}**", *cells, ahead])
        say(str(found[-1]))
    best = {test: min(every, key=lambda name: every[name][test]) for test in TESTS}
    told = [f"{test}: {name} ({short(every[name][test])})" for test, name in best.items()]
    return found, f"Least errors, chosen with hindsight: {'; '.join(told)}."


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
        shown = [row.cells for row in [*unique, *others]]
        tables.append(
            {
                "title": f"Simulation of whole held-out manoeuvres, {how}",
                "columns": ["learned from", "setting", *TESTS],
                "rows": shown,
                "note": f"{MIRRORED if mirror else RECORDED} {winners(shown)}",
            }
        )
        for test in TESTS:
            verdicts += judged(rows, test, how)
        settings.append(chosen(ships.training, ships.spread, BOTH, mirror)[0])
    kinds, least = by_kind(ships, options.quick)
    tables.append(
        {
            "title": "By model kind: federated / MARIN alone / HSVA alone, as recorded",
            "columns": ["model", *TESTS, "one step, federated, HSVA"],
            "rows": kinds,
            "note": f"{KINDS} {least}",
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
