# %% [markdown]
# # Three machines
#
# A coordinator and three laboratories, each a program of its own. Here all run on one machine, without keys (`--insecure`, which never
# reaches beyond it), so that the whole can be tried in a minute. On real machines the same three verbs are used with keys and TLS:
# [Many machines](../deployment.md) has the steps. It needs `pip install 'fedkoopman[deploy]'`.

# %%
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = [sys.executable, "-m", "fedkoopman.cli"]
LABS = ("lab-a", "lab-b", "lab-c")


def fedkoopman(*words: str) -> None:
    """A command, to its end."""
    subprocess.run([*PROGRAM, *words], check=True)


def started(*words: str) -> subprocess.Popen[bytes]:
    """A command that runs beside us."""
    with Path(f"{words[0]}-{Path(words[1]).parent.name}.log").open("wb") as log:
        return subprocess.Popen([*PROGRAM, *words], stdout=log, stderr=log, start_new_session=True)


# %% [markdown]
# **The coordinator** has the study. For the trial, it is short.

# %%
fedkoopman("init", "swings", "--example", "pendulum")
study = Path("swings/study.toml")
study.write_text(study.read_text().replace("slots = 150", "slots = 6"))
fedkoopman("provision", str(study), "--insecure")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
coordinator = started("serve", str(study), "--out", "runs/swings", "--port", port, "--insecure")

# %% [markdown]
# **Each laboratory** joins with its own `site.toml`, and its data stay beside it. The first time `join` shows what would leave and asks;
# `--yes` agrees. `--kit` is what the coordinator sent.

# %%
laboratories = [
    started(
        "join", f"swings/{lab}/site.toml", "--server", f"localhost:{port}", "--insecure", "--yes",
        "--kit", f"swings/fleet/kits/{lab}.kit",
    )
    for lab in LABS
]  # fmt: skip

# %% [markdown]
# The coordinator ends by itself after the last slot. Then the model is in the run's directory, as after `fedkoopman run`: the same
# study, data and seed give the same model on both ways, byte for byte.

# %%
try:
    assert coordinator.wait(timeout=900) == 0, Path("serve-swings.log").read_text()
finally:
    for process in (coordinator, *laboratories):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
for process in laboratories:
    process.wait(timeout=60)
time.sleep(1)
print(json.loads(Path("runs/swings/summary.json").read_text())["E"])
fedkoopman("run", str(study), "--out", "runs/local")
served, local = (Path("runs", name, "records.jsonl").read_text() for name in ("swings", "local"))
assert [json.loads(line)["E"] for line in served.splitlines()] == [
    json.loads(line)["E"] for line in local.splitlines()
]

# %% [markdown]
# What left a laboratory is in its ledger, every message of it:

# %%
fedkoopman("ledger", "swings/lab-a/site.toml")
