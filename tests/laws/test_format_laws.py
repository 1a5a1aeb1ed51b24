"""Laws that every data format obeys: those of the registry, and the extension's.

A format is read by its own class; which columns are what is settled as for a site's file.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.io
from reference.extension import member
from reference.recordings import KEPT, STEP, Kept

from fedkoopman.config.formats import FORMATS, Wanted
from fedkoopman.errors import InputError

EVERY = {name: FORMATS.find(name) for name in FORMATS}
EVERY["jsonl"] = member("json_lines", "FORMAT")
EVERY["mat73"] = EVERY["mat"]
ROWS = 60
LABELS = np.repeat(["a", "b", "c"], 20)
TIME, X = np.arange(ROWS) * STEP, np.random.default_rng(0).normal(size=(ROWS, 2)).round(6)
X[[3, 25, 59], [0, 1, 0]] = np.nan
PLAIN = Kept(lambda path, columns: None, labels=True)
"""What CSV and its like keep: everything."""


def kept(name):
    return KEPT.get(name, PLAIN)


def observed(name):
    return X if kept(name).gaps else np.nan_to_num(X)


def wanted_of(name):
    """Formats that know instants of their own call them `time`."""
    one = kept(name)
    columns = (f"{one.before}y", f"{one.before}x")
    return Wanted(columns, segment=f"{one.before}s", time="t" if one.labels else "time")


def cells():
    return {"s": LABELS, "t": TIME, "x": X[:, 0], "y": X[:, 1]}


def rows_of():
    return [dict(zip(cells(), row, strict=True)) for row in zip(*cells().values(), strict=True)]


def write_csv(path):
    lines = [",".join("" if value != value else str(value) for value in row.values())
             for row in rows_of()]  # fmt: skip
    path.write_text("\n".join(["s,t,x,y", *lines]) + "\n")


def write_jsonl(path):
    plain = [
        {name: None if v != v else v if name == "s" else float(v) for name, v in row.items()}
        for row in rows_of()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in plain))


WRITERS = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "mat": lambda path: scipy.io.savemat(path, cells()),
    "npy": lambda path: np.save(path, X[:, ::-1].reshape(3, 20, 2)),
    "npz": lambda path: np.savez(path, **cells()),
    "parquet": lambda path: pa_parquet.write_table(pa.table(cells()), path, row_group_size=7),
}
"""The same rows in every format; an NPY file knows no names, and so no times."""


def write_kept(name, path):
    x, columns = observed(name), cells()
    if not kept(name).labels:
        columns = {"s": np.repeat([0.0, 1.0, 2.0], 20)}
    kept(name).write(path, columns | {"x": x[:, 0], "y": x[:, 1]})


WRITERS |= {name: partial(write_kept, name) for name in KEPT}


def test_every_format_has_a_writer_here():
    assert set(WRITERS) == set(EVERY)


@pytest.fixture(params=EVERY, ids=str)
def name(request):
    return request.param


@pytest.fixture
def file(name: str, tmp_path: Path) -> Path:
    path = tmp_path / f"z.{name.removesuffix('73')}"
    WRITERS[name](path)
    return path


def read(name, path, block_bytes, wanted=None):
    wanted = wanted or wanted_of(name)
    found = EVERY[name](path, wanted.columns)
    named = wanted if found.names else Wanted()
    return found, list(found.blocks(named, block_bytes))


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_the_rows_are_the_same_in_blocks_of_any_size(name, file, block_bytes):
    found, blocks = read(name, file, block_bytes)
    by_segment: dict[object, list] = {}
    for block in blocks:
        by_segment.setdefault(block.label or str(block.source), []).append(block)
    assert len(by_segment) == 3
    got = np.concatenate([one.observed for group in by_segment.values() for one in group])
    np.testing.assert_allclose(got, observed(name)[:, ::-1], rtol=0, atol=kept(name).error)
    assert got.dtype == np.float64
    if found.names:
        wanted = wanted_of(name)
        assert set(found.names) - {"z.timestamp"} == {
            *wanted.columns,
            wanted.segment,
            wanted.time,
        }
        assert list(by_segment) == (["a", "b", "c"] if kept(name).labels else ["0", "1", "2"])
        assert {one.channels for one in blocks} == {wanted.columns}
        np.testing.assert_array_equal(np.concatenate([one.times for one in blocks]), TIME)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_rows_are_counted_from_one_and_progress_goes_to_the_end(name, file, block_bytes):
    _, blocks = read(name, file, block_bytes)
    row, source = 1, blocks[0].source
    for block in blocks:
        row = row if block.source == source else 1
        assert (block.row, block.source.path) == (row, file)
        row, source = row + len(block.observed), block.source
        line = source.line(block.row)
        assert line is None or block.row <= line <= block.row + 1
    shares = [block.read for block in blocks]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1.0
    if block_bytes > 1:  # with a byte at a time, CSV only tells that it has begun
        assert shares[-1] == 1.0


def test_an_unknown_column_is_refused_in_one_line(name, file):
    if not EVERY[name](file, ()).names:
        return
    with pytest.raises(InputError, match="'z'") as caught:
        read(name, file, 100, Wanted(columns=(f"{kept(name).before}x", "z")))
    assert "\n" not in str(caught.value) and file.name in str(caught.value)


def test_a_damaged_file_is_refused_in_one_line(name, tmp_path):
    path = tmp_path / f"z.{name.removesuffix('73')}"
    path.write_bytes(b"\x00\xff\x00 no data")
    with pytest.raises(InputError) as caught:
        read(name, path, 100, Wanted(columns=("x",)))
    assert "\n" not in str(caught.value) and path.name in str(caught.value)
