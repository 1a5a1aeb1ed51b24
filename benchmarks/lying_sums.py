"""Sites that lie about their sums: what the screen makes of them, and of honest ones.

    .venv/bin/python benchmarks/lying_sums.py edmd-lorenz63 [--seeds 3] [--liars 1] [--quick]

For each lie of `tests/reference/lying.py`: the one-step error E1 and the error E as a ratio to the
federation without the liars, plain and screened; how often the liars were asked and refused; the
error of their sums in times of the usual one (before the bound), and the largest honest one. The
first line of a seed says whether screening changes a bit of the honest federation.

Cases are a model kind and a system: lorenz63, van-der-pol and pendulum simulate five sites (ten
with --liars 2), `laboratories` is the pendulum example and `regimes` the example of that name.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference import lying

import fedkoopman as fk
from fedkoopman.config.scaffold import example_files, write_scaffold
from fedkoopman.errors import ComputationError
from fedkoopman.federation import misfits
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.site_preparation import prepared_sites

EXAMPLES = {"laboratories": "pendulum", "regimes": "regimes"}
SIMULATED, RECORDED = 100, 60
"""Slots of a federation."""
QUICK = ("careful ×1.1", "shuffled time", "another system", "a thousandfold")
SUMS, FIRST = ("seen", "sums"), ("scale",)
REQUESTS = {"sums": ("look", "add", "add-all"), "scale": ("measure",)}
GROUPS = (
    (lying.CRUDE, SUMS, "sums"),
    (lying.CAREFUL, SUMS, "sums"),
    (lying.HARMLESS, SUMS, "sums"),
    (lying.SCALE, FIRST, "scale"),
)


def experiment(case: str, seed: int, folder: Path, clients: int) -> Experiment:
    """The federation of a case."""
    kind, _, system = case.partition("-")
    if system in EXAMPLES:
        if not (root := folder / system).exists():
            write_scaffold(root, example_files(EXAMPLES[system]))
        values = {"network.kind": kind, "slots": RECORDED, "evaluation.tail_slots": 5}
        if case == "edmd-regimes":
            values["network.degree"] = 5
        study = fk.Study.load(root / "study.toml", values)
        return experiment_of(study, seed, prepared_sites(study))
    made = fk.Study.recommended(
        SIMULATED, seed, system={"name": system}, clients={"count": clients}
    )
    return experiment_of(made.with_values({"network.kind": kind}), seed)


def last(one: Experiment, algorithm: Any) -> dict[str, Any]:
    """The last record of a federation, with its model."""
    with Workers(2) as workers:
        *_, end = simulate_federation(replace(one, algorithm=algorithm), workers)
    model = algorithm.model(one.problem, end.state.arrays)
    return end.record | {"model": {name: leaf.tobytes() for name, leaf in model.items()}}


@contextmanager
def measured() -> Iterator[dict[int, list[float]]]:
    """By client, how many times the usual error its sums have, whether or not that is too much."""
    found: dict[int, list[float]] = {}
    judge = misfits.beyond

    def note(n: int, misfit: Any, usual: Any) -> Any:
        found.setdefault(n, []).append(misfits.times(misfit, usual))
        return judge(n, misfit, usual)

    misfits.beyond = note
    try:
        yield found
    finally:
        misfits.beyond = judge


def span(values: list[float]) -> str:
    """Least and most."""
    return f"{min(values):.3g} … {max(values):.3g}" if values else "impossible"


def ratio(found: dict[str, Any], other: dict[str, Any]) -> str:
    """Of E1 and E."""
    return " / ".join(f"{found[name] / other[name]:.3g}" for name in ("E1", "E"))


def report(
    case: str, seed: int, liars: list[int], quick: bool, lies_too: bool, folder: Path
) -> None:
    """The table of one seed."""
    one = experiment(case, seed, folder, 5 * len(liars))
    algorithm = one.algorithm
    plain, watched = last(one, algorithm), lying.Lying(algorithm, {})
    with measured() as times:
        honest = last(one, watched)
    same = "the same" if honest["model"] == plain["model"] else "ANOTHER"
    print(f"\n{case}, seed {seed}: E1 {plain['E1']:.4g}, E {plain['E']:.4g}; honest and screened:")
    print(
        f"{same} model, {len(watched.findings)} refused, {len(watched.changed)} capped, error at "
        f"most {max(max(own) for own in times.values()):.3g} times the usual\n"
    )
    if not lies_too:
        return
    others = tuple(c for c in one.clients if c.identity not in liars)
    without = last(replace(one, clients=others, segments=one.segments[: len(others)]), algorithm)
    print("| lie | plain: E1 / E | screened: E1 / E | refused | its error | honest errors |")
    print("|---|---|---|---|---|---|", flush=True)
    for lies, stages, where in GROUPS:
        for name, lie in lies.items():
            if quick and name not in QUICK:
                continue
            told = dict.fromkeys(liars, lie)
            trusting = lying.Lying(algorithm, told, screen=False, stages=stages)
            screened = lying.Lying(algorithm, told, stages=stages)
            try:
                before = ratio(last(one, trusting), without)
            except ComputationError as error:
                before = type(error).__name__
            with measured() as times:
                after = ratio(last(one, screened), without)
            refused = sum(n in liars for _, n in screened.findings)
            wrong = len(screened.findings) - refused
            asked = sum(
                n in liars and kind in REQUESTS[where]
                for requests in screened.asked.values()
                for n, kind in requests.items()
            )
            theirs = [v for n in liars for v in times.get(n, [])] if where == "sums" else []
            good = [v for n, own in times.items() if n not in liars for v in own]
            blamed = f", {wrong} honest" if wrong else ""
            print(
                f"| {where}: {name} | {before} | {after} | {refused} of {asked}{blamed} "
                f"| {span(theirs)} | {span(good) if good else 'none judged'} |",
                flush=True,
            )


def main() -> None:
    """Print a table for every case and seed."""
    given = argparse.ArgumentParser(description="Measure the screen of sites' sums.")
    given.add_argument("cases", nargs="+")
    given.add_argument("--seeds", type=int, default=1)
    given.add_argument("--first", type=int, default=0, help="the first seed")
    given.add_argument("--honest", action="store_true", help="honest federations only")
    given.add_argument("--liars", type=int, default=1)
    given.add_argument("--liar", type=int, default=0, help="the first liar's place")
    given.add_argument("--quick", action="store_true", help="four lies only")
    chosen = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen.cases:
            for seed in range(chosen.first, chosen.first + chosen.seeds):
                liars = list(range(chosen.liar, chosen.liar + chosen.liars))
                report(case, seed, liars, chosen.quick, not chosen.honest, Path(folder))


if __name__ == "__main__":
    main()
