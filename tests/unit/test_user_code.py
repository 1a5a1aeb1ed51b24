"""Users' Python files: what runs is what stands in them, and nothing is left beside them."""

import re
import threading
import time
from pathlib import Path

import pytest

from fedkoopman import user_code
from fedkoopman.errors import InputError, MachineError
from fedkoopman.user_code import (
    UserCodeError,
    blamed,
    calling,
    finished,
    interrupt_calls,
    load_object,
    plain_function,
)


@pytest.fixture(autouse=True)
def _bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 3\n")
    (tmp_path / "own.py").write_text("import beside\n\n\nsize = beside.SIZE\n")
    assert load_object("own.py:size", tmp_path) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"beside.py", "own.py"}


def test_each_site_imports_what_stands_beside_its_own_file(tmp_path: Path) -> None:
    for site, size in (("a", 1), ("b", 2)):
        (tmp_path / site).mkdir()
        (tmp_path / site / "optics_of_site.py").write_text(f"SIZE = {size}\n")
        (tmp_path / site / "sensor.py").write_text("from optics_of_site import SIZE\n")
    found = [load_object("sensor.py:SIZE", tmp_path / site) for site in "ab"]
    assert found == [1, 2]


def test_dataclasses_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n\n\n"
        "@dataclass\nclass Rod:\n    length: float = 2.0\n\n\n"
        "rod = Rod()\n"
    )
    assert load_object("own.py:rod", tmp_path).length == 2.0


@pytest.mark.parametrize(
    ("reference", "content", "says"),
    [
        ("own.py", "", "write file.py:name"),
        ("none.py:f", "", "there is no file .*none.py: check the path"),
        ("own.py:f", "g = 1", "own.py defines no 'f'"),
        ("own.py:f", "1 / 0", "own.py failed with ZeroDivisionError: division by zero"),
        ("own.py:f", "raise SystemExit(3)", "own.py failed with SystemExit: 3"),
        ("own.py:f", "\0", "own.py failed with"),
        ("own.py:f", b"f = '\xff'", "own.py failed with SyntaxError"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, reference: str, content: str | bytes, says: str
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "own.py").write_bytes(raw)
    with pytest.raises(InputError, match=says) as caught:
        load_object(reference, tmp_path)
    assert "\n" not in str(caught.value)


# Calling what users wrote


def written(folder: Path, text: str, name: str = "f") -> object:
    (folder / "own.py").write_text(text)
    return load_object(f"own.py:{name}", folder)


FAILING = {
    "own exception": (
        "class Own(Exception): pass\ndef f(x):\n    raise Own('hm')",
        "Own: hm (line 3 of ",
    ),
    "not even an Exception": (
        "class Own(BaseException): pass\ndef f(x):\n    raise Own",
        "Own (line 3 of ",
    ),
    "cannot be shown": (
        "class Own(Exception):\n    def __str__(self): raise ValueError\ndef f(x):\n    raise Own",
        "Own: its message cannot be shown (line 4 of ",
    ),
    "exit": ("import sys\ndef f(x):\n    sys.exit('bye')", "SystemExit: bye (line 3 of "),
    "recursion": ("def f(x):\n    return f(x)", "RecursionError: maximum recursion depth"),
    "library": ("import json\ndef f(x):\n    return json.loads('{')", "Decode.*line 3 of .*own.py"),
    "coroutine": (
        "async def g(x): return x\ndef f(x):\n    return g(x)",
        "TypeError: it returned a coroutine",
    ),
    "generator": (
        "def f(x):\n    return (i for i in [x])",
        "TypeError: it returned a generator",
    ),
    "fedkoopman's own": (
        "import fedkoopman as fk\ndef f(x):\n    raise fk.InputError('mine')",
        "InputError: mine (line 3 of ",
    ),
}


@pytest.mark.parametrize(("text", "says"), FAILING.values(), ids=FAILING)
def test_a_failing_function_is_one_line_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    f = written(tmp_path, text)
    with pytest.raises(UserCodeError) as caught, calling(f, "f failed", "mend it"):
        finished(f(1.0))  # type: ignore[operator]
    said = str(caught.value)
    assert said.startswith("f failed with ") and said.endswith(": mend it") and "\n" not in said
    assert "own.py" in said
    assert re.search(says.replace("(", r"\(") if ".*" not in says else says, said), said


def test_the_outermost_message_and_the_innermost_line_are_told(tmp_path: Path) -> None:
    f = written(tmp_path, "def f(x):\n    return 1 / x")
    with pytest.raises(UserCodeError) as caught, calling(f, "all of it failed"), calling(f, "f"):
        f(0)  # type: ignore[operator]
    assert str(caught.value).startswith("all of it failed with ZeroDivisionError: division by zero")
    assert "line 2 of" in str(caught.value)


def test_interruptions_pass_and_memory_is_the_machines(tmp_path: Path) -> None:
    f = written(tmp_path, "def f(error):\n    raise error")
    with pytest.raises(KeyboardInterrupt), calling(f, "f failed"):
        f(KeyboardInterrupt)  # type: ignore[operator]
    with pytest.raises(MachineError, match=r"not enough memory .line 2 of"), calling(f, "f failed"):
        f(MemoryError)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("f = [1, 2]", "is a list ([1, 2]), but a plain function f(x) is expected: define `def f"),
        ("f = 3", "is an int (3), but"),
        ("f = None", "is a NoneType (None), but"),
        ("async def f(x): return x", "is an async function, but"),
        ("async def f(x): yield x", "is an async function, but"),
        ("def f(x): yield x", "is a generator function, but"),
        ("class f:\n    def __call__(self, x): return x", "is the class f, but"),
        ("class F:\n    async def __call__(self, x): return x\nf = F()", "is an async function"),
    ],
)
def test_what_is_no_plain_function_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"own.py:f {says}")):
        plain_function(written(tmp_path, text), "own.py:f", "f(x)")


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return x",
        "f = lambda x: x",
        "class F:\n    def __call__(self, x): return x\nf = F()",
        "import functools\ndef g(a, x): return x\nf = functools.partial(g, 1)",
        "import jax\nf = jax.jit(lambda x: x)",
        "import jax.numpy\nf = jax.numpy.sin",
        "import math\nf = math.sin",
    ],
)
def test_every_plain_function_is_taken(tmp_path: Path, text: str) -> None:
    f = written(tmp_path, text)
    assert plain_function(f, "own.py:f", "f(x)") is f


def test_errors_of_loaded_files_are_blamed_on_them_and_no_others(tmp_path: Path) -> None:
    own = written(tmp_path, "class f:\n    def step(self):\n        return {}['key']")
    for call, blamed_on in ((lambda: own().step(), "line 3 of"), (lambda: {}["key"], None)):  # type: ignore[operator]
        with pytest.raises(KeyError) as caught:
            call()
        found = blamed(caught.value)
        assert (found is None) == (blamed_on is None)
        assert found is None or (blamed_on in str(found) and "own.py" in str(found))


def test_a_function_that_does_not_return_is_named_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(user_code, "PATIENCE", 0.1)
    monkeypatch.setattr(user_code, "LOOK", 0.02)
    quick = written(tmp_path, "def f(x): return x")
    with calling(quick, "f failed"):
        quick(1)  # type: ignore[operator]
    slow = written(tmp_path, "\n\ndef endless(): pass", "endless")
    said = ""
    with calling(slow, "f failed"):
        end = time.monotonic() + 20
        while said.count("endless") < 3 and time.monotonic() < end:
            time.sleep(0.02)
            said += capsys.readouterr().err
    lines = [line for line in said.splitlines() if "endless" in line]
    assert len(lines) >= 3 and "f (" not in said
    for line in lines:
        assert re.fullmatch(
            r"endless \(line 3 of .*own.py\) has been running for \d+ s and has not returned", line
        )


def test_a_function_that_does_not_return_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "LOOK", 0.02)
    endless = written(tmp_path, "def f(began):\n    began.set()\n    while True: pass")
    began, ended = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with calling(endless, "f failed"):
                endless(began)  # type: ignore[operator]
        except KeyboardInterrupt:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert began.wait(20)
    end = time.monotonic() + 20
    while not ended.is_set() and time.monotonic() < end:
        interrupt_calls()
        time.sleep(0.05)
    assert ended.is_set()
