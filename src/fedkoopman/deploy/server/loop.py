"""The server of a federation: per slot poll, choose, train, validate, aggregate, save, acknowledge.

A site keeps its data until the server tells it, with its next message, that a saved model was
trained on them. If this process ends at any point, it continues from the last saved slot, asks the
same questions, and gets the same answers. So no sample is lost, and none is trained on twice.

Sites score a slot's model in the first round of the next slot. Until then the slot's record is
incomplete, and kept in the checkpoint.

    python -m fedkoopman.deploy.server.loop --settings DIR/server/serve.json

is what `fedkoopman serve` starts. Its exit status is 0 when the run is finished, 2 when the input
is wrong and a person must act, 130 when it was asked to stop, and 1 otherwise, as on a full disk:
then it can be restarted.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.supervisor import exit_status
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.signals import stop_requested

if TYPE_CHECKING:
    from flwr.superlink.grid import HttpGrid

    from fedkoopman.config.study import Study
    from fedkoopman.deploy.provisioning.roster import Roster
    from fedkoopman.deploy.wire import Fleet
    from fedkoopman.runs.run import Progress

REJOIN = 90.0
"""Seconds for which a restarted server waits for the sites that it had."""
LAST_ROUND = 60.0
"""Seconds for which sites that do not answer are asked after the last slot."""
FINISHED, STOPPED = 0, 130
NAMED = 6
"""Sites that are named in a line; more are only counted."""
KEYS = {"deadline", "fleet", "out", "period", "study", "wait_for"}
"""What a settings file must have."""
LINK = {"address", "certificates", "secret"}
"""What it must also have if this process itself connects to the SuperLink."""


def say_to_log(line: str) -> None:
    """Print one line for people."""
    print(line, file=sys.stderr, flush=True)


def federate(
    study: "Study",
    fleet: "Fleet",
    roster: "Callable[[], Roster]",
    out: Path,
    *,
    period: float = 0.0,
    deadline: float = 300.0,
    wait_for: int | None = None,
    tell: "Callable[[Progress], None]" = lambda _: None,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = say_to_log,
    patience: tuple[float, float] = (REJOIN, LAST_ROUND),
    about: Callable[[], Mapping[str, Any]] = dict,
) -> dict[str, Any] | None:
    """Serve a study to its end, from its last saved slot; its summary, or None if stopped.

    Arguments:
        study: what is learnt; the files of its sites are with the sites.
        fleet: carries messages to the sites.
        roster: reads who is enrolled; that may change meanwhile.
        period: seconds from one slot's beginning to the next; 0 for as soon as possible.
        deadline: seconds that a site may take to answer.
        wait_for: sites that must have answered before the first slot; None for all.
        tell: is called with every finished slot.
        stop: when it is set, the server ends between two steps, with everything saved.
        say: is called with lines for people.
        patience: seconds for which a restarted server waits for its sites, and for which a
            finished one tries to tell them that it is finished.
        about: further entries of the status.
    """
    from fedkoopman.deploy.provisioning.kit_content import check_servable
    from fedkoopman.deploy.server.coordinator import Coordinator
    from fedkoopman.deploy.server.rounds import Rounds
    from fedkoopman.deploy.server.server_state import ServerDirectory
    from fedkoopman.deploy.wire import Envelope
    from fedkoopman.runs.experiment import problem_of

    check_servable(study, period)
    enrolled = roster()
    parts = problem_of(study, study.seed, len(enrolled.sites))
    rounds = Rounds(
        fleet,
        roster,
        Envelope(study.seeded_digest()),
        deadline,
        always_ask=period >= deadline,
        stop=stop or threading.Event(),
        say=say,
    )
    facts = {
        "digest": study.digest(),
        "seed": study.seed,
        "slots": study.slots,
        "period": period,
        "deadline": deadline,
    }
    with ServerDirectory.open(out, study, parts, enrolled.names) as directory:
        return Coordinator(
            study,
            rounds,
            directory,
            period=period,
            wait_for=wait_for,
            patience=patience,
            tell=tell,
            say=say,
            about=lambda: {**facts, **about()},
        ).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve what a settings file says; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fedkoopman.deploy.server.loop")
    parser.add_argument("--settings", type=Path, required=True, metavar="FILE")
    path = parser.parse_args(arguments).settings

    def serve() -> int:
        with stop_requested() as stop:
            found = _serve(_settings(path, KEYS | LINK), stop)
        return FINISHED if found is not None else STOPPED

    return exit_status(serve, "the machine has not enough memory for this study")


def run_on(grid: "HttpGrid", path: Path) -> None:
    """Serve what a settings file says, in a process that Flower started."""
    if _federated(_settings(path, KEYS), grid, lambda: False, threading.Event()) is None:
        raise ComputationError("the server was stopped: run it again, it continues from there")


def _settings(path: Path, keys: set[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = keys - set(found)
    except OSError as error:
        raise system_error(f"cannot read {path}", error, "fedkoopman serve writes it") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"cannot read {path} ({error}): fedkoopman serve writes it") from error
    if missing:
        raise InputError(f"{path} has no {', '.join(sorted(missing))}: fedkoopman serve writes it")
    return found


def _serve(settings: Mapping[str, Any], stop: threading.Event) -> dict[str, Any] | None:
    """Serve as the process that `fedkoopman serve` started."""
    from fedkoopman.deploy.flower.tasks import acquire_server_task

    certificates = settings["certificates"]
    with acquire_server_task(
        settings["address"],
        Path(settings["secret"]),
        certificates=None if certificates is None else Path(certificates),
    ) as task:
        return _federated(settings, task.grid, task.lost.is_set, stop)


def _federated(
    settings: Mapping[str, Any], grid: "HttpGrid", lost: Callable[[], bool], stop: threading.Event
) -> dict[str, Any] | None:
    from fedkoopman.deploy.flower.fleet import FlowerFleet
    from fedkoopman.deploy.provisioning.certificates import expires
    from fedkoopman.deploy.provisioning.provision import shared_study
    from fedkoopman.deploy.provisioning.roster import Roster
    from fedkoopman.deploy.server.rounds import site_of
    from fedkoopman.deploy.wire import Acknowledge, Envelope, encode_requests

    study, fleet = shared_study(Path(settings["study"])), Path(settings["fleet"])
    hello = encode_requests(Envelope(study.seeded_digest()), [Acknowledge(0, 0)])

    def roster() -> Roster:
        return Roster.load(fleet)

    def about() -> dict[str, Any]:
        try:
            until = expires(fleet / "server.crt").isoformat() if roster().secure else ""
        except (InputError, ComputationError):  # being renewed
            until = ""
        return {"certificate_expires": until}

    return federate(
        study,
        FlowerFleet(grid, roster, site_of=site_of, hello=hello, lost=lost),
        roster,
        Path(settings["out"]),
        period=settings["period"],
        deadline=settings["deadline"],
        wait_for=settings["wait_for"],
        tell=lambda event: say_to_log(slot_line(event, roster().names)),
        stop=stop,
        about=about,
    )


def slot_line(event: "Progress", names: Sequence[str]) -> str:
    """A line about a finished slot; `names` are the sites', by their identities."""
    record = event.record
    words = [f"slot {event.slot:,} of {event.slots:,}"]
    for name in ("loss", "E"):
        value = record.get(name)
        words.append(f"{name} {'unknown' if value is None else f'{value:.4g}'}")
    words.append(f"trained {_named(record['active'], names) or 'none'}")
    for key in ("refused", "alone", "late", "missing"):
        if key in record:
            words.append(f"{key} {_named(record[key], names)}")
    return "  ".join(words)


def _named(places: Sequence[int], names: Sequence[str]) -> str:
    few = len(places) <= NAMED
    return ",".join(names[n] for n in places) if few else f"{len(places)} sites"


if __name__ == "__main__":
    sys.exit(main())
