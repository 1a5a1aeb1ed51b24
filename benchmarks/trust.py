"""What lying sites do to the default federation, by rule of aggregation and by attack.

    .venv/bin/python benchmarks/trust.py [--seeds 5] [--slots 200] [--only flip,norm-clip,5]

One of 5 and two of 10 sites lie from slot `--first` on (`trust_attacks.py` says how). E is the mean
over the last 50 slots. The ratio is E over that of the plain mean without the liars, on the same
draws; for honest sites, over that of the plain mean with them. Finished cases are kept as lines of
a file, so that a run that was stopped goes on; `--fresh` forgets them, as one must when the code
has changed. Writes `benchmarks/results/trust.md`, with all cases that are known of so many slots.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trust_attacks import ATTACKS, Lying
from trust_cases import GONE, RULES, SITES, Case, page

from fedkoopman.config.study import Study
from fedkoopman.errors import ComputationError
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of

HERE = Path(__file__).parent / "results"
TAIL = 50


def experiment_for(case: Case) -> Experiment:
    """The default federation with some sites that lie, or without them."""
    values = {"clients.count": case.sites, "aggregation.liars": len(case.liars)}
    study = Study.paper_default(slots=case.slots, seed=case.seed).with_values(
        values | RULES[case.rule]
    )
    honest = experiment_of(study, case.seed)
    if "guard" in case.rule and not hasattr(honest.algorithm, "review"):
        raise SystemExit("this version has no guard: leave it out by --only")
    if case.attack != GONE:
        algorithm = Lying(honest.algorithm, case.liars, case.attack, case.first)
        return replace(honest, algorithm=algorithm)
    stay = [n for n in range(case.sites) if n not in case.liars]
    thresholds = tuple(float(honest.problem.thresholds[n]) for n in stay)
    return replace(honest, clients=tuple(honest.clients[n] for n in stay), segments=thresholds)


def measured(case: Case, workers: Workers) -> dict[str, Any]:
    """What became of a case.

    Returns: E of the last slots; how many updates of its own each liar had sent, the lie among
    them, when it was named (null: never); honest sites that were named; seconds.
    """
    began, records = time.perf_counter(), []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a model that is ruined overflows
            for outcome in simulate_federation(experiment_for(case), workers):
                records.append(outcome.record)
    except ComputationError:  # the state is not finite any more
        error = math.inf
    else:
        error = statistics.fmean(record["E"] for record in records[-TAIL:])
    lies = [record for record in records if record["slot"] >= case.first]
    named: list[int | None] = []
    for liar in case.liars:
        sent = 0
        for record in lies:
            sent += liar in record["active"]
            if liar in record.get("suspects", ()):
                named.append(sent)
                break
        else:
            named.append(None)
    suspects = {n for record in records for n in record.get("suspects", ())}
    return {
        "E": error if math.isfinite(error) else None,
        "named": named if case.attack not in (GONE, "none") else [],
        "honest_named": sorted(suspects - set(case.liars if case.attack != "none" else ())),
        "seconds": round(time.perf_counter() - began, 1),
    }


def cases(
    seeds: int,
    slots: int,
    first: int,
    rules: Sequence[str],
    attacks: Sequence[str],
    sites: Sequence[int],
) -> Iterator[Case]:
    """All runs that a table needs, seed by seed, so that an early stop leaves whole seeds."""
    for seed in range(seeds):
        for count in sites:
            yield Case("mean", GONE, count, seed, slots, first)
            yield Case("mean", "none", count, seed, slots, first)
            for rule in rules:
                for attack in ("none", *attacks):
                    if (rule, attack) != ("mean", "none"):
                        yield Case(rule, attack, count, seed, slots, first)


def read_results(path: Path) -> dict[Case, dict[str, Any]]:
    """What is known already; a last line that was cut off is not."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[Case(**row["case"])] = row["found"]
    return found


def chosen(given: str) -> tuple[list[str], list[str], list[int]]:
    """Rules, attacks and numbers of sites that `--only` names; of a sort it does not name, all."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    known = [*RULES, *ATTACKS, *map(str, SITES)]
    for word in words:
        if word not in known:
            raise SystemExit(f"--only has {word!r}: give some of {', '.join(known)}")
    rules = [name for name in RULES if name in words] or list(RULES)
    attacks = [name for name in ATTACKS if name in words and name != "none"]
    every = [name for name in ATTACKS if name != "none"] if "none" not in words else []
    sites = [count for count in SITES if str(count) in words] or list(SITES)
    return rules, attacks or every, sites


def main() -> None:
    """Run what is not known yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--first", type=int, default=50, help="slot of the first lie")
    parser.add_argument("--only", default="", help="rules, attacks and numbers of sites")
    parser.add_argument("--results", type=Path, default=HERE / "trust.jsonl", help="finished cases")
    parser.add_argument("--page", type=Path, default=HERE / "trust.md")
    parser.add_argument("--fresh", action="store_true", help="forget finished cases")
    given = parser.parse_args()
    if given.fresh:
        given.results.unlink(missing_ok=True)
    wanted = list(cases(given.seeds, given.slots, given.first, *chosen(given.only)))
    results = read_results(given.results)
    with Workers(cores()) as workers:
        for place, case in enumerate(wanted, 1):
            if case in results:
                continue
            results[case] = measured(case, workers)
            with given.results.open("a") as file:
                file.write(json.dumps({"case": asdict(case), "found": results[case]}) + "\n")
            print(f"{place}/{len(wanted)}", *asdict(case).values(), results[case], flush=True)
    text = page(results, given.slots, given.first)
    given.page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
