import errno
import os
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, model_signature, models, save_model, saved_model, train


def restored(path, signature="serving_default"):
    loaded = tf.saved_model.load(str(path))
    return loaded, lambda tensors: {
        name: value.numpy()
        for name, value in loaded.signatures[signature](
            **{name: tf.constant(value) for name, value in tensors.items()}
        ).items()
    }


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def small():
    """A model for the tests of files, which are written alike for every model."""
    x = keras.Input((2,), name="x")
    return keras.Model(x, keras.layers.Dense(1, name="y")(x))


def with_state_of_training():
    """A model whose layers answer otherwise in training: dropout and batch normalisation."""
    inputs = keras.Input((4,), name="x")
    x = keras.layers.BatchNormalization()(inputs)
    x = keras.layers.Dropout(0.5)(keras.layers.Dense(8)(x))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="score")(x))


def test_it_predicts_as_the_model_does(tmp_path):
    """With ids, values and lengths of lists in each pair of dtypes."""
    ids = {name: name for name in ("int32", "int64")}
    lists = {f"{values}_{nnzs}": (values, nnzs) for values in ids for nnzs in ids}
    sizes = dict.fromkeys(ids, (50, 8)), dict.fromkeys(lists, (22, 4))
    dtypes = {**ids, **lists}
    model = models.mlp(sizes, id_dtypes=dtypes, embeddings_initializer="normal", hidden=(8,))
    described = save_model(model, tmp_path / "saved")
    assert described == model_signature(model)
    loaded, call = restored(tmp_path / "saved")
    assert list(loaded.signatures) == ["serving_default"]
    given = loaded.signatures["serving_default"].structured_input_signature[1]
    halves = {
        f"{name}__{half}": dtype
        for name, pair in lists.items()
        for half, dtype in zip(("values", "nnzs"), pair, strict=True)
    }
    assert {name: spec.dtype.name for name, spec in given.items()} == {**ids, **halves}
    for count in (1, 200):
        random = np.random.default_rng(count)
        features = {name: random.integers(0, 50, (count, 1)).astype(name) for name in ids}
        for name, (values, nnzs) in lists.items():
            lengths = random.integers(0, 4, (count, 1))
            of_rows = random.integers(0, 22, (lengths.sum(), 1))
            features[name] = of_rows.astype(values), lengths.astype(nnzs)
        flat = {name: features[name] for name in ids}
        for name in lists:
            flat |= zip((f"{name}__values", f"{name}__nnzs"), features[name], strict=True)
        answer, expected = call(flat), model(features).numpy()
        assert list(answer) == ["output"]
        np.testing.assert_allclose(answer["output"], expected, rtol=0, atol=1e-6)


def test_a_loader_of_signatures_in_a_graph_reads_it_too(tmp_path, model, rows, predict):
    """As servers do it, in C++: by the names in the file, without TensorFlow 2's objects."""
    save_model(model, tmp_path / "saved", signature="recommend")
    sample = rows(20)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "saved"))
        signature = meta.signature_def["recommend"]
        feed = {signature.inputs[name].name: value for name, value in sample.flat.items()}
        answer = session.run(signature.outputs["output"].name, feed)
    np.testing.assert_allclose(answer, predict(model, sample.features), rtol=0, atol=1e-6)


def test_it_is_as_large_as_the_weights(tmp_path):
    model = models.mlp({"userId": (50, 8)} | {"movieId": (40_000, 16)})
    model.compile("adam", "binary_crossentropy")
    model.optimizer.build(model.trainable_variables)  # Adam holds two more copies of everything
    save_model(model, tmp_path / "saved")
    weights = sum(weight.nbytes for weight in model.get_weights())
    assert weights < size_of(tmp_path / "saved") < 1.1 * weights
    names = tf.train.list_variables(str(tmp_path / "saved" / "variables" / "variables"))
    assert len(names) == len(model.variables) + 1  # and the graph of objects


def test_it_answers_in_inference_mode(tmp_path):
    keras.utils.set_random_seed(0)
    model = with_state_of_training()
    x = np.random.default_rng(0).normal(3, 2, (256, 4)).astype("float32")
    train(model, (x, x[:, :1] > 3), epochs=2, metrics=[], optimizer="sgd")
    save_model(model, tmp_path / "saved")
    _, call = restored(tmp_path / "saved")
    expected = model(x, training=False).numpy()
    np.testing.assert_allclose(call({"x": x})["score"], expected, rtol=0, atol=1e-6)


def test_outputs_carry_their_keys(tmp_path):
    inputs = keras.Input((3,), name="X")
    heads = {"view": keras.layers.Dense(2)(inputs), "Click-rate": keras.layers.Dense(1)(inputs)}
    model = keras.Model(inputs, heads)
    save_model(model, tmp_path / "saved")
    _, call = restored(tmp_path / "saved")
    x = np.ones((5, 3), "float32")
    answer, expected = call({"X": x}), model(x)
    assert answer.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(answer[name], value.numpy(), rtol=0, atol=1e-6)


def test_a_sequential_model_and_a_lookup_table(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((1,), name="city", dtype="string"),
            keras.layers.StringLookup(vocabulary=["Rome", "Oslo"]),
            keras.layers.Embedding(3, 2),
            keras.layers.Flatten(name="vector"),
        ]
    )
    save_model(model, tmp_path / "saved")
    expected = model(tf.constant([["Oslo"], ["Bonn"]])).numpy()
    del model
    _, call = restored(tmp_path / "saved")
    answer = call({"city": np.array([["Oslo"], ["Bonn"]], object)})["vector"]
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)


def test_the_model_is_not_changed(tmp_path, model, rows, batches, predict):
    train(model, batches(128, 64), metrics=[], optimizer="sgd")
    before = [weight.copy() for weight in model.get_weights()]
    config, sample = model.to_json(), rows(10)
    answer = predict(model, sample.features)
    save_model(model, tmp_path / "saved")
    assert model.to_json() == config
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(predict(model, sample.features), answer)
    model.fit(batches(128, 64), verbose=0, shuffle=False)


def test_it_is_readable_by_another_user(tmp_path, small):
    save_model(small, tmp_path / "deep" / "saved")
    assert (tmp_path / "deep" / "saved").stat().st_mode & 0o555 == 0o555


# The layer calls a function when its model is saved.
CALLS = """
import keras

class Called(keras.layers.Layer):
    function = None

    def call(self, inputs):
        if self.function is not None:
            self.function()
        return inputs

def calls(function):
    price = keras.Input((1,), name="price")
    called = Called()
    model = keras.Model({"price": price}, called(price))
    called.function = function
    return model
"""


def test_what_a_kill_left_is_removed_by_the_next_save(tmp_path, small):
    saving = (
        "import os, signal, sys\nfrom training import save_model\n"
        "save_model(calls(lambda: os.kill(os.getpid(), signal.SIGKILL)), sys.argv[1])"
    )
    command = [sys.executable, "-c", CALLS + saving, tmp_path / "saved"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".saved.")
    (tmp_path / ".saved.own").mkdir()
    save_model(small, tmp_path / "saved")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".saved.own", "saved"]


def test_a_save_leaves_another_that_is_under_way_alone(tmp_path, small):
    found: dict[str, object] = {}
    exec(CALLS, found)  # noqa: S102
    listings = []

    def save():
        listings.append(set(tmp_path.iterdir()))
        other = threading.Thread(target=save_model, args=(small, tmp_path / "saved"))
        other.start()
        other.join()
        listings.append(set(tmp_path.iterdir()))

    with pytest.raises(TrainingError, match=r"able to write .*saved\. Received: .*not empty"):
        save_model(found["calls"](save), tmp_path / "saved")
    assert listings[-1] == {*listings[-2], tmp_path / "saved"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_path_that_exists_is_refused(tmp_path, small):
    (tmp_path / "saved").mkdir()
    with pytest.raises(TrainingError, match=r"does not exist. Received: .*saved"):
        save_model(small, tmp_path / "saved")
    assert not any((tmp_path / "saved").iterdir())


def test_a_path_that_cannot_be_written_is_refused(tmp_path, small):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        TrainingError, match=r"able to write .*saved\. Received: .*File exists: .*file.*remove it"
    ):
        save_model(small, tmp_path / "file" / "saved")


def test_a_full_disk_is_reported_and_leaves_nothing_behind(tmp_path, small, full_disk):
    message = rf"able to write {tmp_path}/saved\. Received: File too large\. Check the free space"
    with full_disk(9_000), pytest.raises(TrainingError, match=message):
        save_model(small, tmp_path / "saved")
    with full_disk(9_000), pytest.raises(TrainingError, match="File too large"):
        save_model(small, tmp_path / "models" / "1" / "saved")
    assert not any(tmp_path.iterdir())
    save_model(small, tmp_path / "saved")


@pytest.mark.parametrize("function", ["save", "make_canonical", "write_fits"])
def test_a_disk_that_python_finds_full_is_reported_alike(tmp_path, small, monkeypatch, function):
    """TensorFlow writes most files itself, and has errors of its own."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_args, **_options):
        raise full

    place = tf.saved_model if function == "save" else saved_model
    monkeypatch.setattr(place, function, fail)
    message = rf"able to write {tmp_path}/saved\. Received: .*No space left on device\. Check"
    with pytest.raises(TrainingError, match=message) as raised:
        save_model(small, tmp_path / "saved")
    assert raised.value.__cause__ is full
    assert not any(tmp_path.iterdir())


def test_all_of_it_is_on_the_disk_before_and_after_it_has_its_name(tmp_path, small, monkeypatch):
    synced, rename, fsync = [], os.rename, os.fsync
    held = {}

    def noted(descriptor):
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watched(source, target):
        held[target] = {p.stat().st_ino for p in (source, *source.rglob("*"))}
        assert held[target] <= set(synced)
        synced.clear()
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", watched)
    save_model(small, tmp_path / "models" / "1" / "saved")
    assert len(held[tmp_path / "models" / "1" / "saved"]) > 3
    assert synced == [(tmp_path / "models" / "1").stat().st_ino]


def test_a_disk_that_fails_in_the_end_is_told_of_and_leaves_nothing_behind(
    tmp_path, small, monkeypatch
):
    def fail(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TrainingError, match=r"able to write .*saved\. .*Input/output error"):
        save_model(small, tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_an_output_that_is_multiplied_is_dense(tmp_path):
    x = keras.Input((2,), name="x")
    model = keras.Model(x, {"stars": keras.ops.sigmoid(keras.layers.Dense(1)(x)) * 5.0})
    save_model(model, tmp_path / "model")
    rows = np.ones((3, 2), "float32")
    _, answer = restored(tmp_path / "model")
    np.testing.assert_allclose(
        answer({"x": rows})["stars"], model(rows)["stars"].numpy(), rtol=1e-6
    )


def test_a_sparse_output_is_refused(tmp_path):
    x = keras.Input((2,), name="x")
    model = keras.Model(x, {"y": keras.layers.Lambda(tf.sparse.from_dense, output_shape=(2,))(x)})
    with pytest.raises(TrainingError, match=r"output 'y' to be dense.*SparseTensor.*to_dense"):
        save_model(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_signature_has_the_strings_that_keras_takes_for_numbers(tmp_path):
    ids = keras.Input((1,), name="id", dtype="int64")
    names = keras.layers.StringLookup(vocabulary=["a", "b"], invert=True, name="name")(ids)
    signature = save_model(keras.Model({"id": ids}, {"name": names}), tmp_path / "model")
    assert [(one.name, one.dtype) for one in signature.outputs] == [("name", "string")]
    assert restored(tmp_path / "model")[1]({"id": np.array([[1], [2]])})["name"].tolist() == [
        [b"a"],
        [b"b"],
    ]
