"""Networks that lie on disk are exported as those in memory are."""

import re
import shutil
import sys
from itertools import cycle
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from small_export import rows

from exporter import ExportError, ServingOptions, verify
from exporter.plan.runtime import RUNTIMES
from serving import EnsembleClient, TritonServer, check_parity
from training import compile_model, save_model, train
from training.errors import TrainingError
from training.network.load import as_network, load_network
from training.network.saved_network import SavedNetwork
from workflow import Workflow

DAMAGED = r"model.keras. Received: a damaged file: .*Save it again"


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("networks")
    save_model(model, path / "saved")
    model.save(path / "model.keras")
    return path


@pytest.mark.parametrize(("runtime", "batch"), list(zip(RUNTIMES, cycle([0, 8, 8, 0]))))
def test_a_saved_model_is_planned_as_the_keras_model_is(runtime, batch, folder, export):
    options = ServingOptions(runtime=runtime, max_batch_size=batch)
    ours, theirs = export(serving=options), export(folder / "saved", name="saved", serving=options)
    # A SavedModel does not keep the order of its inputs.
    for one, other in zip(ours.plan.models, theirs.plan.models, strict=True):
        assert set(one.inputs) == set(other.inputs)
        assert set(one.outputs) == set(other.outputs)
    assert verify(theirs.repository, "saved") == theirs.generation


def test_variables_of_keras_are_found_by_the_loader_of_a_server(export, tmp_path):
    """The loader of C++, which the native backend has too, finds none in such a SavedModel."""
    user = keras.Input((1,), name="userId", dtype="int64")
    score = keras.layers.Flatten()(keras.layers.Embedding(9, 1, name="table")(user))
    module = tf.Module()
    module.network = network = keras.Model(user, score)
    spec = tf.TensorSpec((None, 1), "int64", name="userId")
    serve = tf.function(lambda userId: {"y": network(userId)})  # noqa: N803
    module.serve = serve.get_concrete_function(userId=spec)
    served(tmp_path / "keras", module)
    users = np.array([[3], [8]])
    with pytest.raises(tf.errors.FailedPreconditionError, match="Could not find variable"):
        as_a_server(tmp_path / "keras", userId=users)
    report = export(tmp_path / "keras")
    answer = as_a_server(report.paths["movies_tf"] / "model.savedmodel", userId=users)
    np.testing.assert_array_equal(answer["y"], network.predict_on_batch(users))


def as_a_server(folder, **inputs):
    """The answer of a SavedModel that TensorFlow's C++ loader has loaded."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return {name: session.run(out.name, feeds) for name, out in signature.outputs.items()}


def test_it_is_proven_against_the_folder_and_the_model(folder, model, workflow, export, tmp_path):
    """A server of Triton, two steps that are packed and joined; the proof takes either."""
    options = ServingOptions(max_batch_size=8)
    export(str(folder / "saved"), serving=options)
    export(folder / "model.keras", name="from_file", serving=ServingOptions(runtime="fused_onnx"))
    export(folder / "saved", name="fused", serving=ServingOptions(runtime="fused_onnx"))
    # Each network once: the proof reads it without regard to the model that is asked.
    networks = {
        "movies": (model, folder / "saved", str(folder / "model.keras")),
        "from_file": (model,),
        "fused": (model,),
    }
    with TritonServer(tmp_path / "models") as server:
        for name, each in networks.items():
            with EnsembleClient(server.grpc_url, name) as client:
                for network in each:
                    report = check_parity(client, workflow, network, rows())
                    assert report.passed, f"\n{report}"


def test_a_damaged_file_is_not_said_to_be_missing(folder, tmp_path):
    content = (folder / "model.keras").read_bytes()
    (tmp_path / "model.keras").write_bytes(content[: len(content) // 2])
    with pytest.raises(TrainingError, match=DAMAGED):
        as_network(tmp_path / "model.keras")


def test_a_damaged_byte_is_noticed_or_changes_no_weight(model, folder, tmp_path):
    """Keras alone leaves a layer of which it finds no weights as it is, with a warning."""
    content = (folder / "model.keras").read_bytes()
    noticed = []
    for place in np.linspace(0, len(content) - 1, 60).astype(int):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (tmp_path / "model.keras").write_bytes(damaged)
        try:
            network = load_network(tmp_path / "model.keras")
        except TrainingError as error:
            noticed.append(str(error))
        else:  # a time, or another fact that nobody needs
            for weights, expected in zip(network.get_weights(), model.get_weights(), strict=True):
                np.testing.assert_array_equal(weights, expected)
    assert len(noticed) > 50
    assert all(re.search(DAMAGED, error) for error in noticed)


class Named(tf.Module):
    """A function of TensorFlow alone, with tensors of some shapes and dtypes."""

    def __init__(self, shape, dtype, answer):
        super().__init__()
        specs = {"userId": tf.TensorSpec(shape, dtype, name="userId")}
        self.serve = tf.function(lambda userId: {"y": answer(userId)}).get_concrete_function(  # noqa: N803
            **specs
        )


def in_python(tensor):
    return tf.ensure_shape(tf.numpy_function(lambda x: x, [tensor], tf.int64), (None, 1))


UNFIT = {
    "another signature": (
        lambda path: tf.saved_model.save(
            module := Named([None, 1], "int64", tf.identity),
            str(path),
            signatures={"mine": module.serve},
        ),
        "Expected the signature 'serving_default'.*Received: mine",
    ),
    "three dimensions": (
        lambda path: served(path, Named([None, 1, 2], "int64", tf.identity)),
        r"input 'userId' of the SavedModel of shape \(None, k\).*Received: \(None, 1, 2\)",
    ),
    "any width": (
        lambda path: served(path, Named([None, None], "int64", tf.identity)),
        r"input 'userId'.*shape \(None, k\)",
    ),
    "a dtype that Triton has not": (
        lambda path: served(path, Named([None, 1], "int64", lambda x: tf.cast(x, tf.complex64))),
        "output 'y'.*Received: complex64",
    ),
    "Python inside": (
        lambda path: served(path, Named([None, 1], "int64", in_python)),
        "a network of TensorFlow's operations. Received: PyFunc",
    ),
    "damaged": (lambda path: (path.mkdir(), (path / "saved_model.pb").write_bytes(b"x")), "SavedM"),
    "no model": (lambda path: path.mkdir(), "Expected a Keras model in .* Received: a folder"),
    "nothing": (lambda _: None, "Received: no such file"),
}


def served(path, module):
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})


@pytest.mark.parametrize("case", UNFIT)
def test_what_is_no_network_is_refused_before_anything_is_written(case, export, tmp_path):
    make, reason = UNFIT[case]
    make(tmp_path / "network")
    with pytest.raises(ExportError, match=reason):
        export(tmp_path / "network")
    assert not (tmp_path / "models").exists()


class Retrieval(tf.Module):
    """A table of 72 MB that is looked up, and then scored against as a whole."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(7)
        self.items = tf.Variable(rng.normal(size=(280_000, 64)).astype(np.float32))
        self.weight = tf.Variable(rng.normal(size=(64, 64)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 1], "int64", name="userId")])
    def serve(self, userId):  # noqa: N803
        vector = tf.gather(self.items, userId[:, 0]) @ self.weight
        scores = tf.linalg.matmul(vector, self.items, transpose_b=True)
        best = tf.argmax(scores, axis=1)[:, tf.newaxis]
        return {"score": tf.reduce_max(scores, axis=1, keepdims=True), "best": best}


def test_a_large_saved_model_becomes_onnx_with_its_tables_beside(export, tmp_path):
    served(tmp_path / "retrieval", module := Retrieval())
    workflow = Workflow(["userId"]).fit({"userId": np.arange(3)})
    options = ServingOptions(runtime="fused_onnx")
    report = export(tmp_path / "retrieval", workflow, labels=[], serving=options)
    folder = report.paths["movies"]
    tables = (folder / "tables.data").stat().st_size
    assert 280_000 * 64 * 4 <= tables < 280_000 * 64 * 4 + 100_000  # Once, though used twice.
    assert (folder / "model.onnx").stat().st_size < 100_000
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    users = np.array([[0], [7], [279_999]])
    answer = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {"userId": users}),
            strict=True,
        )
    )
    expected = module.serve(tf.constant(users))
    np.testing.assert_allclose(answer["score"], expected["score"].numpy(), rtol=1e-5)
    np.testing.assert_array_equal(answer["best"], expected["best"].numpy())


@pytest.mark.parametrize("name", ["m.keras", "m.onnx", "saved"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_network_in_an_object_store_is_to_be_copied(name, kind):
    """Also as pathlib changes the URL, which a command does."""
    with pytest.raises(
        TrainingError, match=f"path of this machine. Received: 's3://nets/{name}'.*copy it here"
    ):
        load_network(kind(f"s3://nets/{name}"))


def test_a_keras_file_that_is_damaged(folder, export, tmp_path):
    shutil.copyfile(folder / "model.keras", tmp_path / "model.keras")
    content = bytearray((tmp_path / "model.keras").read_bytes())
    content[len(content) // 2 :] = b"0" * 10
    (tmp_path / "model.keras").write_bytes(content)
    with pytest.raises(ExportError, match=r"Expected a Keras model in .*model\.keras"):
        export(tmp_path / "model.keras")


def test_what_is_called_as_keras_would_be_is_cast(folder):
    network = SavedNetwork(folder / "saved")
    tensors = {spec.name: np.ones((2, 1), np.int64) for spec in network.inputs}
    answer = network.predict_on_batch(tensors)
    assert {name: array.dtype for name, array in answer.items()} == {"output": np.float32}


@keras.saving.register_keras_serializable("tests")
class Known(keras.layers.Layer):
    """A layer that is not known where its module is not imported."""

    def call(self, x):
        return x


@pytest.mark.parametrize("inside", [False, True])
def test_a_class_that_keras_does_not_know_is_named(inside, tmp_path):
    given = keras.Input((1,), name="userId")
    model = keras.Model(given, Known()(given))
    if inside:
        model = keras.Model(given, model(given))
    model.save(tmp_path / "model.keras")
    registered = keras.saving.get_custom_objects()
    known = {name: registered.pop(name) for name in [*registered] if name == "tests>Known"}
    module, sys.modules[__name__] = sys.modules[__name__], None
    try:
        with pytest.raises(TrainingError, match=r"with 'Known'\. Import the module.*save_model"):
            load_network(tmp_path / "model.keras")
    finally:
        registered |= known
        sys.modules[__name__] = module
    load_network(tmp_path / "model.keras")


def test_a_reason_is_told_without_the_config_before_it(tmp_path):
    @keras.saving.register_keras_serializable("tests")
    class Unready(keras.layers.Layer):
        def build(self, _shape):
            if getattr(self, "is_loaded", False):
                raise ValueError("the items are missing")
            self.built = True

        def call(self, x):
            return x

        @classmethod
        def from_config(cls, config):
            made = cls(**config)
            made.is_loaded = True
            return made

    given = keras.Input((1,), name="userId")
    keras.Model(given, Unready()(given)).save(tmp_path / "model.keras")
    with pytest.raises(TrainingError, match=r"model\.keras\. Received: .*the items are missing\."):
        load_network(tmp_path / "model.keras")


@pytest.mark.parametrize(
    "use",
    [
        lambda model, _: train(model, ({"userId": np.ones((4, 1))}, np.ones((4, 1)))),
        lambda model, _: compile_model(model),
        lambda model, folder: save_model(model, folder / "saved"),
        lambda model, _: as_network(model),
    ],
    ids=["train", "compile_model", "save_model", "export"],
)
def test_another_backend_of_keras_is_refused(use, tmp_path, monkeypatch):
    given = keras.Input((1,), name="userId")
    model = keras.Model(given, keras.layers.Dense(1, name="y")(given))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(TrainingError, match=r"Received: jax.*KERAS_BACKEND=tensorflow.*\.keras"):
        use(model, tmp_path)
    assert not [*tmp_path.iterdir()]
