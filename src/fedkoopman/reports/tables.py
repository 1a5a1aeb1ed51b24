"""A reproduced table as text for a terminal, Markdown, CSV and JSON."""

import csv
import io
import json
from pathlib import Path

from fedkoopman.studies.files import written_whole
from fedkoopman.studies.paper.result import PaperTable


def markdown(table: PaperTable) -> str:
    """The table, what it says about the paper's claims, and how to make it again."""
    lines = [f"# {table.title}", "", f"Made by `{table.command}`.", ""]
    lines += [_line(table.columns), _line(["---"] * len(table.columns))]
    lines += [_line(row) for row in table.rows]
    lines += ["", "## The paper's claims", "", _line(["claim", "verdict", "evidence"])]
    lines += [_line(["---"] * 3)]
    lines += [_line([c.text, f"**{c.verdict}**", c.evidence]) for c in table.claims]
    lines += ["", "## Notes", ""] + [f"- {note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def comma_separated(table: PaperTable) -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue()


def write(table: PaperTable, directory: Path) -> list[Path]:
    """Write NAME.md, NAME.csv and NAME.json into a directory, all or none."""
    directory.mkdir(exist_ok=True)
    texts = {
        ".md": markdown(table),
        ".csv": comma_separated(table),
        ".json": json.dumps(table.data, indent=1, ensure_ascii=False) + "\n",
    }
    targets = [directory / f"{table.name}{suffix}" for suffix in texts]
    with written_whole(*targets) as partial:
        for path, text in zip(partial, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
    return targets


def show(table: PaperTable) -> None:
    """Print the table and the verdicts."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    grid = Table(title=table.title, title_justify="left", box=box.SIMPLE)
    # Intervals are in the files; a terminal is narrow.
    shown = [i for i, column in enumerate(table.columns) if "interval" not in column]
    for i in shown:
        grid.add_column(table.columns[i], overflow="fold")
    for row in table.rows:
        grid.add_row(*(row[i] for i in shown))
    console.print(grid)
    for claim in table.claims:
        console.print(f"paper: {claim.text}: [bold]{claim.verdict}[/bold] ({claim.evidence})")
