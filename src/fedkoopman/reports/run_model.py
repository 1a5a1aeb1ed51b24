"""The part of a run's report on the model it learnt."""

from fedkoopman.reports.model_figures import (
    MOST_STATES,
    space_figure,
    spectrum_figure,
    trajectory_figure,
)
from fedkoopman.reports.page import Cell, Page, counted
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.spectrum import modes_of

LISTED_MODES = 200


def trajectory_section(page: Page, run: RunFiles) -> None:
    """A held-out trajectory and its predictions, over time and in space."""
    page.heading("True against predicted trajectory")
    rollout = run.rollout
    if rollout is None:
        page.paragraph("Written when the run ends.", "caption")
        return
    if not len(rollout.truth):
        page.paragraph("Held-out states stay at their sites; what they say is told above.")
        return
    states = rollout.truth.shape[1]
    caption = (
        "A held-out trajectory. One step ahead: each state predicted from the true one before it. "
        "Free rollout: the first state lifted once, then advanced by K alone; where it runs far "
        "from the truth it leaves the picture."
    )
    if states > MOST_STATES:
        caption += f" The first {MOST_STATES} of {states} states."
    page.paragraph(caption + _of_first_seed(run), "caption")
    panels = trajectory_figure(rollout)
    if states != 3:
        page.chart("states", panels, "States over time")
        return
    with page.beside():
        page.chart("states", panels, "States over time")
        page.chart("space", space_figure(rollout, panels.layout.height), "State space")


def spectrum_section(page: Page, run: RunFiles) -> None:
    """The eigenvalues of the operator, drawn and listed."""
    page.heading("Spectrum of K")
    rollout = run.rollout
    if rollout is None:
        page.paragraph("Written when the run ends.", "caption")
        return
    depth = int(run.study.get("network", {}).get("depth", 1))
    modes = modes_of(rollout.eigenvalues, rollout.dt, depth)
    steps = f"{depth} × {rollout.dt:.4g}" if depth > 1 else f"{rollout.dt:.4g}"
    page.paragraph(
        f"The operator's {counted(len(modes), 'eigenvalue')} λ; one application advances {steps} in"
        " time. Inside the unit circle a mode decays, outside it grows; its angle is its frequency."
        " Times are to 1/e or e-fold; they and the frequencies are in the sampling interval's unit."
        + _of_first_seed(run),
        "caption",
    )
    rows = [
        [
            Cell(mode.name(paired=True)),
            Cell(f"{abs(mode.eigenvalue):.4g}", "number"),
            Cell(f"{mode.frequency:.4g}", "number"),
            Cell(mode.decay(), "number"),
        ]
        for mode in [mode for mode in modes if mode.eigenvalue.imag >= 0][:LISTED_MODES]
    ]
    head = [Cell("eigenvalue λ"), Cell("|λ|"), Cell("frequency"), Cell("in time")]
    with page.beside():
        page.chart("spectrum", spectrum_figure(modes), "Eigenvalues in the complex plane")
        page.table("modes", head, rows, low=True)


def _of_first_seed(run: RunFiles) -> str:
    several = len(run.seeds) + len(run.waiting) > 1
    return f" Model of seed {run.seeds[0].seed}, the first." if several else ""
