"""The end of a served run: last acknowledgements, the finished model, and what is told of it."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.deploy.server.rounds import Rounds
from fedkoopman.deploy.server.scores import believed_sums, check_measured, check_table
from fedkoopman.deploy.server.server_state import ServerDirectory, ServerState
from fedkoopman.deploy.server.standings import heard
from fedkoopman.deploy.wire import Acknowledge, Evaluated, Request
from fedkoopman.errors import ComputationError
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.koopman.card import input_rows
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.runs.results import finished_model, summarise


def finished_before(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that is finished."""
    try:
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return found if found["finished"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unheard(state: ServerState, rounds: Rounds) -> list[str]:
    """Sites that do not know yet that their last data are spent."""
    return [
        site.name
        for site in rounds.roster.active
        if state.of(site.name).included > state.of(site.name).heard
    ]


def acknowledge_all(
    rounds: Rounds, state: ServerState, say: Callable[[str], None], patience: float
) -> ServerState:
    """Tell every site that trained which slot has spent its data; for a while, then give up."""

    def requests(name: str) -> Sequence[Request]:
        return [Acknowledge(state.slot, state.of(name).included)]

    began = time.monotonic()
    rounds.refresh()
    while left := unheard(state, rounds):
        online = [name for name in left if rounds.seen[name]["online"]]
        answers = rounds.ask(state.slot, {name: requests(name) for name in online})
        state = heard(state, answers.replies, rounds.answered)
        if not (left := unheard(state, rounds)) or time.monotonic() - began > patience:
            break
        rounds.say_once(f"waiting for {', '.join(left)} to hear of the end", about="waiting")
        rounds.pause(0.5)
        rounds.refresh()
    say_unheard(state, rounds, say)
    return state


def say_unheard(state: ServerState, rounds: Rounds, say: Callable[[str], None]) -> None:
    """Tell who did not hear of the end."""
    if left := unheard(state, rounds):
        say(
            f"{', '.join(left)} did not hear that slot {state.slot} is saved: what was trained on "
            "stays there until fedkoopman serve is started again, and is not trained on twice"
        )


def broken_sums(measured: Sequence[Evaluated], problem: Problem) -> dict[str, str]:
    """By site, why its sums for the finished model cannot be."""
    found = {
        reply.site: check_measured(reply.measured, problem.architecture)
        for reply in measured
        if reply.windows
    }
    return {site: reason for site, reason in found.items() if reason}


def usable_sums(measured: Sequence[Evaluated], problem: Problem) -> dict[str, Arrays]:
    """By site, the sums for the finished model that can be, and are like the others'."""
    broken = broken_sums(measured, problem)
    return believed_sums(
        {one.site: one.measured for one in measured if one.windows and one.site not in broken}
    )


def results(
    study: Study,
    problem: Problem,
    directory: ServerDirectory,
    state: ServerState,
    measured: Sequence[Evaluated],
    more: Mapping[str, Any],
    names: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Write model, card, rollout and summary; the summary.

    Arguments:
        names: of all sites, in the order of their numbers in records.
        measured: what sites said of the last model, in the order of the roster.
        more: further entries of the summary.
    """
    sums: dict[str, Mapping[str, NDArray]] = {}
    tables: dict[str, Any] = {}
    broken = broken_sums(measured, problem)
    for reply in measured:
        if reply.windows and reply.site not in broken:
            sums[reply.site] = reply.measured
        if reason := check_table(reply.scores, problem.horizon):
            if reply.scores:
                say(f"site {reply.site} is left out of the table of sites: its own {reason}")
        else:
            tables[reply.site] = dict(reply.scores)
    if not sums:
        raise ComputationError(
            "no site measured the last model on held-out data, which its noise is known by: let a "
            "site hold something out (data.held_out), and serve again"
        )
    used = believed_sums(sums)
    if others := [site for site in sums if site not in used]:
        say(
            f"sums of {', '.join(others)} are not finite, or far from the others', and not added up"
        )
    learned = problem.algorithm.model(problem, state.arrays)
    private = {"privacy": more["privacy"]} if "privacy" in more else None
    records = directory.records()
    model = finished_model(study, problem, learned, records, list(used.values()), private)
    untrained = {study.seed: directory.untrained}
    summary = summarise(study, {study.seed: records}, untrained, state.seconds, names)
    summary |= {"sites": tables, "parameters": {}, **more}
    directory.finish(model, rollout_of(problem, model), summary)
    return summary


def rollout_of(problem: Problem, model: DeepKoopman) -> dict[str, Any]:
    """What the report shows of a model without any site's states: its eigenvalues."""
    return {
        "dt": float(problem.system.dt),
        "depth": problem.architecture.depth,
        "names": list(problem.system.names),
        "units": list(problem.system.units),
        "truth": [],
        "one_step": [],
        "free": [],
        **({"driven_by": input_rows(model)} if model.n_inputs_ else {}),
        "eigenvalues": [[float(v.real), float(v.imag)] for v in model.eigenvalues_],
    }
