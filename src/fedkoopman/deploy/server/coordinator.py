"""What the server does, step by step: slots until there are no more, then the end.

A step that has to survive a crash is followed by nothing before the checkpoint is on the disk; a
step before that can be done again, with the same answers.

Tests kill the process at any of these steps: with FEDKOOPMAN_CRASH="trained:3" it sends itself
SIGKILL when slot 3 has got its updates. Several steps are separated by commas. Each happens once
per run directory, so that a restarted server gets further.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.deploy.server.comparing import benefit_told
from fedkoopman.deploy.server.ending import (
    acknowledge_all,
    broken_sums,
    finished_before,
    results,
    say_unheard,
    usable_sums,
)
from fedkoopman.deploy.server.rounds import Answers, Rounds, Stopped
from fedkoopman.deploy.server.scores import Scored, evaluated, scored
from fedkoopman.deploy.server.server_state import ServerDirectory, ServerState, server_secret
from fedkoopman.deploy.server.standings import (
    Counted,
    all_struck,
    away_before,
    counted,
    first_requests,
    heard,
    judged,
    last_requests,
    owing,
    settled,
    slot_requests,
    trusted,
)
from fedkoopman.deploy.server.status import (
    LivePage,
    StatusFile,
    delete_requests,
    readmission_requests,
)
from fedkoopman.deploy.server.summing import Summed, sum_of
from fedkoopman.deploy.server.validation import RECENT, Accepted, Expected, check_answered
from fedkoopman.deploy.wire import Answered, Evaluated, digest_of
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.privacy import privacy_told
from fedkoopman.federation.slot import (
    Judged,
    ask,
    concluded,
    record_of,
    second_requests,
    summable,
)
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.results import METRICS, relift_of
from fedkoopman.runs.run import Progress

STEPS = (
    "polled", "decided", "trained", "validated", "aggregated", "checkpointed", "acknowledged",
)  # fmt: skip
"""Steps of a slot, in order. A slot is acknowledged in the first round of the next one."""
CRASH = "FEDKOOPMAN_CRASH"


class Coordinator:
    """One process's part of a served run."""

    def __init__(
        self,
        study: Study,
        rounds: Rounds,
        directory: ServerDirectory,
        *,
        period: float,
        wait_for: int | None,
        patience: tuple[float, float],
        tell: Callable[[Progress], None],
        say: Callable[[str], None],
        about: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Arguments as for `loop.federate`."""
        self._study, self._rounds, self._directory = study, rounds, directory
        self._period, self._wait_for, self._patience = period, wait_for, patience
        self._tell, self._say, self._about = tell, say, about
        self._problem = self._problem_of(len(rounds.roster.sites))
        self._page = LivePage(directory.path, say)
        self._status = StatusFile(directory.path, {"study": study.name})
        self._began, self._before = time.monotonic(), 0.0
        self._origin = math.nan
        """When the first slot of this process began."""

    def _problem_of(self, clients: int) -> Problem:
        """The study, with a secret for noise that the server adds: sites know the study's seed."""
        problem = problem_of(self._study, self._study.seed, clients)
        if problem.privacy.mode != "central":
            return problem
        return replace(problem, secret=server_secret(self._directory.path))

    def run(self) -> dict[str, Any] | None:
        """All slots that are left, and the end."""
        state = self._directory.restore()
        self._before = state.seconds
        if self._directory.last is not None:
            self._told(self._directory.last)
        try:
            if (summary := finished_before(self._directory.path)) is not None:
                self._finished_again(state)
                return summary
            if state.slot:
                self._say(f"going on after slot {state.slot} of {self._study.slots}")
            while state.slot < self._study.slots:
                self._await_slot(state)
                state = self._slot(state)
            return self._end(state)
        except Stopped:
            self._show("stopped", state)
            self._say(f"stopped after slot {state.slot}, which is saved: serve again to go on")
            return None

    def _slot(self, state: ServerState) -> ServerState:
        """One slot; what is returned is saved."""
        slot, wanted = state.slot + 1, readmission_requests(self._directory.path)
        state = self._readmitted(state, wanted)
        self._show("polling", state)
        answers = self._first_round(state, slot)
        self._crash("acknowledged", state.slot)
        state = heard(state, answers.replies, self._rounds.answered)
        drawn = self._study.sites.arrivals == "drawn"
        state, polled, arrived, lines = counted(state, answers, slot, drawn)
        self._say_all(lines)
        state = self._recorded(state, answers)
        self._crash("polled", slot)
        asked, alone = self._asked(state, slot, polled)
        self._crash("decided", slot)
        found, accepted, summed = self._answers(state, slot, asked)
        found = {name: replace(one, asked=state.of(name).owes) for name, one in found.items()}
        self._crash("validated", slot)
        reviews = self._reviews(state, slot, found, polled)
        self._show("aggregating", state)
        arrays, told = concluded(
            self._problem, state.arrays, slot, found.values(), reviews, summed.total
        )
        self._crash("aggregated", slot)
        spending = [
            name for name, (_, _, request) in asked.items() if self._schemas[request.kind].spends
        ]
        state, lines = settled(state, slot, found, spending)
        state, judgements = trusted(state, slot, told, self._rounds.roster.names)
        lines += judgements
        state, more = all_struck(state, summed.blamed, slot)
        told = {**told, **summed.told}
        requests = {name: request for name, (_, _, request) in asked.items()}
        lasting = {name: r for name, r in requests.items() if self._schemas[r.kind].lasting}
        state = owing(state, slot, found, lasting)
        state = replace(
            state,
            slot=slot,
            arrays=arrays,
            updates=(*state.updates, *accepted)[-RECENT:],
            scores=None if any(one.accepted for one in found.values()) else state.scores,
            pending=self._record(slot, state, polled, arrived, found, told, alone),
            seconds=self._seconds(),
        )
        self._show("saving", state)
        self._directory.save(state)
        self._crash("checkpointed", slot)
        self._say_all([*lines, *more])
        delete_requests(wanted)
        self._page.refresh()
        return state

    def _first_round(self, state: ServerState, slot: int) -> Answers:
        """Acknowledge, score and poll; at first, all who are expected are waited for."""
        questions, least = first_requests(state, self._model(state)), self._study.clients.least
        lacking: Callable[[set[str]], Sequence[str]] | None = None
        patience = math.inf
        if math.isnan(self._origin):
            patience = self._patience[0] if state.slot else math.inf
            lacking = partial(self._lacking, gone=away_before(state, self._rounds.roster))
        found = self._rounds.gather(
            slot, questions, lacking, patience, least, lambda: self._show("polling", state)
        )
        if math.isnan(self._origin):
            self._origin = time.monotonic()
        names = self._rounds.roster.names
        if len(names) != self._problem.clients:
            self._problem = self._problem_of(len(names))
            self._directory.name_sites(names)
        return found

    def _lacking(self, answered: set[str], gone: Collection[str]) -> list[str]:
        """Whom to wait for before the first slot of this process; not for those that were gone."""
        names = [site.name for site in self._rounds.roster.active if site.name not in gone]
        enough = len(names) if self._wait_for is None else min(self._wait_for, len(names))
        return [] if len(answered) >= enough else [n for n in names if n not in answered]

    def _recorded(self, state: ServerState, answers: Answers) -> ServerState:
        """Complete the last slot's record with its model's scores, and write it."""
        found = Scored(dict(state.scores or {})) if state.scores else self._scored(state, answers)
        state, lines = all_struck(state, found.broken, state.slot)
        self._say_all(lines)
        if state.slot == 0:
            said, sites = evaluated(answers, self._rounds.roster), self._rounds.roster.active
            if len(said) >= len(sites) and not any(one.windows for one in said):
                raise InputError(
                    "no site holds anything out to score models with: let one do so "
                    "(data.held_out in its site file), and serve again"
                )
            first = found.or_unknown()
            self._directory.begin({name: first[name] for name in METRICS})
        elif state.pending is not None:
            record = found.completing(state.pending, self._rounds.roster, self._seconds())
            self._directory.append(record)
            self._told(record)
            if found.left_out:
                self._say(
                    f"scores of {', '.join(found.left_out)} in slot {state.slot} are not finite, "
                    "or far from the others', and not averaged in"
                )
        return replace(state, scores=found.scores, pending=None)

    def _scored(self, state: ServerState, answers: Answers) -> Scored:
        base = digest_of(self._model(state))
        return scored(evaluated(answers, self._rounds.roster), state.slot, base, self._problem)

    @property
    def _schemas(self) -> Mapping[str, Schema]:
        return self._problem.algorithm.messages(self._problem)

    def _model(self, state: ServerState) -> Arrays:
        return self._problem.algorithm.model(self._problem, state.arrays)

    def _asked(
        self, state: ServerState, slot: int, polled: Counted
    ) -> tuple[dict[str, tuple[int, int, Message]], tuple[int, ...]]:
        """Who is asked what: place, samples that wait, and request, in the order of the roster;
        and who is not asked since only sums may be seen, and nobody else is ready."""
        sites = self._rounds.roster.sites
        idle = {s.name for s in sites if s.revoked or state.of(s.name).set_aside}
        ready = {name: one.buffered for name, one in polled.items() if name not in idle}
        waiting = np.array([ready.get(site.name, 0) for site in sites], np.int64)
        present = [site.name in ready for site in sites]
        owed = [state.of(site.name).owes for site in sites]
        chosen = ask(self._problem, state.arrays, slot, waiting, present, owed)
        asked, alone = summable(self._problem, chosen)
        if alone:
            names = ", ".join(sites[n].name for n in alone)
            line = f"{names} waits until another site is ready, as a sum of one hides nothing"
            self._rounds.say_once(line, about="alone")
        elif asked:
            self._rounds.over("alone")
        questions = {sites[n].name: (n, int(waiting[n]), one) for n, one in asked.items()}
        return questions, alone

    def _answers(
        self, state: ServerState, slot: int, asked: Mapping[str, tuple[int, int, Message]]
    ) -> tuple[dict[str, Judged], tuple[Accepted, ...], Summed]:
        """What those who were asked sent, judged; and its sum, where only that is seen."""
        self._show("training", state, asked=list(asked))
        if asked and self._problem.aggregation.secure:
            return self._sum(slot, asked)
        requests = {name: request for name, (_, _, request) in asked.items()}
        answers = self._rounds.ask(slot, slot_requests(slot, requests))
        self._crash("trained", slot)
        self._show("validating", state)
        found, accepted = judged(answers, asked, slot, self._schemas, state.updates)
        return dict(zip(asked, found, strict=True)), accepted, Summed()

    def _sum(
        self, slot: int, asked: Mapping[str, tuple[int, int, Message]]
    ) -> tuple[dict[str, Judged], tuple[Accepted, ...], Summed]:
        """As `_answers`, where the server may see only the sum."""
        summed = sum_of(
            self._rounds,
            self._problem,
            self._schemas,
            slot,
            asked,
            passed=lambda step: self._crash(step, slot),
        )
        self._crash("trained", slot)
        if summed.trouble:
            self._say(
                f"NO SUM in slot {slot}: {summed.trouble}; nobody's data are used, and the next "
                "slot tries again"
            )
        return summed.judged(asked), (), summed

    def _reviews(
        self, state: ServerState, slot: int, found: Mapping[str, Judged], polled: Counted
    ) -> dict[int, Message]:
        """What sites answer to the algorithm's second requests, by their places.

        Nobody is struck for what is missing or wrong here: it does not count, and that is all.
        """
        # Who has just been silent would cost the others another deadline.
        silent = {name for name, one in found.items() if not one.answered}
        here = {
            n: site.name
            for n, site in enumerate(self._rounds.roster.sites)
            if site.name in polled and site.name not in silent and not site.revoked
            if not state.of(site.name).set_aside
        }
        asked = second_requests(self._problem, state.arrays, slot, found.values(), list(here))
        if not asked:
            return {}
        self._show("judging", state, asked=[here[n] for n in asked])
        requests = {here[n]: message for n, message in asked.items()}
        answers = self._rounds.ask(slot, slot_requests(slot, requests))
        replies = dict[int, Message]()
        for n, message in asked.items():
            [reply] = answers.replies.get(here[n], (None,))
            expected = Expected(here[n], slot, message, 0, self._schemas)
            if isinstance(reply, Answered) and not check_answered(reply, expected, ()).reason:
                replies[n] = reply.message
        return replies

    def _record(
        self,
        slot: int,
        state: ServerState,
        polled: Counted,
        arrived: Sequence[str],
        found: Mapping[str, Judged],
        told: Mapping[str, Any],
        alone: Sequence[int],
    ) -> dict[str, Any]:
        """A slot's record, as a local run has it.

        What a local run does not know is told only where there is something to tell: `late` were
        asked and sent nothing to judge, `missing` did not answer at all, `set_aside` are not asked.
        """
        roster = self._rounds.roster
        place = {site.name: site.identity for site in roster.sites}
        here = [site.name for site in roster.active]
        return record_of(
            slot,
            list(found.values()),
            arrived=sorted(place[name] for name in arrived),
            buffered=[polled[s.name].buffered if s.name in polled else 0 for s in roster.sites],
            told=told,
            alone=alone,
            late=[one.client for one in found.values() if not one.answered],
            missing=[place[name] for name in here if name not in polled],
            set_aside=[place[name] for name in here if state.of(name).set_aside],
        )

    def _end(self, state: ServerState) -> dict[str, Any]:
        """The last acknowledgements and scores, and all that a finished run leaves."""

        def lacking(answered: set[str]) -> list[str]:
            return [s.name for s in self._rounds.roster.active if s.name not in answered]

        self._show("acknowledging", state)
        requests = last_requests(state, self._model(state))
        answers = self._rounds.gather(state.slot, requests, lacking, self._patience[1])
        self._crash("acknowledged", state.slot)
        state = heard(state, answers.replies, self._rounds.answered)
        broken = self._scored(state, answers).broken
        measured = [
            one for one in evaluated(answers, self._rounds.roster) if one.site not in broken
        ]
        state, lines = all_struck(state, broken_sums(measured, self._problem), state.slot)
        self._say_all(lines)
        state = replace(self._recorded(state, answers), seconds=self._seconds())
        self._directory.save(state)
        self._show("finishing", state)
        more = self._benefit(state, measured)
        names = self._rounds.roster.names
        more |= privacy_told(self._problem, state.arrays, names)
        summary = results(
            self._study, self._problem, self._directory, state, measured, more, names, self._say
        )
        self._page.finish()
        say_unheard(state, self._rounds, self._say)
        self._show("finished", state)
        return summary

    def _benefit(self, state: ServerState, measured: Sequence[Evaluated]) -> dict[str, Any]:
        """The finished model beside what it should beat, as the sites that are there see it."""
        if self._problem.privacy.mode == "site":
            return {}  # to compare, sites would send sums of their states
        self._show("comparing", state)
        sites, model = [one.site for one in measured], self._model(state)
        relift = relift_of(list(usable_sums(measured, self._problem).values()))
        found = benefit_told(self._problem, model, relift, self._rounds, sites, self._say)
        if found:
            self._say(found["benefit"]["sentence"])
        return found

    def _finished_again(self, state: ServerState) -> None:
        self._say(f"{self._directory.path} holds a finished run: nothing is left to be learnt")
        self._show("acknowledging", state)
        state = acknowledge_all(self._rounds, state, self._say, self._patience[1])
        self._directory.save(state)
        self._show("finished", state)

    def _readmitted(self, state: ServerState, wanted: Mapping[str, Path]) -> ServerState:
        for name in wanted:
            if state.of(name).set_aside:
                self._say(f"site {name} is taken back")
                state = state.with_sites({name: state.of(name).readmitted()})
        return state

    def _await_slot(self, state: ServerState) -> None:
        """Slots begin on the grid of periods, however long they take; without one, at once."""
        if not self._period or math.isnan(self._origin):
            self._rounds.pause(0.0)
            return
        self._show("waiting", state)
        passed = time.monotonic() - self._origin
        self._rounds.until(self._origin + self._period * math.ceil(passed / self._period))

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def _told(self, record: Mapping[str, Any]) -> None:
        self._tell(Progress(self._study.seed, record["slot"], self._study.slots, dict(record)))

    def _say_all(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._say(line)

    def _crash(self, step: str, slot: int) -> None:
        crash_if_asked(step, slot, self._directory.path)

    def _show(self, step: str, state: ServerState, **more: Any) -> None:
        fleet = self._rounds.fleet
        counts = {name: getattr(fleet, name, 0) for name in ("late", "duplicates")}
        more = {**self._about(), **counts, **more}
        self._status.write(step, state, self._rounds.roster, self._rounds.seen, more)


def crash_if_asked(step: str, slot: int, folder: Path) -> None:
    """Kill this process if a test asks for it, once; a file in the folder marks that."""
    mark = folder / f".crashed-{step}-{slot}"
    if f"{step}:{slot}" in os.environ.get(CRASH, "").split(",") and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
