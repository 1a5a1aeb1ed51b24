"""Users' own code that fails: one line that names the file and the line, whoever calls it."""

from pathlib import Path

import pytest

BEGIN = """
import sys
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import fedkoopman as fk
kept = []

class Good(fk.System):
    dt: float = 0.02
    names: tuple = eqx.field(static=True, default=("a", "b"))
    units: tuple = eqx.field(static=True, default=("1", "1"))
    angles: tuple = eqx.field(static=True, default=())
    substeps: int = eqx.field(static=True, default=1)
    def vector_field(self, x, u=None):
        return -x
    def initial_state(self, key):
        return jnp.ones(2)

"""
LINE = BEGIN.count("\n") + 1
TINY = ["--set", "slots=2", "--set", "segments.steps=20", "--set", "training.epochs=1",
        "--set", "evaluation.trajectories=1", "--set", "clients.count=2"]  # fmt: skip
FUNCTIONS = {
    "own exception": ("class Own(Exception): pass\ndef f(x):\n    raise Own('hm')", 2, "Own: hm"),
    "exit": ("def f(x):\n    sys.exit(3)", 1, "SystemExit: 3"),
    "recursion": ("def f(x):\n    return f(x)", 1, "RecursionError"),
    "branch": ("def f(x):\n    return x if x[0] > 0 else -x", 1, "TracerBoolConversionError"),
    "numpy": ("def f(x):\n    return np.sin(x)", 1, "TracerArrayConversionError"),
    "kept": ("def f(x):\n    kept.append(x)\n    return kept[0] + x", 0, "it kept from an earlier"),
    "kept as it is": ("def f(x):\n    kept.append(x)\n    return kept[0]", 0, "it kept from"),
    "within jit": ("@jax.jit\ndef f(x):\n    return x + none", 2, "NameError: name 'none'"),
    "within vmap": ("def f(x):\n    return jax.vmap(lambda a: a + none)(x)", 1, "NameError"),
    "shape": ("def f(x):\n    return x[:1]", 0, "returned shape (1,)"),
    "list": ("def f(x):\n    return [x[0], x[1]]", 0, "returned a list"),
    "coroutine": ("async def g(x): return x\ndef f(x):\n    return g(x)", 1, "a coroutine"),
}
KINDS = {
    "async": ("async def f(x): return x", "an async function"),
    "generator": ("def f(x): yield x", "a generator function"),
    "list": ("f = [1]", "a list ([1])"),
    "class": ("class f: pass", "the class f"),
}
SYSTEM = ["--set", "system.name=own.py:f", "--set", 'system.states=["a", "b"]',
          "--set", "system.parameters={dt = 0.02}"]  # fmt: skip
SENSOR = ["--set", "system.name=van-der-pol", "--set",
          'clients.sensor={kind = "function", function = "own.py:f", dim = 2}']  # fmt: skip


def refused(outcome, *words: str) -> None:
    assert outcome.code == 2, outcome.err
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize("role", [SYSTEM, SENSOR], ids=["system", "sensor"])
@pytest.mark.parametrize(("text", "line", "says"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_that_jax_traces(site, role, text: str, line: int, says: str) -> None:
    Path("own.py").write_text(BEGIN + text + "\n")
    refused(site.run("config", *role), says, f"line {LINE + line} of own.py")


@pytest.mark.parametrize("role", [SYSTEM, SENSOR, ["--set", "policy.name=own.py:f"]], ids=len)
@pytest.mark.parametrize(("text", "says"), KINDS.values(), ids=KINDS)
def test_what_is_no_plain_function(site, role, text: str, says: str) -> None:
    Path("own.py").write_text(BEGIN + text + "\n")
    refused(site.run("config", *role), f"own.py:f is {says}, but a", "is expected")


FIELD = "class F(Good):\n    def vector_field(self, x, u=None):\n        return "
LAW = "class F(Good):\n    def initial_state(self, key):\n        return jnp.ones(3)"
CLASSES = {
    "field": (f"{FIELD}x + none", 2, "NameError: name 'none'"),
    "shape": (f"{FIELD}jnp.ones(3)", 1, "own.py:f.flow failed"),
    "law": (LAW, 1, "initial_state returned shape (3,)"),
    "static": ("class F(Good):\n    names: tuple = ('a', 'b')", None, "equinox.field(static=True)"),
}


@pytest.mark.parametrize(("text", "line", "says"), CLASSES.values(), ids=CLASSES)
def test_a_system_of_a_users_own_class(site, text: str, line: int | None, says: str) -> None:
    Path("own.py").write_text(f"{BEGIN}{text}\nf = F()\n")
    place = "own.py" if line is None else f"line {LINE + line} of own.py"
    refused(site.run("config", "--set", "system.name=own.py:f"), says, place)


def test_a_good_system_of_a_users_own_class(site) -> None:
    Path("own.py").write_text(f"{BEGIN}f = Good()\n")
    assert site.run("config", "--set", "system.name=own.py:f").code == 0


POLICIES = {
    "late": (
        "def f(s):\n    return [0] if s.slot < 2 else 1 / 0",
        1,
        "in slot 2 with ZeroDivision",
    ),
    "exit": ("def f(s):\n    sys.exit('bye')", 1, "SystemExit: bye"),
    "coroutine": ("async def g(): pass\ndef f(s):\n    return g()", 1, "a coroutine"),
    "indices": ("def f(s):\n    return [7]", 0, "gave [7] in slot 1"),
}


@pytest.mark.parametrize(("text", "line", "says"), POLICIES.values(), ids=POLICIES)
def test_a_policy_that_fails_in_a_run(site, text: str, line: int, says: str) -> None:
    Path("own.py").write_text(BEGIN + text + "\n")
    words = ["--set", "policy.name=own.py:f", "--no-progress", "--out", "out"]
    refused(site.run("run", *TINY, *words), says, f"line {LINE + line} of own.py")
