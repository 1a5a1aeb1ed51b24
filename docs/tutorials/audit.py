# %% [markdown]
# # Audit privacy
#
# No raw observation leaves a site, but updates do. How much do they tell? `fedkoopman audit` attacks a federation as a server would that
# keeps to the protocol and looks closely: which site did an update come from, was this segment trained on, which states were they, how
# noisy is the sensor. `--quick` has wider intervals.

# %%
import json
from pathlib import Path

import fedkoopman as fk
from fedkoopman.cli import main as fedkoopman

Path("study.toml").write_text("slots = 40\n")
assert fedkoopman(["audit", "study.toml", "--quick", "--out", "leaks"]) == 0
found = json.loads(Path("leaks/audit.json").read_text())
print(sorted(found))

# %% [markdown]
# `leaks/audit.html` says it in words. To bound it, sites train with differential privacy: every example's gradient is clipped, and noise
# from the site's own secret is added. ε is how much one record can show, at most; smaller is safer. It needs
# `pip install 'fedkoopman[privacy]'`.

# %%
plain = fk.Study.paper_default(slots=40)
private = plain.with_values({"privacy.mode": "site", "privacy.noise": 2.0})
errors = {
    name: fk.run(study).records[-1]["E"] for name, study in (("plain", plain), ("private", private))
}
print(errors)
assert errors["private"] > 0

# %% [markdown]
# The price is in [what it costs](../privacy.md#what-it-costs). Without a price in accuracy, `aggregation.secure = true` hides single
# updates from the server, but not their sum: [secure aggregation](../secure-aggregation.md). A site can set itself a limit,
# `[privacy] budget` in its `site.toml`, and stops taking part before it is exceeded; its ledger has every message.
