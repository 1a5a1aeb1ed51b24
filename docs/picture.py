"""The picture of the README: three sites' recordings, and what their shared model says of a swing.

    python docs/picture.py docs/picture.png

It runs the example `regimes` twice: with all three laboratories, and with the one that sees
small swings only.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import fedkoopman as fk
from fedkoopman.cli import main as fedkoopman
from fedkoopman.runs.site_preparation import prepared_sites

LABS = {
    "lab-small": ("angle [°]", "#0072B2"),
    "lab-middle": ("rate [rad/s]", "#009E73"),
    "lab-large": ("bob across [cm]", "#D55E00"),
}
STEPS = 300


def main(out: str) -> None:
    """Run the example and draw."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "regimes"
        fedkoopman(["init", str(home), "--example", "regimes"])
        study = fk.Study.load(home / "study.toml").with_values({"slots": 60})
        alone = study.with_values({"sites.files": ["lab-small/site.toml"], "clients.count": 1})
        shared, single = fk.run(study).model, fk.run(alone).model
        recorded = {
            lab: np.genfromtxt(
                sorted((home / lab / "data").glob("*.csv"))[0], delimiter=",", names=True
            )
            for lab in LABS
        }
        swing = next(
            one.states
            for site in prepared_sites(study).sites
            for one in site.held_out
            if "large" in one.name
        )
    draw(recorded, swing, shared, single, out)


def draw(recorded, swing, shared, single, out) -> None:  # type: ignore[no-untyped-def]
    """Recordings on the left, a forecast on the right."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.45])
    left.suptitle("What three sites record, and keep")
    for axes, (lab, (quantity, colour)) in zip(
        left.subplots(3, sharex=True), LABS.items(), strict=True
    ):
        table = recorded[lab][:150]
        column = table.dtype.names[1]
        axes.plot(table["time"], table[column], ".", color=colour, markersize=2.5)
        axes.set_ylabel(quantity)
        axes.set_title(lab, loc="right", fontsize=9, color=colour, y=0.98)
    axes.set_xlabel("time [s]")
    right.suptitle("A swing that nobody trained on, forecast from one state")
    axes = right.subplots()
    time = 0.02 * np.arange(1, len(swing))
    steps = len(time)
    axes.plot(time, np.degrees(swing[1:, 0]), color="0.7", linewidth=5, label="the swing")
    axes.plot(time, np.degrees(shared.simulate(swing[0], n_steps=steps)[:, 0]), color="black",
              linewidth=1.3, label="the shared model")  # fmt: skip
    axes.plot(time, np.degrees(single.simulate(swing[0], n_steps=steps)[:, 0]), "--",
              color=LABS["lab-small"][1], linewidth=1.3, label="lab-small alone")  # fmt: skip
    axes.set(xlabel="time [s]", ylabel="angle [°]", ylim=(-160, 130))
    axes.legend(loc="lower center", ncols=3, frameon=False)
    figure.savefig(out, dpi=140)


if __name__ == "__main__":
    main(sys.argv[1])
