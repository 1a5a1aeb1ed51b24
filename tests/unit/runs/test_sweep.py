"""Sweeps: the grid as it is written, its product, and real runs of tiny studies."""

import json
import tomllib
from pathlib import Path

import pytest

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.paths import folder_name
from fedkoopman.runs.sweep import (
    SweepProgress,
    combinations,
    read_grid,
    recorded,
    split_values,
    sweep,
)

DEFAULT = Study.paper_default()
TINY = Study.paper_default(
    slots=3,
    segments={"steps": 30},
    training={"epochs": 1},
    policy={"segments": 1},
    evaluation={"trajectories": 2},
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5", ["5"]),
        ("5,10, 20", ["5", "10", "20"]),
        ("[1,1,1,1,3],[1,1,1,3,3]", ["[1,1,1,1,3]", "[1,1,1,3,3]"]),
        ("[[1,2],[3,4]],7", ["[[1,2],[3,4]]", "7"]),
        ("{b=[1,2], c=3},{}", ["{b=[1,2], c=3}", "{}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        (r'"a\",b","\\",c', [r'"a\",b"', r'"\\"', "c"]),
        (r"'a\',b", [r"'a\'", "b"]),
        ('"[",1', ['"["', "1"]),
    ],
)
def test_values_are_cut_at_the_outer_commas(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1,2", "ends before ]"),
        ("1]", "] that closes nothing"),
        ("[1,2}", "} that closes nothing"),
        ('"a', 'ends before "'),
        ("1,,2", "a comma with no value"),
        ("1,", "a comma with no value"),
    ],
)
def test_a_broken_list_of_values_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_grid([f"training.epochs={text}"])
    assert says in str(refusal.value)
    assert "--grid" in str(refusal.value)


@pytest.mark.parametrize("word", ["training.epochs", "=5", "training.epochs=", " = "])
def test_a_word_that_is_no_grid_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="write KEY=VALUE,VALUE"):
        read_grid([word])


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="gives slots twice"):
        read_grid(["slots=1,2", "slots=3"])


def test_the_product_in_order() -> None:
    grid = read_grid(["training.epochs=5,10", "policy.segments=3,4.5"])
    found = combinations(DEFAULT, grid)
    assert [one.name for one in found] == [
        "training.epochs=5,policy.segments=3",
        "training.epochs=5,policy.segments=4.5",
        "training.epochs=10,policy.segments=3",
        "training.epochs=10,policy.segments=4.5",
    ]
    assert [(one.study.training.epochs, one.study.policy.segments) for one in found] == [
        (5, 3),
        (5, 4.5),
        (10, 3),
        (10, 4.5),
    ]
    assert found[2].values == ("10", "3")
    assert found[2].study == DEFAULT.with_values({"training.epochs": 10, "policy.segments": 3})


def test_lists_texts_and_tables_may_be_values() -> None:
    noise = read_grid(["clients.observation_noise=[1,1,1,1,3],[1, 1, 1, 3, 3]"])
    assert [one.study.clients.observation_noise for one in combinations(DEFAULT, noise)] == [
        (1, 1, 1, 1, 3),
        (1, 1, 1, 3, 3),
    ]
    assert combinations(DEFAULT, noise)[1].name == "clients.observation_noise=[1,1,1,3,3]"
    schemes = read_grid(['scheme=centralized,"perfect-data"'])
    assert [one.name for one in combinations(DEFAULT, schemes)] == [
        "scheme=centralized",
        "scheme=perfect-data",
    ]
    inner = combinations(DEFAULT, read_grid(["system.parameters.b=27,28"]))
    assert [one.study.system.parameters["b"] for one in inner] == [27, 28]
    sections = combinations(DEFAULT, read_grid(["training={epochs=1,batch=8},{epochs=2}"]))
    assert [(c.study.training.epochs, c.study.training.batch) for c in sections] == [
        (1, 8),
        (2, 64),
    ]


@pytest.mark.parametrize("values", ["5,5", "5,+5", "5,0x5"])
def test_one_study_twice_is_refused(values: str) -> None:
    with pytest.raises(InputError, match="give every value once"):
        combinations(DEFAULT, read_grid([f"training.epochs={values}"]))


def test_names_that_would_be_one_directory_are_refused() -> None:
    with pytest.raises(InputError, match="more than punctuation"):
        combinations(DEFAULT, read_grid(["name=a/b,a:b"]))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("paper-default", "paper-default"),
        ("My study: a/b", "My-study-a-b"),
        ("../../up", "up"),
        ("..", "unnamed"),
        ("/", "unnamed"),
        ("-x", "x"),
        ("a\nb", "a-b"),
        ("größe=[1,2]", "größe=[1,2]"),
    ],
)
def test_names_of_directories(text: str, name: str) -> None:
    assert folder_name(text) == name


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (folder_name("x" * 300 + end) for end in "ab")
    assert one != other
    assert len(one) < 120


def test_a_sweep_runs_every_combination(tmp_path: Path) -> None:
    seen: list[SweepProgress] = []
    counts: list[int] = []
    results = sweep(
        TINY,
        {"training.epochs": [1, 2], "scheme": ["kf-fedkl", "perfect-data"]},
        out=tmp_path / "out",
        progress=seen.append,
        finished=lambda combinations, so_far: counts.append(len(so_far)),
    )
    names = [result.combination.name for result in results]
    assert names[0] == "training.epochs=1,scheme=kf-fedkl"
    assert counts == [1, 2, 3, 4]
    files = contents(tmp_path / "out")
    for result, name in zip(results, names, strict=True):
        assert json.loads(files[f"{name}/summary.json"]) == result.summary
        assert result.summary["finished"] is True
        study = Study.from_dict(tomllib.loads(files[f"{name}/study.toml"].decode()))
        assert study == result.combination.study
    assert len({result.summary["l3"]["mean"] for result in results}) == 4
    assert [one.place for one in seen if one.event is None] == [0, 1, 2, 3]
    for place in range(4):
        slots = [one.event.slot for one in seen if one.place == place and one.event is not None]
        assert slots[-1] == 3 and slots == sorted(slots)


@pytest.mark.parametrize(
    "grid",
    [
        {"training.epochs": [1, 0]},
        {"training.epochs": ["1", "many"]},
        {"slots": [1], "training.epoch": [1]},
        {"network.components": ["auto", 2]},  # fewer than the states: only the system tells
        {"clients.count": [5, 4], "clients.probability": ["[1, 1, 1, 1, 1]"]},
        {"training.epochs": "5"},
        {"training.epochs": []},
        {},
    ],
    ids=str,
)
def test_all_is_checked_before_anything_is_written(tmp_path: Path, grid: dict) -> None:
    with pytest.raises(InputError):
        sweep(TINY, grid, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_finished_combinations_are_not_run_again(tmp_path: Path) -> None:
    """Stopped inside the second of three; on resumption the first is left as it is, byte for byte,
    and the end is that of a sweep that was never stopped."""
    grid = {"training.epochs": [1, 2, 3]}

    def stop(at: SweepProgress) -> None:
        if at.place == 1 and at.event is not None and at.event.slot == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(TINY, grid, out=tmp_path / "out", seeds=2, progress=stop)
    first = contents(tmp_path / "out" / "training.epochs=1")
    assert "summary.json" in first
    assert not (tmp_path / "out" / "training.epochs=2" / "summary.json").exists()

    seen: list[SweepProgress] = []
    results = sweep(TINY, grid, out=tmp_path / "out", resume=True, progress=seen.append)
    assert contents(tmp_path / "out" / "training.epochs=1") == first
    assert {one.place for one in seen if one.event is not None} == {1, 2}
    assert [result.summary["seeds"] for result in results] == [[0, 1]] * 3

    whole = sweep(TINY, grid, out=tmp_path / "whole", seeds=2)
    for one, other in zip(results, whole, strict=True):
        assert one.summary["l3"] == other.summary["l3"]
        model = f"{one.combination.name}/seed-1/model.safetensors"
        assert (tmp_path / "out" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()

    before = contents(tmp_path / "out")
    sweep(TINY, grid, out=tmp_path / "out", resume=True)
    assert contents(tmp_path / "out") == before


def test_another_sweep_is_refused(tmp_path: Path) -> None:
    grid = {"training.epochs": ["1"]}
    sweep(TINY, grid, out=tmp_path)
    definition = recorded(tmp_path)
    assert definition is not None
    assert (definition.grid, definition.seeds) == ({"training.epochs": ("1",)}, 1)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds a sweep already: go on with --resume"):
        sweep(TINY, grid, out=tmp_path)
    for study, other, seeds, says in (
        (TINY.with_values({"slots": 4}), grid, None, "another study"),
        (TINY.with_values({"seed": 1}), grid, None, "another study"),
        (TINY, {"training.epochs": ["1", "2"]}, None, "another grid"),
        (TINY, grid, 2, "another number of seeds"),
    ):
        with pytest.raises(InputError, match=says):
            sweep(study, other, out=tmp_path, seeds=seeds, resume=True)
    assert contents(tmp_path) == before


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    for out in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match="choose another --out"):
            sweep(TINY, {"training.epochs": [1]}, out=out, resume=True)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_damaged_definition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("grid = 5\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"sweep\.toml is no sweep's definition"):
        sweep(TINY, {"training.epochs": [1]}, out=tmp_path, resume=True)
