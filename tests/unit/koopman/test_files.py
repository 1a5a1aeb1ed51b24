"""Model files: bit for bit there and back, and every damaged file refused."""

import json
import os
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from fedkoopman.errors import InputError, MachineError
from fedkoopman.koopman import DeepKoopman, load_model
from fedkoopman.koopman.files import from_bytes, read_model, to_bytes, write_model
from fedkoopman.koopman.kinds.paper import PaperNetwork

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(20, 2))


def made(dtype=np.float32, **shape):
    architecture = PaperNetwork(**{"state_dim": 2, "components": 3, "width": 4, **shape})
    weights = jax.tree.map(
        lambda leaf: RNG.normal(size=leaf.shape).astype(dtype), architecture.template
    )
    reference = RNG.normal(size=(architecture.window, architecture.state_dim))
    return DeepKoopman.from_weights(
        architecture,
        weights,
        dt=0.1,
        reference=reference,
        names=("θ", "ω"),
        units=("rad", "rad/s"),
        information={"study": "a", "clients": [1, 2.5, None, {"b": True}]},
    )


MODEL = made()
GOOD = to_bytes(MODEL)


def header_of(content):
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["fedkoopman"])


def rebuilt(tensors=None, header=None, **changes):
    """The good file with some tensors or entries of its header replaced; None removes one."""
    arrays = {**load(GOOD), **(tensors or {})}
    entries = {**header_of(GOOD), **(header or {}), **changes}
    kept = {key: value for key, value in entries.items() if value is not ...}
    arrays = {key: np.ascontiguousarray(a) for key, a in arrays.items() if a is not None}
    return save(arrays, {"fedkoopman": json.dumps(kept)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape",
    [{}, {"hidden_layers": 0}, {"hidden_layers": 3, "window": 2, "depth": 3, "activation": "gelu"}],
)
def test_there_and_back_bit_for_bit(tmp_path, dtype, shape):
    model, path = made(dtype, **shape), tmp_path / "model.safetensors"
    model.save(path)
    for back in (load_model(path), DeepKoopman.load(str(path))):
        leaves = zip(jax.tree.leaves(model.weights_), jax.tree.leaves(back.weights_), strict=True)
        for one, other in leaves:
            assert one.dtype == other.dtype == dtype
            assert one.tobytes() == other.tobytes()
        assert back.reference_.tobytes() == model.reference_.tobytes()
        assert back.architecture_ == model.architecture_
        assert back.get_params() == model.get_params()
        assert back.feature_names_in_.tolist() == ["θ", "ω"]
        assert back.units_ == model.units_ and back.information_ == model.information_
        rows = ROWS[:8]
        assert back.predict(rows, 2).tobytes() == model.predict(rows, 2).tobytes()
        assert to_bytes(back) == to_bytes(model)


def test_a_loaded_model_goes_on_training_as_if_it_had_never_been_saved(tmp_path):
    model = DeepKoopman(
        3, width=4, epochs=2, learning_rate=0.01, dt=0.5, random_state=3, kind="paper"
    ).fit(ROWS)
    model.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert back.get_params() == model.get_params()
    assert to_bytes(back.partial_fit(ROWS)) == to_bytes(model.partial_fit(ROWS))


def test_the_same_model_always_gives_the_same_bytes():
    assert len({to_bytes(MODEL) for _ in range(20)}) == 1
    assert to_bytes(MODEL) == GOOD


def test_the_file_is_plain_safetensors_with_the_promised_names():
    tensors = load(GOOD)
    assert sorted(tensors) == sorted(
        [f"{part}.{i}.{kind}" for part in ("encoder", "decoder") for i in (0, 1)
         for kind in ("weight", "bias")] + ["operator", "reference"]
    )  # fmt: skip
    np.testing.assert_array_equal(tensors["encoder.0.weight"], MODEL.weights_.encoder[0].weight)
    np.testing.assert_array_equal(tensors["decoder.1.bias"], MODEL.weights_.decoder[1].bias)
    header = header_of(GOOD)
    assert (header["format"], header["version"]) == ("fedkoopman-model", 2)
    assert (header["dt"], header["names"]) == (0.1, ["θ", "ω"])


def test_the_header_grows_with_the_network_and_not_with_the_data():
    short, long = (
        DeepKoopman(3, width=4, epochs=1, kind="paper").fit(rows)
        for rows in (ROWS, np.tile(ROWS, (9, 1)))
    )
    assert set(header_of(to_bytes(long))) == {
        "format", "version", "architecture", "dt", "names", "units", "training", "random_state",
        "updates", "windows", "information", "digest",
    }  # fmt: skip
    assert abs(len(to_bytes(long)) - len(to_bytes(short))) < 16  # the count of windows


def test_an_activation_of_ones_own_cannot_be_saved(tmp_path):
    model = DeepKoopman(3, width=4, epochs=1, activation=jnp.sin, kind="paper").fit(ROWS)
    with pytest.raises(InputError, match="a function, which a model file cannot hold: use a named"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


# Writing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model"
    write_model(path, MODEL)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match=r"cannot write .*model: No space left on device; check"):
        write_model(path, made())
    assert path.read_bytes() == GOOD
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    write_model(path, MODEL)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_model(path, made())
    assert path.read_bytes() == GOOD
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*No such file or directory; check that"):
        MODEL.save(tmp_path / "nowhere" / "model")
    with pytest.raises(InputError, match="is a directory: give the name of a file in it"):
        MODEL.save(tmp_path)


# Reading


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"there is no model file .*gone: check the path"):
        load_model(tmp_path / "gone")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        load_model(tmp_path)


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "model"
    path.touch()
    os.truncate(path, 2**30 + 1)  # sparse: it takes no room
    with pytest.raises(InputError, match="has 1073741825 bytes, too many for a model"):
        load_model(path)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, len(GOOD) // 2, len(GOOD) - 1])
def test_a_file_that_is_cut_short(size):
    with pytest.raises(InputError, match="not a safetensors file, or cut short"):
        from_bytes(GOOD[:size])


@pytest.mark.parametrize(
    "content",
    [
        b"hello, this is no model at all",
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",  # a pickle
        struct.pack("<Q", 2**62) + b"{}",  # a header of 4 EiB
        struct.pack("<Q", 20) + b"[" * 20,
        GOOD + b"more",
    ],
    ids=["text", "pickle", "huge header", "nested", "tail"],
)
def test_what_is_no_safetensors_file(content):
    with pytest.raises(InputError, match="not a safetensors file, or cut short"):
        from_bytes(content)


HUGE = {**header_of(GOOD)["architecture"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (save({"x": np.ones(3)}), "holds tensors but no fedkoopman model"),
        (
            save({"x": np.ones(3)}, {"fedkoopman": "{"}),
            "its header is not that of a fedkoopman-mod",
        ),
        (
            save({"x": np.ones(3)}, {"fedkoopman": "[1]"}),
            "its header is not that of a fedkoopman-m",
        ),
        (save({"x": np.ones(3)}, {"fedkoopman": "[" * 10**5}), "its header is not that of a"),
        (rebuilt(format="other"), "its header is not that of a fedkoopman-model"),
        (
            rebuilt(version=3),
            "has version 3 of the model format, and this fedkoopman reads versions 1 to 2: update",
        ),
        (rebuilt(version=...), "has version None"),
        (rebuilt(version=True), "has version True .*give a file that save"),
        (rebuilt(version=0), "has version 0 .*give a file that save"),
        (rebuilt(digest=...), "its digest is not that of its content"),
        (rebuilt(digest="0" * 64), "its digest is not that of its content"),
        (rebuilt(dt=0.2), "its digest is not that of its content"),
        (rebuilt({"operator": np.eye(3, dtype=np.float32)}), "its digest is not that of its cont"),
        (rebuilt({"noise": np.eye(3)}), "its digest is not that of its content"),
        (rebuilt({"noise": np.eye(2)}), r"'noise' has shape \(2, 2\), not \(3, 3\)"),
        (rebuilt({"noise": np.eye(3, dtype=np.float32)}), "'noise' holds F32"),
        (rebuilt({"noise": np.full((3, 3), np.nan)}), "'noise' has entries that are not finite"),
        (rebuilt({"noise": -np.eye(3)}), "noise is not positive semi-definite"),
        (rebuilt(architecture=...), "architecture or training do not fit"),
        (rebuilt(architecture=[1]), "architecture or training do not fit"),
        (rebuilt(architecture={**HUGE, "extra": 1}), "architecture or training do not fit"),
        (rebuilt(architecture={**HUGE, "activation": "evil"}), "unknown activation 'evil'"),
        (rebuilt(architecture={**HUGE, "activation": 3}), "the activation is 3"),
        (rebuilt(architecture={**HUGE, "components": 0}), "components is 0"),
        (rebuilt(architecture={**HUGE, "components": 10**12}), r"has about 1e\+24 weights"),
        (rebuilt(architecture={**HUGE, "width": 10**15}), r"has about 1.4e\+16 weights"),
        (
            rebuilt(architecture={**HUGE, "hidden_layers": 10**12}),
            r"has about 4e\+13 weights",
        ),
        (
            rebuilt(architecture={**HUGE, "window": 2}),
            r"'reference' has shape \(1, 2\), not \(2, 2\)",
        ),
        (rebuilt(training={"epochs": 0}), "epochs is 0"),
        (rebuilt(training={"epoch": 1}), "architecture or training do not fit"),
        (rebuilt(training=None), "architecture or training do not fit"),
        (rebuilt(dt=...), "its header has no 'dt'"),
        (rebuilt(dt=0), "dt is 0"),
        (rebuilt(dt=float("nan")), "dt is nan"),
        (rebuilt(dt="1"), "dt is '1'"),
        (rebuilt(names=["a"]), r"names is .*give one text for each of 2 states"),
        (rebuilt(units="ab"), "units is 'ab'"),
        (rebuilt(updates=-1), "updates is -1"),
        (rebuilt(windows=1.5), "windows is 1.5"),
        (rebuilt(random_state="x"), "seed is 'x'"),
        (rebuilt(information=[1]), "information cannot be kept"),
        (rebuilt({"operator": None}), "the tensor 'operator' is missing"),
        (rebuilt({"spare": np.ones(2)}), "its architecture has no tensor 'spare'"),
        (rebuilt({"operator": None, "spare": np.ones(2)}), "the tensor 'operator' is missing"),
        (
            rebuilt({"decoder.1.bias": None, "decoder.2.bias": np.ones(2, np.float32)}),
            "the tensor 'decoder.1.bias' is missing",
        ),
        (rebuilt({"operator": np.eye(4, dtype=np.float32)}), r"'operator' has shape \(4, 4\), not"),
        (
            rebuilt({"encoder.0.weight": np.ones((2, 4), np.float32)}),
            r"'encoder.0.weight' has shape",
        ),
        (rebuilt({"operator": np.eye(3, dtype=np.float16)}), "'operator' holds F16"),
        (rebuilt({"operator": np.eye(3, dtype=np.int32)}), "'operator' holds I32"),
        (rebuilt({"reference": np.ones((1, 2), np.float32)}), "'reference' holds F32"),
        (rebuilt({"decoder.0.bias": np.ones(4)}), "differ in precision"),
        (rebuilt({"decoder.0.bias": np.full(4, np.nan, np.float32)}), "that are not finite"),
        (rebuilt({"operator": np.full((3, 3), np.inf, np.float32)}), "that are not finite"),
        (rebuilt({"reference": np.full((1, 2), np.nan)}), "'reference' has entries that are not"),
    ],
)
def test_a_damaged_model_is_refused_with_one_line(tmp_path, content, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_changed_byte_is_refused_or_changes_nothing():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(400):
        content = bytearray(GOOD)
        content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        try:
            learned = from_bytes(bytes(content))
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            assert to_bytes(DeepKoopman._of(learned)) == GOOD
    assert refused > 390


def test_a_file_of_version_1_can_still_be_read(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(rebuilt(version=1, digest=...))
    back = load_model(path)
    assert back.noise_ is None
    assert to_bytes(back) == GOOD


def test_what_the_model_knows_of_its_own_error_is_kept(tmp_path):
    model = DeepKoopman(3, width=4, epochs=1, kind="paper").fit(ROWS)
    model.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert back.noise_.tobytes() == model.noise_.tobytes()
    assert to_bytes(back) == to_bytes(model)
