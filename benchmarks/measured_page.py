"""What a part of `measured.py` hands back, and how it becomes a page.

A part is a dictionary, so that it can be kept as JSON:

    {"intro": text,
     "tables": [{"title": text, "columns": [text, …], "rows": [[cell, …], …], "note": text}, …],
     "verdicts": [{"goal": text, "result": text, "met": True, False or None}, …]}

Cells are text or numbers; numbers are written with two digits. `met` is None where a goal could not
be judged.
"""

from collections.abc import Mapping

from accuracy_page import Section, short

TABLE = {"title", "columns", "rows", "note"}
VERDICT = {"goal", "result", "met"}
SAID = {True: "met", False: "**missed**", None: "not judged"}


def check(name: str, part: dict) -> dict:
    """The part, if it has the form that the page needs."""
    if missing := {"intro", "tables", "verdicts"} - part.keys():
        raise ValueError(f"part {name} lacks {', '.join(sorted(missing))}")
    for kind, keys in (("tables", TABLE), ("verdicts", VERDICT)):
        for entry in part[kind]:
            if entry.keys() != keys:
                raise ValueError(f"part {name}: {kind} have {sorted(keys)}, not {sorted(entry)}")
    for table in part["tables"]:
        for row in table["rows"]:
            if len(row) != len(table["columns"]):
                raise ValueError(
                    f"part {name}, table {table['title']!r}: row {row} has {len(row)} cells for "
                    f"{len(table['columns'])} columns"
                )
    return part


def cell(value: object) -> str:
    """Text as it is, numbers with two digits, a dash for none."""
    if isinstance(value, bool | int | str):
        return str(value)
    return short(value if value is None else float(value))  # type: ignore[arg-type]


def section(title: str, part: Mapping) -> list[str]:
    """The part as lines of Markdown."""
    found = Section()
    found.lines = [f"## {title}", "", f"`{part['command']}`, {part['seconds']:.0f} s."]
    found.say(part["intro"])
    if part["verdicts"]:
        found.table(
            ["goal", "result", ""],
            [[v["goal"], v["result"], SAID[v["met"]]] for v in part["verdicts"]],
        )
    for table in part["tables"]:
        found.say(f"### {table['title']}")
        found.table(table["columns"], [[cell(value) for value in row] for row in table["rows"]])
        if table["note"]:
            found.say(table["note"])
    found.say(f"Machine: {part['machine']}.")
    return found.lines


def page(titles: Mapping[str, str], kept: Mapping[str, dict]) -> str:
    """All parts that were ever run, in their order."""
    lines = [
        "# Measured data",
        "",
        "Made by `benchmarks/measured.py`; each part says which command ran it (DIR is the folder "
        "of the data, which this repository does not carry). Rows in bold are ours. Everything in "
        "a table ran in the same call on the same data, except for rows that say *quoted*.",
    ]
    for name, title in titles.items():
        if name in kept:
            lines += ["", *section(title, kept[name])]
    missing = [name for name in titles if name not in kept]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"
