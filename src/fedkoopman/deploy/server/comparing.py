"""The finished model beside what it should beat: sites are asked, and their replies checked.

Nothing of this becomes part of the model, and nothing that goes wrong here keeps a run from its
end: a site whose reply cannot be is left out of the comparison, and that is said.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedkoopman.deploy.server.rounds import Rounds
from fedkoopman.deploy.server.scores import near
from fedkoopman.deploy.server.summing import sum_of
from fedkoopman.deploy.server.validation import MOST_SAMPLES, Expected, check_answered
from fedkoopman.deploy.wire import Answered, Ask
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.federation.slot import FEWEST
from fedkoopman.koopman.agreement import is_moment
from fedkoopman.runs.comparison import EVERYBODY, benefit_entry, compared, schemas

__all__ = ["benefit_told", "check_compared"]

TRIES = 3
"""How often a site is asked that does not answer in time; it keeps its answer when it has one."""


def benefit_told(
    problem: Problem,
    model: Arrays,
    relift: int,
    rounds: Rounds,
    sites: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The summary's entry; nothing if the models could not be compared, which is said.

    Arguments:
        model, relift: the finished one, and how it forecasts.
        sites: who can be asked, in the order of the roster.
        say: is called with lines for people.
    """
    known, asked = schemas(problem), list(sites)

    def exchange(request: Message) -> dict[str, Message]:
        if problem.aggregation.secure and known[known[request.kind].reply].additive:
            return _sum(request)
        found = _replies(rounds, problem.slots, request, asked)
        good = dict[str, Message]()
        for site in [site for site in asked if site in found]:
            expected = Expected(site, problem.slots, request, 0, known)
            reply = found[site]
            reason = check_answered(reply, expected, ()).reason or check_compared(reply.message)
            if reason:
                say(f"site {site} is left out of the comparison: it {reason}")
                asked.remove(site)
            else:
                good[site] = reply.message
        usual = near({site: _size(message) for site, message in good.items()})
        if far := [site for site in good if site not in usual]:
            say(f"sums of {', '.join(far)} are far from the others', and not compared with")
        return {site: good[site] for site in usual}

    def _sum(request: Message) -> dict[str, Message]:
        """The sum of the replies, where the server may see only that."""
        places = {name: rounds.roster.site(name).identity for name in asked}
        questions = {name: (place, 0, request) for name, place in places.items()}
        if len(questions) < FEWEST:
            return {}
        summed = sum_of(rounds, problem, known, problem.slots, questions)
        if summed.total is None:
            say(f"models by least squares are not compared with: {summed.trouble}")
            return {}
        if reason := check_compared(summed.total.message):
            say(f"models by least squares are not compared with: the sum {reason}")
            return {}
        return {EVERYBODY: summed.total.message}

    try:
        return benefit_entry(problem, compared(problem, model, relift, exchange))
    except (InputError, ComputationError, np.linalg.LinAlgError) as error:
        say(f"the model is not compared with others: {error}")
        return {}


def check_compared(message: Message) -> str:
    """Why a reply that fits its schema cannot be; empty if it can."""
    found = message.arrays
    if message.kind == "compared-errors":
        if not all(((one >= 0) | np.isnan(one)).all() for one in found.values()):
            return "sends errors below zero"
        return ""
    counts = [one for name, one in found.items() if name.endswith(("count", "pairs", "range"))]
    if not all(((one >= 0) & (one <= MOST_SAMPLES)).all() for one in counts):
        return "sends sums of less than nothing, or of too much"
    if any((found[name] < 0).any() for name in ("squares",) if name in found):
        return "sends squares below zero"
    grams = [one for name, one in found.items() if name.endswith(".gram")]
    if not all(is_moment(one) for one in grams):
        return "sends sums of products that are none"
    return ""


def _replies(
    rounds: Rounds, slot: int, request: Message, sites: Sequence[str]
) -> Mapping[str, Answered]:
    """What sites answered, those that take long being asked again."""
    found, left = dict[str, Answered](), list(sites)
    for _ in range(TRIES):
        answers = rounds.ask(slot, {site: [Ask(slot, request)] for site in left})
        for site, replies in answers.replies.items():
            if isinstance(replies[0], Answered):
                found[site] = replies[0]
        heard = {*answers.replies, *answers.broken, *answers.failures}
        left = [site for site in left if site not in heard]
        if not left:
            break
    return found


def _size(message: Message) -> tuple[float, ...]:
    """How large a site says that its states are, by which a liar's are told."""
    found = message.arrays
    with np.errstate(over="ignore"):
        if message.kind == "scale-to-compare":
            return (float(found["squares"].max() / max(found["count"][0], 1.0)),)
        if message.kind == "sums-to-compare":
            return (float(np.trace(found["dmd.gram"]) / max(found["dmd.pairs"][0], 1.0)),)
    return ()
