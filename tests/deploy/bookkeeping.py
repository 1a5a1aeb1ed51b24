"""Whether what sites say of their data, what the server says, and the model itself agree.

Three books are kept independently: each site's store, the server's records, and the model. Here the
first two are compared sample by sample, and the third is made anew: every training is repeated on
the data that the site says it spent in that slot. If the weights are equal, the model holds
exactly these data, each once.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.deploy.server.server_state import ServerDirectory
from fedkoopman.deploy.site.store import reading
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.arrivals import succeeded
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.training import client_update
from fedkoopman.runs.experiment import problem_of

from .federation import Federation


def check_books(federation: Federation, restored: tuple[str, ...] = ()) -> None:
    """Every slot once; nothing lost, nothing doubled, at any site; and the model is what they say.

    Arguments:
        restored: sites that were set back to an older state: they know that their data are spent,
            and not in which slots.
    """
    study = Study.load(federation.study)
    records = federation.records()
    slots = [record["slot"] for record in records]
    assert slots == list(range(1, len(slots) + 1)), "a slot is missing, or is there twice"
    assert len(slots) == study.slots
    assert not any("refused" in record for record in records), "an honest update was rejected"
    by_site = spent_by_site(federation, records)
    drawn = study.sites.arrivals == "drawn"
    for place, lab in enumerate(federation.labs):
        account = federation.accounts(lab)
        assert account["delivered"] == account["trained"] + account["buffered"], lab
        assert account["unacknowledged"] == 0, f"{lab} has not heard of the last slot"
        assert account["trained"] == sum(by_site[place].values()), f"{lab} and the server differ"
        if lab not in restored:
            assert federation.trained(lab) == by_site[place], f"{lab} and the server differ"
        if drawn:
            _check_drawn(federation, study, lab, place)
    total = sum(record["samples"] for record in records)
    assert total == sum(sum(spent.values()) for spent in by_site.values())
    _check_server(federation, by_site)
    if drawn and study.sites.repeat and not restored:  # otherwise what is spent is not kept
        _check_model(federation, study, records)


def spent_by_site(
    federation: Federation, records: list[dict[str, Any]]
) -> dict[int, dict[int, int]]:
    """By place and slot, the samples that were trained on, as the server recorded it."""
    found: dict[int, dict[int, int]] = {place: {} for place in range(len(federation.labs))}
    for record in records:
        for place in record["active"]:
            found[place][record["slot"]] = record["buffered"][place]
    return found


def _check_drawn(federation: Federation, study: Study, lab: str, place: int) -> None:
    """What arrived is what the study's luck says, each of it once."""
    with reading(federation.state(lab)) as store:
        (drawn,) = store.execute("SELECT value FROM meta WHERE name = 'drawn'").fetchone()
        arrived = store.execute(
            "SELECT arrived, segment FROM deliveries ORDER BY number"
        ).fetchall()
        train = [n for (n,) in store.execute(
            "SELECT number FROM segments WHERE kind = 'train' ORDER BY number"
        )]  # fmt: skip
    chance = problem_of(study, study.seed, len(federation.labs)).probabilities[place]
    lucky = [m for m in range(1, int(drawn) + 1) if succeeded(study.seed, m, place, chance)]
    expected = [(m, train[i % len(train)]) for i, m in enumerate(lucky)]
    assert arrived == (expected if study.sites.repeat else expected[: len(train)]), lab
    if study.sites.repeat and federation.records():
        assert int(drawn) >= federation.records()[-1]["slot"] - 8, f"{lab} was not asked for long"


def _check_server(federation: Federation, by_site: dict[int, dict[int, int]]) -> None:
    """The checkpoint, which outlasts crashes, agrees with the records."""
    sites = federation.status()["sites"]
    for place, lab in enumerate(federation.labs):
        told = sites[lab]
        assert told["trained_samples"] == sum(by_site[place].values()), lab
        assert told["updates"] == len(by_site[place]), lab
        assert told["included"] == max(by_site[place], default=0), lab
        assert not told["rejected"] and not told["set_aside"], lab


def _check_model(federation: Federation, study: Study, records: list[dict[str, Any]]) -> None:
    """The model is what comes out if every site trains on what it says it spent."""
    parts = problem_of(study, study.seed, len(federation.labs))
    with ServerDirectory.open(federation.out, study, parts, federation.labs) as directory:
        served = directory.restore().arrays
    replayed = replay(federation, parts, records)
    for name, leaf in served.items():
        assert np.array_equal(leaf, replayed[name]), f"{name} is not what was trained"


def replay(federation: Federation, parts: Problem, records: list[dict[str, Any]]) -> Arrays:
    """The model that a federation should have learnt."""
    dtype = np.dtype(parts.training.precision)
    seed = subseed(parts.seed, "weights")
    kind = parts.architecture
    arrays = kind.named(kind.initialise(seed=seed, dtype=dtype))
    for record in records:
        models, sizes = [], []
        for place in record["active"]:
            spent = _spent(federation.state(federation.labs[place]), record["slot"], parts)
            models.append(
                client_update(
                    parts.architecture,
                    parts.training,
                    parts.architecture.from_named(arrays),
                    [states.astype(dtype) for states in spent],
                    seed=subseed(parts.seed, "training", record["slot"], place),
                    learning_rate=parts.rates[place],
                )
            )
            sizes.append(sum(map(len, spent)))
        if models:
            arrays = mean(arrays, [kind.named(one) for one in models], sizes)
    return arrays


def _spent(state: Path, slot: int, parts: Problem) -> list[np.ndarray]:
    """The states that a slot has spent at a site, in the order in which they arrived."""
    with reading(state) as store:
        rows = store.execute(
            "SELECT segment, states FROM deliveries JOIN contents USING (segment) "
            "WHERE consumed = ? ORDER BY deliveries.number",
            (slot,),
        ).fetchall()
        ((count,),) = store.execute("SELECT count(*) FROM deliveries WHERE consumed = ?", (slot,))
    assert len(rows) == count, "contents that will come again are gone"
    return [np.frombuffer(states).reshape(-1, parts.system.dim) for _, states in rows]


def check_live(federation: Federation) -> None:
    """With live arrivals: all that was put into the data folders was taken, and arrived once."""
    for lab in federation.labs:
        with reading(federation.state(lab)) as store:
            aside = store.execute(
                "SELECT path, reason FROM files WHERE state <> 'taken'"
            ).fetchall()
            train = store.execute("SELECT number FROM segments WHERE kind = 'train'").fetchall()
            arrived = store.execute("SELECT segment FROM deliveries").fetchall()
        assert not aside, f"{lab} left out {aside}"
        assert Counter(arrived) == Counter(train), f"{lab} lost a segment, or counted one twice"
