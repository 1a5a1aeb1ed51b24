"""A federation on many machines: seconds per slot beyond training, beside plain Flower.

    python benchmarks/deployment.py [--sites 3,10] [--slots 10] [--light 100] [--no-peer]

needs `pip install 'fedkoopman[deploy]'`, a Linux machine, and about 12 GB of memory for ten sites;
nginx is used where it is installed. Two sides run one after the other on loopback, on the same data
and the same network, and every site trains and is evaluated in every slot:

- ours: `fedkoopman serve` and a `fedkoopman join` per site;
- the peer: Flower's SuperLink, SuperNodes, SuperExecs and FedAvg as they come, with a ClientApp
  that calls the same training and the same evaluation (`flower_peer/`). Flower starts a process
  per message. That process has to load JAX and to compile; a site agent has done that once, which
  is what it is for, so loading and compiling count as overhead. The peer is measured as it comes,
  and with JAX's cache of compiled code on disk.

Both must end with the same model, or the comparison fails. With --no-peer only ours is measured.
Further, many sites without data or training (`light_site.py`), which tell what messages cost; an
agent's memory and speed while a thousand files arrive. Writes results/deployment.{md,json}.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from deployment_measures import STEPS, intake, light, ours, peer, training_alone

RESULTS = Path(__file__).parent / "results"
SAME = 1e-3
"""By how much the learned models may differ, relative to the largest weight: they are summed up in
another order, in float32."""
AIM = 0.5
PEERS = {"plain": "Flower as it comes", "cached": "Flower, JAX's cache on disk"}


def compare(folder: Path, sites: int, given: argparse.Namespace) -> dict:
    """Ours and its peers at one number of sites."""
    secure, slots, warm = not given.insecure, given.slots + given.warm, given.warm
    field = folder / f"ours-{sites}"
    field.mkdir()
    # The last slot is told by the beginning of the next, so that ours runs one more.
    found = {"sites": sites, "ours": ours(field, sites, slots, warm, secure, 0.0)}
    show(f"{sites} sites, ours", found["ours"])
    if given.no_peer:
        return found
    kinds = ["cached"] if sites > given.plain_up_to else ["plain", "cached"]
    for kind in kinds:
        place = folder / f"{kind}-{sites}"
        found[kind] = peer(place, field, sites, slots, warm, secure, kind == "cached")
        show(f"{sites} sites, {kind} peer", found[kind])
        if found[kind]["difference"] > SAME:
            sys.exit(f"the {kind} peer learned another model: {found[kind]['difference']:.2g}")
    about = json.loads((folder / f"cached-{sites}" / "about.json").read_text())
    found["training"] = training_alone(about, folder / f"cached-{sites}")
    for side in ("ours", *kinds):
        found[side]["overhead"] = found[side]["total"] - found["training"]
        found[side]["ratio"] = found["ours"]["overhead"] / found[side]["overhead"]
    shutil.rmtree(folder / f"cached-{sites}", ignore_errors=True)
    return found


def show(what: str, found: dict) -> None:
    print(
        f"{what}: {found['total']:.2f} s per slot {found['every']}, "
        f"{found['processes']} processes, {sum(found['memory_mb'].values()) / 1024:.1f} GiB; "
        f"processor {found['processor']}",
        flush=True,
    )


def report(results: list[dict], slow: dict, arrived: dict, given, load: float) -> str:
    """The results as Markdown."""
    last = results[-1]
    wire = (
        "without TLS"
        if given.insecure
        else "with TLS and node keys; ours goes through nginx besides, the peer does not"
        if last["ours"]["nginx"]
        else "with TLS and node keys"
    )
    lines = [
        "# A federation on many machines: overhead per slot",
        "",
        f"Made by `python benchmarks/deployment.py`, {wire}. "
        f"{last['ours']['slots']} slots as soon as possible after {given.warm} for warming up; "
        f"every site trains on {STEPS} new samples and is evaluated in every slot, and updates are "
        "guarded, as is usual. All processes share this machine: in the field, each site has its "
        "own processor.",
        "",
        f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; load {load:.1f} when it began.",
        "",
        *_costs(results, given),
        "",
        *([] if given.no_peer else _beside_peers(results)),
        *_ours_in_parts(results, slow),
        "",
        *([] if given.no_peer else [*_peer_in_parts(results), ""]),
        *(_memory(arrived) if arrived else []),
    ]
    return "\n".join(lines)


SERVER = ("server loop", "nginx", "serve")


def _costs(results: list[dict], given) -> list[str]:
    """What a slot costs, and the server's part in it."""
    lines = [
        "| sites | s per slot | beyond answering | server's processor, s per site and slot | GiB |",
        "|---|---|---|---|---|",
    ]
    rows = [(str(r["sites"]), r["ours"], r["sites"]) for r in results]
    if given.many:
        rows.append((f"{given.light} without data", given.many, given.light))
    for name, ours_, sites in rows:
        server = sum(ours_["processor"].get(role, 0.0) for role in SERVER) / sites
        inside = sum(ours_[key] for key in ours_ if key.startswith("inside"))
        lines.append(
            f"| {name} | {ours_['total']:.2f} | {ours_['total'] - inside:.2f} | {server:.4f} | "
            f"{sum(ours_['memory_mb'].values()) / 1024:.1f} |"
        )
    return [*lines, "", "“Beyond answering” leaves out what the slowest agent takes to answer."]


def _beside_peers(results: list[dict]) -> list[str]:
    lines = [
        "Training alone, warm, takes "
        + ", ".join(f"{1000 * r['training']:.0f} ms" for r in results[:1])
        + ". Overhead is all the rest of a slot. The peer's includes the start of its processes, "
        "the loading of JAX and compilation: that is what an agent saves.",
        "",
        "| sites | side | s per slot | overhead s | ours / this | processor s | processes | GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        for side in ("ours", *PEERS):
            if side in r:
                s = r[side]
                name = "**fedkoopman**" if side == "ours" else PEERS[side]
                ratio = "" if side == "ours" else f"**{s['ratio']:.2f}**"
                lines.append(
                    f"| {r['sites']} | {name} | {s['total']:.2f} | {s['overhead']:.2f} | "
                    f"{ratio} | {sum(s['processor'].values()):.2f} | {s['processes']} | "
                    f"{sum(s['memory_mb'].values()) / 1024:.1f} |"
                )
    met = all(r[side]["ratio"] <= AIM for r in results for side in PEERS if side in r)
    return [
        *lines,
        "",
        f"Asked for: half of the peer's overhead or less: {'met' if met else 'missed'}. Both sides "
        "learn the same model (largest difference "
        f"{max(r[s]['difference'] for r in results for s in PEERS if s in r):.1g} of the largest "
        "weight).",
        "",
    ]


def _ours_in_parts(results: list[dict], slow: dict) -> list[str]:
    """Where the time of ours goes."""
    columns = [*results, slow] if slow else results
    heads = [f"{r['sites']} sites" for r in results]
    heads += [f"{slow['sites']} sites, every {slow['period']:g} s"] if slow else []
    rows = {
        "first round: acknowledge, evaluate, poll": lambda o: o["first round"],
        "– inside the slowest agent": lambda o: (
            o["inside evaluation"] + o["inside polling"] + o["inside acknowledgement"]
        ),
        "– its messages, to all and back": lambda o: (
            o["first round"]
            - o["inside evaluation"]
            - o["inside polling"]
            - o["inside acknowledgement"]
        ),
        "second round: train": lambda o: o["second round"],
        "– inside the slowest agent (training, two commits)": lambda o: o["inside training"],
        "– its messages, there and back": lambda o: o["second round"] - o["inside training"],
        "server: validate, aggregate, save": lambda o: o["server"],
        "all": lambda o: o["first round"] + o["second round"] + o["server"],
    }
    names = list(rows)
    lines = [
        "## Where a slot of ours goes",
        "",
        f"| seconds | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
    ]
    for name in names:
        cells = [f"{rows[name](r['ours']):.3f}" for r in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"| processor seconds per slot | {' | '.join(heads)} |"]
    lines += [f"|---|{'---|' * len(heads)}"]
    for role in columns[0]["ours"]["processor"]:
        cells = [f"{r['ours']['processor'].get(role, 0.0):.3f}" for r in columns]
        lines.append(f"| {role}{_count(role)} | {' | '.join(cells)} |")
    return lines


def _count(role: str) -> str:
    return (
        ", all together"
        if role in ("agent", "worker", "node", "join", "SuperNode", "light site")
        else ""
    )


def _peer_in_parts(results: list[dict]) -> list[str]:
    lines = [
        "## Where a message of the peer goes",
        "",
        "| seconds of its process | start and Flower | JAX | what else it imports | compiling | "
        "processor |",
        "|---|---|---|---|---|---|",
    ]
    for r in results:
        for side in PEERS:
            if side in r:
                m = r[side]["message"]
                lines.append(
                    f"| {r['sites']} sites, {PEERS[side]} | {m['starting']:.2f} | "
                    f"{m['loading_jax']:.2f} | {m['loading_the_rest']:.2f} | "
                    f"{m['compiling']:.2f} | {r[side]['processor of a message']:.2f} |"
                )
    return [
        *lines,
        "",
        "Two messages to each site per slot. The rest of the peer's slot are sleeps: 3 s in "
        "`send_and_receive` until it looks again, and up to 3 s in an idle SuperNode.",
    ]


def _memory(arrived: dict) -> list[str]:
    lines = [
        f"## An agent while {arrived['segments']:,} segments arrive",
        "",
        f"{arrived['rows']:,} rows in {arrived['segments']:,} files, in {arrived['seconds']:.0f} "
        f"s: {arrived['rows_per_second']:,.0f} rows per second, {arrived['store_mb']:.0f} MB in "
        "its store.",
        "",
        "| | MB | peak MB |",
        "|---|---|---|",
    ]
    for when, mb in arrived["megabytes"].items():
        lines.append(f"| {when} | {mb['now']:.0f} | {mb['peak']:.0f} |")
    return [
        *lines,
        "",
        f"The last line is one training on everything that came, {arrived['trained on']:,} samples "
        "at once: in a federation, a slot takes what came since the last.",
    ]


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="3,10", help="numbers of sites, as 3,10")
    parser.add_argument("--slots", type=int, default=10, help="measured ones")
    parser.add_argument("--warm", type=int, default=2, help="slots before those")
    parser.add_argument(
        "--period", type=float, default=0.0, help="of a further, unhurried run; 0: none"
    )
    parser.add_argument(
        "--segments", type=int, default=1000, help="that arrive at an agent; 0: none"
    )
    parser.add_argument(
        "--plain-up-to", type=int, default=3, metavar="SITES",
        help="up to so many, the peer is also measured without JAX's cache, which takes long",
    )  # fmt: skip
    parser.add_argument("--light", type=int, default=0, metavar="SITES", help="without data")
    parser.add_argument("--no-peer", action="store_true", help="measure ours alone")
    parser.add_argument("--insecure", action="store_true", help="both sides without TLS and keys")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # and end what was started
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arrived = {}
        if given.segments:
            arrived = intake(_made(folder / "intake"), given.segments, given.segments // 10)
            print(f"intake: {arrived}", flush=True)
        results = [compare(folder, int(n), given) for n in given.sites.split(",")]
        slow, given.many = {}, {}
        if given.light:
            given.many = light(
                _made(folder / "light"), given.light, given.slots + given.warm, given.warm
            )
            show(f"{given.light} sites without data", given.many)
        if given.period:
            place, sites = _made(folder / "slow"), results[0]["sites"]
            found = ours(place, sites, 7, 2, not given.insecure, given.period)
            slow = {"sites": sites, "period": given.period, "ours": found}
            show(f"{sites} sites, every {given.period:g} s", found)
    text = report(results, slow, arrived, given, load)
    print(f"\n{text}")
    everything = {
        "load": load,
        "results": results,
        "slow": slow,
        "intake": arrived,
        "light": given.many,
    }
    places = [given.json] if given.json else []
    if not given.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "deployment.md").write_text(text + "\n", encoding="utf-8")
        places.append(RESULTS / "deployment.json")
        print(f"\nreport: {RESULTS / 'deployment.md'}")
    for path in places:
        path.write_text(json.dumps(everything, indent=1) + "\n")


def _made(path: Path) -> Path:
    path.mkdir()
    return path


if __name__ == "__main__":
    main()
