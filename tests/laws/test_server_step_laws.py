"""Every server step: what it makes of no change, of its memory, and of the arrays' form."""

import json

import numpy as np
import optax
import pytest
from reference.extension import member
from reference.federations import first_weights, flat, model_bytes

from fedkoopman.errors import InputError
from fedkoopman.federation.options import ServerOptions
from fedkoopman.federation.server_steps import SERVER_STEPS, first_steps, stepped

STEPS = {name: SERVER_STEPS.find(name) for name in SERVER_STEPS}
STEPS["nesterov"] = member("nesterov", "SERVER_STEP")
OPTIONS = ServerOptions()


@pytest.fixture(params=STEPS.values(), ids=STEPS)
def step(request):
    return request.param


def models(count, dtype=np.float64):
    return [{n: x.astype(dtype) for n, x in first_weights(k).items()} for k in range(count)]


def walked(step, changes, options=OPTIONS, dtype=np.float64):
    """The models after each of the changes, and the last memory."""
    [model] = models(1, dtype)
    memory, found = first_steps(step, options, model), [model]
    for change in changes:
        aggregate = {n: (x + change(x)).astype(dtype) for n, x in found[-1].items()}
        model, memory = stepped(step, options, memory, found[-1], aggregate)
        found.append(model)
    return found, memory


def test_no_change_is_no_step(step):
    found, _ = walked(step, [np.zeros_like] * 3)
    assert {model_bytes(one) for one in found} == {model_bytes(found[0])}


def test_a_change_is_followed_in_its_direction(step):
    [before, after], _ = walked(step, [lambda x: np.full_like(x, 0.01)])
    assert (flat(after) > flat(before)).all()
    [before, after], _ = walked(step, [lambda x: np.full_like(x, -0.01)])
    assert (flat(after) < flat(before)).all()


def test_opposite_changes_are_opposite_steps(step):
    random = np.random.default_rng(0)
    drawn = [{x.shape: random.normal(size=x.shape) for x in models(1)[0].values()} for _ in "abc"]
    ways = [
        walked(step, [lambda x, d=d, s=s: s * 0.01 * d[x.shape] for d in drawn])[0] for s in (1, -1)
    ]
    np.testing.assert_allclose(
        flat(ways[0][-1]) - flat(ways[0][0]), flat(ways[1][0]) - flat(ways[1][-1]), atol=1e-12
    )


def test_a_smaller_rate_is_a_smaller_step(step):
    def moved(rate):
        found, _ = walked(step, [np.ones_like], ServerOptions(learning_rate=rate))
        return flat(found[1]) - flat(found[0])

    np.testing.assert_allclose(0.1 * moved(0.5), moved(0.05), rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_and_memory_keep_their_form(step, dtype):
    found, memory = walked(step, [np.ones_like, np.zeros_like], dtype=dtype)
    for model in found:
        assert {name: (x.shape, x.dtype) for name, x in model.items()} == {
            name: (x.shape, np.dtype(dtype)) for name, x in first_weights().items()
        }
    first = first_steps(step, OPTIONS, found[0])
    assert {name: (x.shape, x.dtype) for name, x in memory.items()} == {
        name: (x.shape, x.dtype) for name, x in first.items()
    }
    json.dumps(list(memory))


def test_a_step_depends_on_its_memory_and_arrays_alone_and_leaves_them(step):
    one, other = models(2)
    _, memory = walked(step, [np.ones_like] * 2)
    before = model_bytes([one, other, dict(memory)])
    ways = [stepped(step, OPTIONS, memory, one, other) for _ in range(2)]
    assert model_bytes([one, other, dict(memory)]) == before
    assert model_bytes(list(ways[0])) == model_bytes(list(ways[1]))


def test_a_memory_survives_a_checkpoint(step):
    """As bytes by name, which is what safetensors keeps; in another order."""
    one, other = models(2)
    _, memory = walked(step, [np.ones_like] * 2)
    copied = {
        name: np.frombuffer(memory[name].tobytes(), memory[name].dtype).reshape(memory[name].shape)
        for name in sorted(memory, reverse=True)
    }
    ways = [stepped(step, OPTIONS, kept, one, other) for kept in (memory, copied)]
    assert model_bytes(list(ways[0])) == model_bytes(list(ways[1]))


# Steps of the user's own


def growing(options):
    """Its memory is one number longer after every step."""

    def init(params):
        return np.zeros(1)

    def update(updates, state, params=None):
        return updates, np.append(state, 0.0)

    return optax.GradientTransformation(init, update)


def renamed(options):
    return optax.stateless(lambda updates, _: {f"{n}x": x for n, x in updates.items()})


def reshaped(options):
    return optax.stateless(lambda updates, _: {n: x[:1] for n, x in updates.items()})


BAD = {
    "no optimizer": (lambda options: 3.0, "gave a float"),
    "nothing": (lambda options: None, "gave a NoneType"),
    "other names": (renamed, "update of another form"),
    "other shapes": (reshaped, "update of another form"),
    "a growing memory": (growing, "memory of the server step changes its form"),
    "a failure": (lambda options: 1 / 0, "the server step failed"),
}


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD)
def test_a_step_of_the_users_own_is_held_to_its_form(bad, reason):
    with pytest.raises(InputError, match=reason) as caught:
        walked(bad, [np.ones_like])
    assert "\n" not in str(caught.value)
