"""A server with hand-made models, small enough that every answer can be worked out by hand."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from stand_in import backend_loader

from serving import EnsembleClient, TritonServer

CPU = "instance_group [{ kind: KIND_CPU count: 1 }]"


def tensors(kind, *specs):
    """Lines of config.pbtxt: each spec is (name, TYPE_*, dims)."""
    return "\n".join(
        f'{kind} [{{ name: "{name}" data_type: {datatype} dims: {list(dims)} }}]'
        for name, datatype, dims in specs
    )


def write_config(folder, *lines):
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text("\n".join([*lines, CPU]))
    return folder / "1"


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    _sums(repository)
    _batched(repository)
    _keras(repository)
    _codes(repository)
    _external(repository)
    _flags(repository)
    return repository


@pytest.fixture(scope="session")
def server(repository):
    with TritonServer(repository) as server:
        yield server


@pytest.fixture
def client(server):
    def connect(model):
        return EnsembleClient(server.grpc_url, model)

    return connect


@pytest.fixture
def without_server(monkeypatch, tmp_path):
    """Load a file of the backends here as the server would, where its neighbours have no package."""
    return backend_loader(monkeypatch, tmp_path)


def _sums(repository):
    """TensorFlow, no batching: userId + sum of the row's genres, under a signature of its own."""
    import tensorflow as tf

    class Sums(tf.Module):
        def __init__(self):
            super().__init__()
            self.one = tf.Variable(1, dtype=tf.int64)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1], tf.int64, "userId"),
                tf.TensorSpec([None, 1], tf.int32, "genres__values"),
                tf.TensorSpec([None, 1], tf.int64, "genres__nnzs"),
            ]
        )
        def score(self, user_id, values, nnzs):
            rows = tf.repeat(tf.range(tf.shape(nnzs)[0]), nnzs[:, 0])
            total = tf.math.unsorted_segment_sum(tf.cast(values, tf.int64), rows, tf.shape(nnzs)[0])
            return {"total": (user_id + total) * self.one}

    model = Sums()
    folder = write_config(
        repository / "sums",
        'backend: "tensorflow"',
        'platform: "tensorflow_savedmodel"',
        'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "score" } }',
        'parameters { key: "TF_NUM_INTRA_THREADS" value { string_value: "1" } }',
        tensors(
            "input",
            ("userId", "TYPE_INT64", [-1, 1]),
            ("genres__values", "TYPE_INT32", [-1, 1]),
            ("genres__nnzs", "TYPE_INT64", [-1, 1]),
        ),
        tensors("output", ("total", "TYPE_INT64", [-1, 1])),
    )
    tf.saved_model.save(model, str(folder / "model.savedmodel"), {"score": model.score})


def _batched(repository):
    """TensorFlow, dynamic batching: refuses a negative x, and tells how many rows one call had."""
    import tensorflow as tf

    class Batched(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1], tf.float32, "x"),
                tf.TensorSpec([None, 1], tf.string, "word"),
            ]
        )
        def serve(self, x, word):
            tf.debugging.assert_non_negative(x)
            return {
                "double": 2 * x,
                "greeting": tf.strings.join(["hello ", word]),
                "rows_in_call": tf.fill(tf.shape(x), tf.shape(x)[0]),
            }

    model = Batched()
    folder = write_config(
        repository / "batched",
        'backend: "tensorflow"',
        'platform: "tensorflow_savedmodel"',
        "max_batch_size: 8",
        # Long enough that requests sent together meet; a full batch does not wait.
        "dynamic_batching { preferred_batch_size: [8] max_queue_delay_microseconds: 1000000 }",
        tensors("input", ("x", "TYPE_FP32", [1]), ("word", "TYPE_STRING", [1])),
        tensors(
            "output",
            ("double", "TYPE_FP32", [1]),
            ("greeting", "TYPE_STRING", [1]),
            ("rows_in_call", "TYPE_INT32", [1]),
        ),
    )
    tf.saved_model.save(model, str(folder / "model.savedmodel"), model.serve)


def _keras(repository):
    """TensorFlow: twice x, plus 1 by a table, of a module that holds a Keras model as it is."""
    import keras
    import tensorflow as tf

    x = keras.Input((1,), name="x")
    word = keras.Input((1,), name="word", dtype="string")
    known = keras.layers.StringLookup(vocabulary=["a"], num_oov_indices=1)(word)
    twice = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(2), name="y")(x)

    class Holder(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = keras.Model({"x": x, "word": word}, [twice, known])

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1], tf.float32, "x"),
                tf.TensorSpec([None, 1], tf.string, "word"),
            ]
        )
        def serve(self, x, word):
            twice, known = self.model({"x": x, "word": word})
            return {"sum": twice + tf.cast(known, tf.float32)}

    model = Holder()
    folder = write_config(
        repository / "keras",
        'backend: "tensorflow"',
        'platform: "tensorflow_savedmodel"',
        tensors("input", ("x", "TYPE_FP32", [-1, 1]), ("word", "TYPE_STRING", [-1, 1])),
        tensors("output", ("sum", "TYPE_FP32", [-1, 1])),
    )
    tf.saved_model.save(model, str(folder / "model.savedmodel"), model.serve)


def save_onnx(file, nodes, inputs, outputs, constants=(), **options):
    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    graph = helper.make_graph(
        nodes, "graph", [info(*i) for i in inputs], [info(*o) for o in outputs], constants
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(file), **options)


def _flags(repository):
    """Both: a boolean as a number."""
    import tensorflow as tf

    described = (
        tensors("input", ("flag", "TYPE_BOOL", [-1, 1])),
        tensors("output", ("number", "TYPE_INT32", [-1, 1])),
    )
    folder = write_config(repository / "flags_onnxruntime", 'backend: "onnxruntime"', *described)
    save_onnx(
        folder / "model.onnx",
        [helper.make_node("Cast", ["flag"], ["number"], to=TensorProto.INT32)],
        [("flag", TensorProto.BOOL, ["n", 1])],
        [("number", TensorProto.INT32, ["n", 1])],
    )

    class Flags(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.bool, "flag")])
        def serve(self, flag):
            return {"number": tf.cast(flag, tf.int32)}

    model = Flags()
    folder = write_config(
        repository / "flags_tensorflow",
        'backend: "tensorflow"',
        'platform: "tensorflow_savedmodel"',
        *described,
    )
    tf.saved_model.save(model, str(folder / "model.savedmodel"), model.serve)


def _codes(repository):
    """ONNX: strings to codes, and the strings themselves."""
    folder = write_config(
        repository / "codes",
        'backend: "onnxruntime"',
        tensors("input", ("word", "TYPE_STRING", [-1, 1])),
        tensors("output", ("code", "TYPE_INT64", [-1, 1]), ("same", "TYPE_STRING", [-1, 1])),
    )
    encoder = helper.make_node(
        "LabelEncoder",
        ["word"],
        ["code"],
        domain="ai.onnx.ml",
        keys_strings=["blue", "grün"],
        values_int64s=[7, 8],
        default_int64=1,
    )
    save_onnx(
        folder / "model.onnx",
        [encoder, helper.make_node("Identity", ["word"], ["same"])],
        [("word", TensorProto.STRING, ["N", 1])],
        [("code", TensorProto.INT64, ["N", 1]), ("same", TensorProto.STRING, ["N", 1])],
    )


def _external(repository):
    """ONNX: a lookup in a table that lies in a file of its own; an id beyond it is an error."""
    folder = write_config(
        repository / "external",
        'backend: "onnxruntime"',
        'parameters { key: "intra_op_thread_count" value { string_value: "2" } }',
        tensors("input", ("id", "TYPE_INT64", [-1, 1])),
        tensors("output", ("vector", "TYPE_FP32", [-1, 1, 4])),
    )
    table = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    save_onnx(
        folder / "model.onnx",
        [helper.make_node("Gather", ["table", "id"], ["vector"])],
        [("id", TensorProto.INT64, ["N", 1])],
        [("vector", TensorProto.FLOAT, ["N", 1, 4])],
        [numpy_helper.from_array(table, "table")],
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=1,
    )
    assert (folder / "weights.bin").stat().st_size >= table.nbytes
