"""The server of a federation: per slot poll, choose, train, validate, aggregate, save, acknowledge.

Every site is told, with the next message it gets, which slot's safely saved aggregate has spent its
data; until then it keeps them. Whatever ends this process, and whenever: it goes on from the last
saved slot, asks the same questions, and gets the same answers. So no sample is lost, and none is
trained on twice.

A slot's record is complete when its model is scored, which sites do with the next slot's first
round. It waits in the checkpoint until then.

    python -m fedkoopman.deploy.server.loop --settings DIR/server/serve.json

is what `fedkoopman serve` starts. It ends with 0 when the run is finished, with 2 when a person has
to correct the input, with 130 when it was told to stop, and otherwise with 1, as on a full disk:
then it may be started again.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.heeding import heeded
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.user_code import blamed

if TYPE_CHECKING:
    from flwr.superlink.grid import HttpGrid

    from fedkoopman.config.study import Study
    from fedkoopman.deploy.provisioning.roster import Roster
    from fedkoopman.deploy.server.asking import Fleet
    from fedkoopman.runs.run import Progress

__all__ = ["federate", "main", "run_on"]

REJOIN = 90.0
"""Seconds for which a server that was started again waits for the sites that it had."""
FAREWELL = 60.0
"""Seconds for which, after the last slot, sites that do not answer are asked."""
FINISHED, FAILED, STOPPED = 0, 1, 130
NAMED = 6
"""Up to so many sites are named in a line; more are counted."""
KEYS = {"deadline", "fleet", "out", "period", "study", "wait_for"}
"""Of a settings file."""
LINK = {"address", "certificates", "secret"}
"""Further keys, of where the SuperLink is."""


def say_to_log(line: str) -> None:
    """One line for people."""
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
    patience: tuple[float, float] = (REJOIN, FAREWELL),
    about: Callable[[], Mapping[str, Any]] = dict,
) -> dict[str, Any] | None:
    """Serve a study to its end, from wherever it was left; its summary, or None if stopped.

    Arguments:
        study: what is learnt; files of its sites are with the sites.
        fleet: how sites are asked.
        roster: reads who is enrolled; sites may come and go meanwhile.
        out: the run directory.
        period: seconds from one slot's beginning to the next; 0 for as soon as possible.
        deadline: seconds that a site may take to answer.
        wait_for: sites that must have answered before the first slot; None for all.
        tell: hears of every finished slot.
        stop: when it is set, the server ends between two steps, with everything saved.
        say: tells people what happens.
        patience: seconds for which a server that goes on waits for its sites, and for which a
            finished one waits for them to hear of it.
        about: tells what else the status tells.
    """
    from fedkoopman.deploy.servable import check_servable
    from fedkoopman.deploy.server.coordinator import Coordinator
    from fedkoopman.deploy.server.rounds import Rounds
    from fedkoopman.deploy.server.server_state import ServerDirectory
    from fedkoopman.deploy.wire import Envelope
    from fedkoopman.runs.experiment import parts_of

    check_servable(study, period)
    enrolled = roster()
    parts = parts_of(study, study.seed, len(enrolled.sites))
    mark = f"{study.digest()}:{study.seed}"
    unhurried = period >= deadline
    rounds = Rounds(
        fleet, roster, Envelope(mark), deadline, unhurried, stop or threading.Event(), say
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
    """Serve what a settings file says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fedkoopman.deploy.server.loop")
    parser.add_argument("--settings", type=Path, required=True, metavar="FILE")
    path = parser.parse_args(arguments).settings
    try:
        with heeded() as stop:
            found = _serve(_settings(path, KEYS | LINK), stop)
    except (InputError, ComputationError) as error:
        return _failed(error, error.exit_code)
    except OSError as error:
        return _failed(f"the machine failed: {error}", FAILED)
    except MemoryError:
        return _failed("the machine has not enough memory for this study", FAILED)
    except Exception as error:
        if (users := blamed(error)) is None:
            raise
        return _failed(users, users.exit_code)
    return FINISHED if found is not None else STOPPED


def run_on(grid: "HttpGrid", path: Path) -> None:
    """Serve what a settings file says, in a process that Flower started.

    Arguments:
        grid: Flower's way to the nodes.
        path: of the settings.
    """
    if _federated(_settings(path, KEYS), grid, lambda: False, threading.Event()) is None:
        raise ComputationError("the server was stopped: run it again, it goes on where it was")


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
    from fedkoopman.deploy.flower.fleet import acquire_server_task

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
    from fedkoopman.deploy.server.asking import site_of
    from fedkoopman.deploy.wire import Acknowledge, Envelope, encode_requests

    study, fleet = shared_study(Path(settings["study"])), Path(settings["fleet"])
    hello = encode_requests(Envelope(f"{study.digest()}:{study.seed}"), [Acknowledge(0, 0)])

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
    """What is told of a finished slot.

    Arguments:
        names: of the sites, by their identities.
    """
    record = event.record
    words = [f"slot {event.slot:,} of {event.slots:,}"]
    for name in ("loss", "E"):
        value = record.get(name)
        words.append(f"{name} {'unknown' if value is None else f'{value:.4g}'}")
    words.append(f"trained {_named(record['active'], names) or 'none'}")
    for key in ("refused", "late", "missing"):
        if key in record:
            words.append(f"{key} {_named(record[key], names)}")
    return "  ".join(words)


def _named(places: Sequence[int], names: Sequence[str]) -> str:
    few = len(places) <= NAMED
    return ",".join(names[n] for n in places) if few else f"{len(places)} sites"


def _failed(message: object, code: int) -> int:
    say_to_log(f"error: {' '.join(str(message).split())}")
    return code


if __name__ == "__main__":
    sys.exit(main())
