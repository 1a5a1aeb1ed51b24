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
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.supervisor import exit_status
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.signals import stop_requested

if TYPE_CHECKING:
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
KEYS = {"deadline", "fleet", "out", "period", "port", "secure", "socket", "study", "wait_for"}
"""What a settings file must have."""


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
            found = _serve(_settings(path), stop)
        return FINISHED if found is not None else STOPPED

    return exit_status(serve, "the machine has not enough memory for this study")


def _settings(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = KEYS - set(found)
    except OSError as error:
        raise system_error(f"cannot read {path}", error, "fedkoopman serve writes it") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"cannot read {path} ({error}): fedkoopman serve writes it") from error
    if missing:
        raise InputError(f"{path} has no {', '.join(sorted(missing))}: fedkoopman serve writes it")
    return found


def _serve(settings: Mapping[str, Any], stop: threading.Event) -> dict[str, Any] | None:
    """Serve as the process that `fedkoopman serve` started."""
    from fedkoopman.deploy.flower.fleet import FlowerFleet
    from fedkoopman.deploy.flower.front import serving
    from fedkoopman.deploy.flower.link import Link
    from fedkoopman.deploy.provisioning.certificates import expires
    from fedkoopman.deploy.provisioning.provision import shared_study
    from fedkoopman.deploy.provisioning.roster import RosterFile
    from fedkoopman.deploy.server.rounds import site_of

    study, folder = shared_study(Path(settings["study"])), Path(settings["fleet"])
    roster = RosterFile(folder).read

    def about() -> dict[str, Any]:
        try:
            until = expires(folder / "server.crt").isoformat() if roster().secure else ""
        except (InputError, ComputationError):  # being renewed
            until = ""
        return {"certificate_expires": until}

    link = Link(signed=settings["secure"])
    fleet = FlowerFleet(link, roster, site_of=site_of, say=say_to_log)
    with (
        _listening(settings, folder) as (listener, certificate),
        serving(link, listener, certificate),
    ):
        return federate(
            study,
            fleet,
            roster,
            Path(settings["out"]),
            period=settings["period"],
            deadline=settings["deadline"],
            wait_for=settings["wait_for"],
            tell=lambda event: say_to_log(slot_line(event, roster().names)),
            stop=stop,
            about=about,
        )


@contextmanager
def _listening(
    settings: Mapping[str, Any], folder: Path
) -> "Iterator[tuple[socket.socket, tuple[Path, Path] | None]]":
    """Where the proxy reaches this process, or sites where there is none; and what TLS needs."""
    if settings["socket"]:
        from fedkoopman.deploy.site.site_socket import listening as listening_at

        with listening_at(Path(settings["socket"])) as listener:
            yield listener, None
        return
    from fedkoopman.deploy.flower.front import listening
    from fedkoopman.deploy.flower.programs import LOOPBACK

    with listening(LOOPBACK, settings["port"]) as listener:
        files = (folder / "server.crt", folder / "server.key")
        yield listener, files if settings["secure"] else None


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
