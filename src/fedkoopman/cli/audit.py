"""`fedkoopman audit`: what a curious server could learn from the updates of a federation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, Settings, argument, option, read_study
from fedkoopman.cli.process import keep_compiled
from fedkoopman.cli.progress import site_progress
from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from fedkoopman.audit.audit import Audit
    from fedkoopman.config.study import Study

EXAMPLE = """
fedkoopman audit --quick --set slots=40 --out leaks
"""


def audit(
    source: Annotated[
        Path | None,
        argument(
            "RUN|STUDY.toml",
            "The directory of a finished run, or a study file; without either, the paper's default "
            "experiment.",
        ),
    ] = None,
    set_values: Settings = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer slots, victims and shadow models: wider intervals."),
    ] = False,
    out: Annotated[
        Path | None,
        option("DIR", "Directory of the audit; otherwise runs/ and the study's name with -audit."),
    ] = None,
    progress: Bar = True,
) -> Facts:
    """Attack a federation's updates as a curious server would, and say what that reveals."""
    from fedkoopman.paths import folder_name

    if out is not None and not str(out):
        raise InputError("--out is empty: give the name of a directory")
    keep_compiled()
    study = _study(source, set_values)
    out = out or Path("runs") / folder_name(f"{study.name}-audit")

    from fedkoopman.audit.audit import audit as audit_study
    from fedkoopman.audit.audit import check_auditable
    from fedkoopman.audit.page import check_place, facts_of, write_audit

    check_auditable(study)
    check_place(out)
    with site_progress(progress) as tell:
        found = audit_study(study, quick=quick, tell=tell)
    numbers, page = write_audit(found, out)
    _show(found)
    typer.echo(f"numbers: {numbers}")
    typer.echo(f"page: {page}")
    return {**facts_of(found), "directory": out, "numbers": numbers, "page": page}


def _study(source: Path | None, pairs: list[str] | None) -> "Study":
    """The study of a run's directory, or of a file."""
    if source is None or not source.is_dir():
        return read_study(source, pairs)
    if pairs:
        raise InputError("--set with a run's directory: audit its study.toml, or leave --set out")
    from fedkoopman.runs.run_directory import finished_study_in

    return finished_study_in(source)


def _show(found: "Audit") -> None:
    """Print the table and what it means for the paper's claim."""
    from fedkoopman.audit.audit import ATTACKS
    from fedkoopman.audit.page import TITLES, WORDS
    from fedkoopman.audit.verdict import claims_of, sentence, whole_claim
    from fedkoopman.reports.tables import new_table, plain_console

    table = new_table("what the server sees", right=list(TITLES.values()))
    for result in found.results:
        cells = []
        for attack in ATTACKS:
            measured = result.main(attack)
            cells.append(f"{measured.value:.2f} {WORDS[measured.verdict]}" if measured else "–")
        table.add_row(result.label, *cells)
    claims = claims_of(found)
    table.add_row("the paper's claim", *(claim.verdict for claim in claims))
    console = plain_console()
    console.print(table)
    console.print("chance: 0.50, of states 1.00 (smaller leaks)")
    own = found.arm("smoothed")
    for attack in ("source", "membership", "noise"):
        console.print(sentence(own, attack), soft_wrap=True)
    whole = whole_claim(claims)
    console.print(f"The paper's claim: {whole.verdict}; {whole.why}.", soft_wrap=True)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
