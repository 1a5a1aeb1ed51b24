"""A server loop as a process of its own, with agents behind sockets; the tests kill it."""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.server.loop import federate
from fedkoopman.deploy.site.site_socket import ask
from fedkoopman.deploy.wire import Failure

DONE = "the run is finished"


class Doors:
    """Sites behind sockets in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def online(self) -> dict[str, int]:
        return {path.stem: n for n, path in enumerate(sorted(self.folder.glob("*.sock")))}

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            jobs = {
                pool.submit(ask, self.folder / f"{site}.sock", body): site
                for site, body in bodies.items()
            }
            for job in as_completed(jobs):
                yield jobs[job], job.result()


def main(study_folder: Path, sockets: Path, out: Path) -> None:
    study = Study.load(study_folder / "served.toml")
    doors = Doors(sockets)
    sites = [Enrolled(name, n, "", "") for name, n in doors.online().items()]
    roster = Roster(study.digest(), False, tuple(sites))
    if federate(study, doors, lambda: roster, out, patience=(5.0, 5.0)):
        print(DONE)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
