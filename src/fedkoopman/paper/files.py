"""What a reproduced item leaves on disk.

Its numbers are written first, whole, as soon as they are computed; all else is made from them and
can be made again at any time.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkoopman.durable import write_whole, writing
from fedkoopman.paper.items import Numbers, Reproduced


@dataclass(frozen=True)
class Saved:
    """An item's numbers, and what they were made with.

    Attributes:
        item: its name.
        command: that made them.
        fast: whether with few seeds and slots.
        settings: all that decides them.
        data: the numbers.
        changes: what is set otherwise than in the paper, as "slots=50"; empty if nothing is.
    """

    item: str
    command: str
    fast: bool
    settings: dict[str, Any]
    data: dict[str, Any]
    changes: str = ""


def write_numbers(
    out: Path,
    name: str,
    settings: Mapping[str, Any],
    data: Mapping[str, Any],
    command: str,
    fast: bool,
    changes: str = "",
) -> dict[str, Any]:
    """Write OUT/NAME/NAME.json and return the data as a reader will find it.

    JSON knows neither NaN nor infinity: they become None.
    """
    saved = _plain(
        {"item": name, "command": command, "fast": fast, "settings": settings, "data": data}
        | ({"changes": changes} if changes else {})
    )
    saved["sha256"] = _digest(saved)
    lines = [f"{_dumped(key)}: {_dumped(value)}" for key, value in saved.items()]
    folder = _made(out / name)
    write_whole(folder / f"{name}.json", ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    found: dict[str, Any] = saved["data"]
    return found


def read_numbers(out: Path, name: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The item's data, if there are any that were made with the same settings."""
    saved = read_saved(out, name)
    return saved.data if saved is not None and saved.settings == _plain(settings) else None


def read_saved(out: Path, name: str) -> Saved | None:
    """What OUT/NAME/NAME.json holds; None if it is missing, damaged or of another item."""
    try:
        found = json.loads((out / name / f"{name}.json").read_bytes())
        digest = found.pop("sha256")
        saved = Saved(**found)
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    return saved if saved.item == name and digest == _digest(found) else None


def write_item(out: Path, item: Reproduced) -> Path:
    """Write an item's CSV files, figure and Markdown, and last its page, which is returned."""
    from fedkoopman.paper.figures import draw, save
    from fedkoopman.paper.pages import item_markdown, item_page

    folder = _made(out / item.name)
    for name, numbers in zip(item.tables, item.findings.numbers, strict=True):
        write_whole(folder / name, _comma_separated(numbers).encode())
    image = None
    if item.findings.panels:
        image = save(draw(item.findings.panels), folder / item.name)[1].read_bytes()
    write_whole(folder / f"{item.name}.md", item_markdown(item).encode())
    page = folder / f"{item.name}.html"
    write_whole(page, item_page(item, image).encode())
    return page


def write_index(out: Path, items: Sequence[Reproduced]) -> tuple[Path, Path]:
    """Write OUT/index.html and OUT/paper.md, with copies of its images in OUT/paper/.

    The items' own files are there already; they are shown in the order given.
    """
    from fedkoopman.paper.pages import index_page, paper_markdown

    images = _made(out / "paper")
    for item in items:
        if item.findings.panels:
            content = (out / item.name / f"{item.name}.png").read_bytes()
            write_whole(images / f"{item.name}.png", content)
    index, text = out / "index.html", out / "paper.md"
    write_whole(text, paper_markdown(items).encode())
    write_whole(index, index_page(items).encode())
    return index, text


def _made(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _comma_separated(numbers: Numbers) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(numbers.columns)
    writer.writerows([_finite(cell) for cell in row] for row in numbers.rows)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(_dumped(_finite(value)))


def _finite(value: Any) -> Any:
    """The value with None for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _digest(saved: Mapping[str, Any]) -> str:
    text = json.dumps(saved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
