"""`fedkoopman control` as a user runs it: closed loops of a cart that learned models steer."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.cli import control as verb

CART = """import fedkoopman as fk, jax.numpy as jnp


def field(x, u):
    return jnp.stack([x[1], u[0] - 0.1 * x[1]])


names, units = ("place", "speed"), ("m", "m/s")
cart = fk.System.from_function(field, 2, 0.1, names, input_dim=1, units=units)
slow = fk.System.from_function(field, 2, 0.2, names, input_dim=1)
free = fk.System.from_function(lambda x: -x, 2, 0.1, names)
number = 3


def place(x):
    return x[:1]


def broken(x):
    return x[7]
"""
GO = ("--simulate", "cart.py:cart", "--initial", "0,0", "--steps", "40")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Of both states, and of the place alone with delays."""
    folder = tmp_path_factory.mktemp("models")
    U = list(np.random.default_rng(0).normal(size=(5, 50, 1)))
    A = np.array([[1, (1 - np.exp(-0.01)) / 0.1], [0, np.exp(-0.01)]])
    B = np.array([(0.1 - A[0, 1]) / 0.1, A[0, 1]])
    X = []
    for u in U:
        x = [np.zeros(2)]
        for one in u[:-1]:
            x.append(A @ x[-1] + B * one)
        X.append(np.array(x))
    fk.DMD(dt=0.1).fit(X, U=U).save(folder / "cart.safetensors")
    fk.DMD(n_delays=1, dt=0.1).fit([x[:, :1] for x in X], U=U).save(folder / "place.safetensors")
    fk.DMD(dt=0.1).fit(X).save(folder / "free.safetensors")
    return folder


@pytest.fixture
def cart(site, models):
    """A directory with the models and the system."""
    for path in models.iterdir():
        Path(path.name).write_bytes(path.read_bytes())
    Path("cart.py").write_text(CART, encoding="utf-8")
    return site


def test_one_command_tells_and_draws(cart):
    words = (
        "control",
        "cart.safetensors",
        "--reference",
        "1,0",
        *GO,
        "--u-min",
        "-1",
        "--u-max",
        "1",
    )
    done = cart.run(*words, "--x-max", "inf,0.5")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("By itself the model stays near the target")
    assert "After 4 (40 samples): place " in lines[3]
    assert "at a bound in" in lines[5] and lines[6] == "States stayed within their bounds."
    assert lines[7] == "wrote control.png"
    first = Path("control.png").read_bytes()
    assert first.startswith(b"\x89PNG") and len(first) > 10_000
    # No picture is overwritten unless it is named.
    assert "wrote control-2.png" in cart.run(*words).out
    assert Path("control.png").read_bytes() == first


def loop(cart, *words):
    done = cart.run("control", *words, "--json")
    assert done.code == 0, done.err
    assert not list(Path().glob("control*.png"))
    return {k: np.array(v) for k, v in json.loads(done.out).items() if k != "sentences"}


def test_bounds_of_each_input_and_state_hold(cart):
    found = loop(cart, "cart.safetensors", "--reference", "1,0", *GO, "--u-min=-0.3", "--u-max=0.6",
                 "--du-max", "0.2", "--x-max", "inf,0.4")  # fmt: skip
    assert found["inputs"].min() >= -0.3 and found["inputs"].max() <= 0.6
    assert np.abs(np.diff(found["inputs"], axis=0)).max() <= 0.2 + 1e-9
    assert found["states"][:, 1].max() < 0.4 + 1e-6
    assert found["states"][:, 1].max() > 0.39  # the bound is felt


def test_a_file_of_states_is_followed(cart):
    t = 0.1 * np.arange(1, 61)
    rows = "".join(f"{np.sin(a)},{np.cos(a)}\n" for a in t)
    Path("wave.csv").write_text("x1,x2\n" + rows, encoding="utf-8")
    found = loop(cart, "cart.safetensors", "--reference", "wave.csv", *GO, "--r", "1e-4")
    assert np.abs(found["states"][15:, 0] - np.sin(t[14:40])).max() < 0.05
    np.testing.assert_allclose(found["reference"][1:, 0], np.sin(t[:40]))


@pytest.mark.parametrize("method", ["mpc", "lqr"])
def test_a_model_with_delays_steers_by_what_it_sees(cart, method):
    found = loop(cart, "place.safetensors", "--reference", "1", *GO, "--seen", "cart.py:place",
                 "--method", method, "--steps", "120")  # fmt: skip
    assert np.abs(found["states"][-10:, 0] - 1).max() < 0.01


def test_a_filter_steers_by_noisy_observations(cart):
    found = loop(
        cart, "cart.safetensors", "--reference", "1,0", *GO, "--method", "lqg", "--observe", "x1",
        "--noise", "1e-4", "--process-noise", "1e-6", "--steps", "120",
    )  # fmt: skip
    assert found["seen"].shape == (121, 1)
    assert 0.005 < np.std(found["seen"][:, 0] - found["states"][:, 0]) < 0.02
    assert np.abs(found["states"][-20:, 0] - 1).max() < 0.1


MISTAKES = {
    "method": (("--method", "pid"), "--method is 'pid': give mpc, lqr, lqg"),
    "reference": (("--reference", "1,zero"), "--reference is '1,zero': give one number per state"),
    "its width": (("--reference", "1,0,0"), "reference has shape (3,)"),
    "no file": (("--reference", "none.csv"), "none.csv"),
    "a file for lqr": (("--reference", "wave.csv", "--method", "lqr"), "lqr holds one state"),
    "initial": (("--initial", "0"), "--initial has 1 numbers: give one for each of the system's 2"),
    "initial text": (("--initial", "a,b"), "--initial is 'a,b'"),
    "system": (("--simulate", "cart.py:none"), "defines no 'none'"),
    "no system": (("--simulate", "cart.py:number"), "not a System"),
    "no inputs": (("--simulate", "cart.py:free"), "takes no inputs"),
    "interval": (("--simulate", "cart.py:slow"), "0.1 apart and the system's 0.2"),
    "seen": (("--seen", "cart.py:broken"), "cart.py"),
    "seen narrow": (("--seen", "cart.py:place"), "returns an array of shape (1,)"),
    "bounds": (("--u-min", "1", "--u-max", "-1"), "u_min is above u_max"),
    "bound's width": (("--u-min", "1,2,3"), "u_min has shape (3,)"),
    "weights": (("--r", "0"), "R"),
    "for mpc": (("--method", "lqr", "--x-max", "1"), "--x-max is for --method mpc"),
    "for lqg": (("--observe", "x1"), "--observe is for --method lqg"),
    "observe": (("--method", "lqg", "--observe", "y", "--noise", "1"), "'y', which is no state"),
    "no noise": (("--method", "lqg"), "--noise is 0"),
    "plot": (("--plot", "loop.gif"), "loop.gif"),
    "steps": (("--steps", "0"), "0 is below 1"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_line(cart, case):
    words, told = MISTAKES[case]
    Path("wave.csv").write_text("x1,x2\n0,0\n1,0\n", encoding="utf-8")
    before = cart.files()
    done = cart.run("control", "cart.safetensors", "--reference", "1,0", *GO, *words)
    assert done.code == 2 and told in done.err, done.err
    assert len(done.err.strip().splitlines()) == 1 and "Traceback" not in done.err
    assert {name for name in cart.files() if "__pycache__" not in name} <= before


def test_a_model_without_inputs_is_told(cart):
    done = cart.run("control", "free.safetensors", "--reference", "1,0", *GO)
    assert done.code == 2 and "the model has no inputs" in done.err


def test_the_example_of_the_help_text_runs_as_it_stands(site):
    python = f'"{sys.executable}"'
    shell = f'python() {{ {python} "$@"; }}\nfedkoopman() {{ {python} -m fedkoopman.cli "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-e", "-c", shell + verb.EXAMPLE], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("States stayed within their bounds.\nwrote control.png\n")
    assert done.stderr == ""
