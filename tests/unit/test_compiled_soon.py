"""Another way to compile: the same numbers, and no need of it."""

import jax
import jax.numpy as jnp
import numpy as np

from fedkoopman.compilation import compiled_soon


def test_it_is_the_same_function():
    function = compiled_soon(
        lambda x, *, power: {"a": jnp.sin(x) ** power, "b": x.sum()}, static_argnames=("power",)
    )
    x = jnp.linspace(0.0, 1.0, 7)
    for power in (2, 3):
        out = function(x, power=power)
        np.testing.assert_allclose(out["a"], np.sin(x) ** power, rtol=1e-14)
        np.testing.assert_allclose(out["b"], np.sum(x), rtol=1e-14)
    assert (function._soon._cache_size(), function._plain._cache_size()) == (2, 0)


def test_an_xla_without_the_option_takes_its_only_way(monkeypatch):
    function = compiled_soon(lambda x: x + 1)
    calls = []

    def refuse(*args):
        calls.append(args)
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such compile option")

    monkeypatch.setattr(function, "_soon", refuse)
    for _ in range(2):
        np.testing.assert_array_equal(function(jnp.zeros(2)), 1)
    assert len(calls) == 1


def test_that_is_how_an_unknown_option_is_refused():
    try:
        jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": True})(1.0)
    except jax.errors.JaxRuntimeError as error:
        assert "xla_no_such_option" in str(error)
    else:
        raise AssertionError("unknown options are accepted")


def test_other_platforms_compile_as_usual(monkeypatch):
    function = compiled_soon(lambda x: x + 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(function(jnp.zeros(2)), 1)
    assert function._soon._cache_size() == 0
