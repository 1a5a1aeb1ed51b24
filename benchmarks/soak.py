"""Ten thousand short slots with sites that come and go: does anything grow that should not?

    python benchmarks/soak.py --out DIR [--slots 10000] [--sites 4]

One real site (agent, store, ledger, training) and light ones (`light_site.py`), behind nginx with
TLS and keys. Every so often a light site is ended or killed and comes back later, the server is
started again, and a site is enrolled that was not there before. It may be stopped and called again:
the run goes on, and growth is judged over all that was seen. Writes DIR/seen.jsonl and, at the end,
benchmarks/results/soak.md.
"""

import argparse
import json
import random
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from deployment_measures import (
    PROGRAM,
    Programs,
    _join,
    free_port,
    light_command,
    names,
    write_field,
)

RESULTS = Path(__file__).parent / "results"
EVERY = 20
"""Slots from one look to the next."""
LEAVE, AWAY = 100, 60
"""Slots from one departure to the next, and for how many a site stays away."""
ENROL, RESTART = 2000, 2500
"""Slots after which another site is enrolled, and after which the server is started again."""
REAL = "site-00"


class Field:
    """The federation of a soak; what it has seen is on disk."""

    def __init__(self, folder: Path, slots: int, sites: int) -> None:
        self.folder, self.slots = folder, slots
        self.out = folder / "field" / "out"
        self.field = folder / "field"
        if not self.field.exists():
            study = write_field(self.field, sites, slots)
            text = study.read_text().replace(
                'arrivals = "drawn"', 'arrivals = "drawn"\nrepeat = true'
            )
            extra = '[aggregation]\nguard = "off"\n[training]\nepochs = 1\n'
            extra += "[network]\ncomponents = 4\nwidth = 8\n"
            study.write_text(f"{text}\n{extra}")
        self.study = self.field / "study.toml"
        self.sites = names(sites)
        self.random = random.Random(0)

    def slot(self) -> int:
        with suppress(OSError, ValueError):
            return int(json.loads((self.out / "status.json").read_text())["slot"])
        return 0

    def sizes(self) -> dict[str, int]:
        """Bytes of all files but the records, which have a line per slot."""
        found = {"records": 0, "server": 0, "real site": 0}
        for name, place in (("server", self.out), ("real site", self.field / REAL / ".fedkoopman")):
            for path in place.rglob("*"):
                with suppress(OSError):
                    part = "records" if path.name == "records.jsonl" else name
                    found[part] += path.stat().st_size if path.is_file() else 0
        return found


def look(programs: Programs) -> dict[str, list[float]]:
    """By role: megabytes, threads and open files, of the largest process."""
    found: dict[str, list[float]] = {}
    for pid, role in programs.all().items():
        place = Path(f"/proc/{pid}")
        with suppress(OSError, KeyError, ValueError):
            text = (place / "status").read_text()
            memory = int(re.search(r"VmRSS:\s*(\d+)", text)[1]) / 1024
            threads = int(re.search(r"Threads:\s*(\d+)", text)[1])
            row = [round(memory, 1), threads, len(list((place / "fd").iterdir()))]
            found[role] = max(found.get(role, row), row)
    return found


def soak(given: argparse.Namespace) -> Path:
    """Run all slots that are left; the file with what was seen."""
    field, seen = Field(given.out, given.slots, given.sites), given.out / "seen.jsonl"
    port = free_port()
    serve = [*PROGRAM, "serve", str(field.study), "--out", str(field.out), "--port", str(port)]
    serve += ["--deadline", "5", "--wait-for", "1"]
    with Programs(field.field) as programs, seen.open("a") as log:
        if not (field.field / "fleet").exists():
            programs.run(
                [*PROGRAM, "provision", str(field.study), "--sites", ",".join(field.sites)]
            )
        programs.start("serve", serve)
        programs.start(REAL, _join(field.field, REAL, port, True))
        fleet = json.loads((field.field / "fleet" / "roster.json").read_text())
        here = {site["name"] for site in fleet["sites"]} - {REAL}
        for name in here:
            programs.start(name, light_command(field.field, name, port))
        away: dict[str, int] = {}
        last, began, first = field.slot(), time.monotonic(), field.slot()
        left, started, enrolled = (last // n for n in (LEAVE, RESTART, ENROL))
        print(f"from slot {last} with {sorted(here)}", flush=True)
        while (slot := field.slot()) < field.slots:
            time.sleep(0.2)
            if programs.started["serve"].poll() is not None and field.slot() < field.slots:
                raise RuntimeError(programs.tail("serve"))
            if slot < last + EVERY:
                continue
            last = slot
            seconds = (time.monotonic() - began) / max(1, slot - first)
            row = {"slot": slot, "here": len(here), "seconds": round(seconds, 4)}
            log.write(json.dumps({**row, "roles": look(programs), "bytes": field.sizes()}) + "\n")
            log.flush()
            if slot // 500 != (slot - EVERY) // 500:
                print(f"slot {slot}, {seconds:.3f} s each, {look(programs)}", flush=True)
            if slot // LEAVE > left:
                left = slot // LEAVE
                gone = field.random.choice(sorted(here))
                sign = signal.SIGKILL if left % 2 else signal.SIGTERM
                programs.started[gone].send_signal(sign)
                programs.started[gone].wait(30)
                here.discard(gone)
                away[gone] = slot
            for name in [name for name, since in away.items() if slot > since + AWAY]:
                del away[name]
                here.add(name)
                programs.start(name, light_command(field.field, name, port))
            if slot // RESTART > started:
                started = slot // RESTART
                programs.started["serve"].send_signal(signal.SIGTERM)
                programs.started["serve"].wait(60)
                programs.start("serve", serve)
            if slot // ENROL > enrolled:
                enrolled = slot // ENROL
                name = f"later-{enrolled}"
                programs.run([*PROGRAM, "provision", str(field.study), "--sites", name])
                here.add(name)
                programs.start(name, light_command(field.field, name, port))
        programs.wait(
            lambda: programs.started["serve"].poll() is not None, 300, "the end of the run"
        )
    return seen


def slopes(rows: list[dict]) -> list[str]:
    """Growth per 10,000 slots over the last two thirds, with what there was in the middle."""
    rows = [row for row in rows if row["slot"] > rows[-1]["slot"] / 3]
    slots = np.array([row["slot"] for row in rows])
    lines = ["| what | in the middle | at the end | growth in 10,000 slots |", "|---|---|---|---|"]

    def add(what: str, values: list[float], unit: str) -> None:
        known = np.array([np.nan if v is None else v for v in values], float)
        there = np.isfinite(known)
        if there.sum() < 3:
            return
        slope = np.polyfit(slots[there], known[there], 1)[0] * 10_000
        middle, end = np.nanmedian(known), known[there][-1]
        lines.append(
            f"| {what} | {middle:,.1f} {unit} | {end:,.1f} {unit} | {slope:+,.1f} {unit} |"
        )

    for role in sorted({role for row in rows for role in row["roles"]}):
        for column, (name, unit) in enumerate((("memory", "MB"), ("threads", ""), ("files", ""))):
            values = [row["roles"].get(role, [None] * 3)[column] for row in rows]
            add(f"{role}: {name}", values, unit)
    for part in rows[0]["bytes"]:
        add(f"{part}: files on disk", [row["bytes"][part] / 2**20 for row in rows], "MB")
    return lines


def main() -> None:
    """Soak, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--sites", type=int, default=4, help="one real, the others light")
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    given.out = given.out.absolute()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in soak(given).read_text().splitlines()]
    lines = [
        "# Ten thousand slots with sites that come and go",
        "",
        f"Made by `python benchmarks/soak.py --out DIR --slots {given.slots}`: "
        f"{rows[-1]['slot']:,} slots, one real site and {given.sites - 1} light ones at first. A "
        f"light site leaves every {LEAVE} slots, killed or ended in turn, for {AWAY}; one more is "
        f"enrolled every {ENROL}; the server is started again every {RESTART}. Growth is a line "
        "through the last two thirds.",
        "",
        *slopes(rows),
        "",
        "Records have a line per slot, and a site's ledger an entry per message that left it: both "
        "are kept on purpose.",
    ]
    text = "\n".join(lines)
    print(text)
    if not given.dry:
        (RESULTS / "soak.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
