# %% [markdown]
# # Reproduce a figure, and change it
#
# Every table and figure of the paper has a command; `fedkoopman reproduce --list` names them. Here: Fig. 7e, which asks whether more
# epochs of local training help. `--fast` does it in small; without it the numbers are those of [the page](../paper.md).

# %%
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import fedkoopman as fk
from fedkoopman.cli import main as fedkoopman

assert fedkoopman(["reproduce", "fig-epochs", "--fast", "--out", "trial"]) == 0
found = json.loads(Path("trial/fig-epochs/fig-epochs.json").read_text())
print(sorted(path.name for path in Path("trial/fig-epochs").iterdir()))

# %% [markdown]
# The folder has the figure (PDF and PNG), its numbers (JSON and CSV), and a page with the paper's claims and our verdicts.
#
# Now our own question: is that so for other learning rates? A study in Python is the paper's default with a few keys changed.

# %%
study = fk.Study.paper_default(slots=40, seed=0)
losses = {
    (epochs, rate): np.mean(
        [
            record["l3"]
            for record in fk.run(
                study.with_values({"training.epochs": epochs, "training.learning_rate": rate})
            ).records[-10:]
        ]
    )
    for epochs in (2, 10)
    for rate in (3e-4, 1e-3)
}

# %%
figure, axes = plt.subplots(layout="constrained")
for rate in (3e-4, 1e-3):
    axes.semilogy(
        [2, 10], [losses[epochs, rate] for epochs in (2, 10)], "o-", label=f"η = {rate:g}"
    )
axes.set(xlabel="epochs of local training", ylabel="prediction loss ℓ₃, slots 31 to 40")
axes.legend()
figure.savefig("epochs.png", dpi=120)
print(losses)
assert losses[10, 1e-3] < losses[2, 3e-4]

# %% [markdown]
# With more seeds and slots this is a sweep: `fedkoopman sweep --grid training.epochs=2,10 --grid training.learning_rate=3e-4,1e-3
# --out sweeps/epochs`, which tabulates, and goes on where it was interrupted.
