"""Requests without rows, at which some operations of onnxruntime end a server, are answered."""

import subprocess
import sys

import keras
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import model_of

from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.network import network_to_onnx
from exporter.write.onnx.without_rows import with_a_row
from training.network.keras_network import KerasNetwork
from training.network.load import as_network

ASK = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print([each.shape for each in session.run(None, dict(numpy.load(sys.argv[2])))])
"""


def opened(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def shapes_without_rows(folder, feed):
    """The shapes of a model's outputs, in a process of its own, which may end."""
    np.savez(folder / "given.npz", **feed)
    command = [sys.executable, "-c", ASK, folder / "model.onnx", folder / "given.npz"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("masked", [False, True])
def test_a_keras_network_of_lstm_answers_no_rows(masked, tmp_path):
    x = keras.Input((3,), name="x", dtype="int64")
    vectors = keras.layers.Embedding(10, 4, mask_zero=masked)(x)
    lstm = keras.layers.LSTM(2, return_sequences=not masked)
    last = keras.layers.Flatten()(keras.layers.Bidirectional(lstm)(vectors))
    model = keras.Model(x, last)
    network_to_onnx(KerasNetwork(model, {})).write(tmp_path)
    ids = np.array([[1, 2, 0], [0, 0, 0], [9, 0, 4]])
    (answer,) = opened(tmp_path / "model.onnx").run(None, {"x": ids})
    np.testing.assert_allclose(answer, model(ids).numpy(), atol=1e-6)
    expected = [(0, last.shape[1])]
    assert shapes_without_rows(tmp_path, {"x": np.empty((0, 3), np.int64)}) == str(expected)


def test_a_users_network_answers_no_rows(tmp_path):
    constants = [
        numpy_helper.from_array(np.ones((1, 9, width), np.float32), name)
        for name, width in {"w": 4, "r": 3}.items()
    ]
    constants += [numpy_helper.from_array(np.zeros(1, np.int64), "first")]
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["steps"]),
        helper.make_node("GRU", ["steps", "w", "r"], ["", "states"], hidden_size=3),
        helper.make_node("Squeeze", ["states", "first"], ["y"]),
    ]
    model = model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 3]}, constants)
    network_to_onnx(as_network(model, {})).write(tmp_path)
    empty = {"x": np.empty((0, 4), np.float32)}
    assert shapes_without_rows(tmp_path, empty) == "[(0, 3)]"


@pytest.mark.parametrize(
    "scores",
    [
        helper.make_node("Neg", ["x"], ["scores"]),
        helper.make_node("Normalizer", ["x"], ["scores"], domain="ai.onnx.ml", norm="L1"),
    ],
    ids=["known to onnx", "known to onnxruntime"],
)
@pytest.mark.parametrize("outputs", [("scores", "joined"), ("joined",)])
def test_the_greatest_value_beside_all(scores, outputs, tmp_path):
    """As a confidence beside scores, which may be an output too."""
    constants = [numpy_helper.from_array(np.array([n]), f"axis {n}") for n in (-1, 1)]
    nodes = [
        scores,
        helper.make_node("ReduceMax", ["scores", "axis -1"], ["greatest"], keepdims=0),
        helper.make_node("Unsqueeze", ["greatest", "axis 1"], ["column"]),
        helper.make_node("Concat", ["column", "scores"], ["joined"], axis=-1),
    ]
    widths = {"scores": 3, "joined": 4}
    shapes = {name: ["N", widths[name]] for name in outputs}
    model = model_of(nodes, {"x": ["N", 3]}, shapes, constants, ml=3)
    network_to_onnx(as_network(model, {})).write(tmp_path)
    empty = {"x": np.empty((0, 3), np.float32)}
    expected = [(0, widths[name]) for name in outputs]
    assert shapes_without_rows(tmp_path, empty) == str(expected)


@pytest.mark.parametrize(("operator", "gates", "states"), [("LSTM", 4, 2), ("GRU", 3, 1)])
@pytest.mark.parametrize("taken", ["lengths and states", "values alone"])
def test_an_operation_of_a_users_network_answers_no_rows(operator, gates, states, taken, tmp_path):
    """Also inside a branch. With rows its answers are those of the operation as it is."""
    random = np.random.default_rng(0)
    weights = {"w": (2, gates * 3, 4), "r": (2, gates * 3, 3)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    own = [f"state{number}" for number in range(states)]
    inputs = {"x": ["S", "N", 4], **{name: [2, "N", 3] for name in own}}
    more = ["", "lengths", *own] if taken != "values alone" else []
    made = ["y", *(f"last{number}" for number in range(states))]
    node = helper.make_node(
        operator, ["x", "w", "r", *more], made, hidden_size=3, direction="bidirectional"
    )
    branch = helper.make_graph(
        [node], "branch", [], [helper.make_empty_tensor_value_info(name) for name in made]
    )
    outer = [f"{name} out" for name in made]
    choice = helper.make_node("If", ["yes"], outer, then_branch=branch, else_branch=branch)
    shapes = {"y out": ["S", 2, "N", 3]} | {name: [2, "N", 3] for name in outer[1:]}
    constants.append(numpy_helper.from_array(np.array(True), "yes"))
    model = model_of([choice], inputs, shapes, constants)
    lengths = helper.make_tensor_value_info("lengths", TensorProto.INT32, ["N"])
    model.graph.input.append(lengths)
    with_a_row(OnnxModel(model)).write(tmp_path)

    def feed_of(rows):
        states = {name: random.normal(size=(2, rows, 3)).astype(np.float32) for name in own}
        values = random.normal(size=(5, rows, 4)).astype(np.float32)
        return {"x": values, "lengths": np.arange(1, rows + 1, dtype=np.int32), **states}

    sessions = [opened(each) for each in (tmp_path / "model.onnx", model.SerializeToString())]
    for rows in (1, 3):
        feed = feed_of(rows)
        for answer, expected in zip(*(each.run(None, feed) for each in sessions), strict=True):
            np.testing.assert_array_equal(answer, expected)
    expected = [(5, 2, 0, 3), *[(2, 0, 3)] * states]
    assert shapes_without_rows(tmp_path, feed_of(0)) == str(expected)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3)])
@pytest.mark.parametrize("kind", [np.int64, object])
@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_labels_of_a_users_network_without_rows(shape, kind, form, tmp_path):
    """As scikit-learn's classifiers choose them among the classes."""
    classes = np.arange(np.prod(shape)).reshape(shape)
    classes = classes if kind is np.int64 else classes.astype(str).astype(object)
    constant = numpy_helper.from_array(classes, "classes")
    nodes = [
        *[helper.make_node("Constant", [], ["classes"], value=constant)] * (form == "constant"),
        helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            "ArrayFeatureExtractor", ["classes", "best"], ["chosen"], domain="ai.onnx.ml"
        ),
        helper.make_node("Transpose", ["chosen"], ["y"], perm=[1, 0]),
    ]
    width = shape[0] if len(shape) > 1 else 1
    model = model_of(
        nodes,
        {"x": ["N", 3]},
        {"y": ["N", width]},
        [constant] * (form == "initializer"),
        ml=3,
        y=helper.np_dtype_to_tensor_dtype(classes.dtype),
    )
    network_to_onnx(as_network(model, {})).write(tmp_path)
    feed = {"x": np.array([[0, 0, 1], [1, 0, 0]], np.float32)}
    expected, answer = (
        opened(each).run(None, feed)[0].tolist()
        for each in (model.SerializeToString(), tmp_path / "model.onnx")
    )
    assert answer == expected
    empty = {"x": np.empty((0, 3), np.float32)}
    assert shapes_without_rows(tmp_path, empty) == f"[(0, {width})]"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64])
def test_features_of_a_users_network_without_rows(kind, tmp_path):
    """The inputs joined as Spark's VectorAssembler does it."""
    node = helper.make_node(
        "FeatureVectorizer", ["a", "b"], ["y"], domain="ai.onnx.ml", inputdimensions=[1, 3]
    )
    model = model_of([node], {}, {"y": ["N", 4]})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    shapes = {"a": ["N", 1], "b": ["N", 3]}
    inputs = [helper.make_tensor_value_info(n, kind, shape) for n, shape in shapes.items()]
    model.graph.input.extend(inputs)
    network_to_onnx(as_network(model, {})).write(tmp_path)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    feed = {"a": np.ones((2, 1), dtype), "b": np.arange(6, dtype=dtype).reshape(2, 3)}
    (answer,) = opened(tmp_path / "model.onnx").run(None, feed)
    assert answer.tolist() == [[1, 0, 1, 2], [1, 3, 4, 5]]
    empty = {name: values[:0] for name, values in feed.items()}
    assert shapes_without_rows(tmp_path, empty) == "[(0, 4)]"


def test_a_keras_network_of_attention_answers_no_rows(tmp_path):
    """Its operations have a shape of which onnxruntime infers a part, from values that are not there."""
    x = keras.Input((3,), name="x", dtype="int64")
    vectors = keras.layers.Embedding(10, 4)(x)
    made = keras.layers.MultiHeadAttention(2, 4)(vectors, vectors)
    model = keras.Model(x, {"all": keras.layers.Flatten()(made), "id": x[:, :1]})
    network_to_onnx(KerasNetwork(model, {})).write(tmp_path)
    ids = np.array([[1, 2, 0], [0, 0, 0], [9, 0, 4]])
    expected = {name: tensor.numpy() for name, tensor in model(ids).items()}
    session = opened(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    for rows in (3, 1):
        for name, answer in zip(names, session.run(None, {"x": ids[:rows]}), strict=True):
            np.testing.assert_allclose(answer, expected[name][:rows], atol=1e-6)
    shapes = [(0, expected[name].shape[1]) for name in names]
    assert shapes_without_rows(tmp_path, {"x": np.empty((0, 3), np.int64)}) == str(shapes)


@pytest.mark.parametrize(
    ("lists", "in_nodes"),
    [((), False), (("tags__values", "tags__nnzs"), False), ((), True)],
    ids=["alone", "beside a list", "constants in nodes"],
)
def test_a_view_of_pytorch_answers_no_rows(lists, in_nodes, tmp_path):
    """`x.view(len(x), -1)`; the elements of a list are not the rows."""
    constants = [
        numpy_helper.from_array(np.array(value), name)
        for name, value in {"first": 0, "rest": [-1], "axis": [0], "one": [1.0]}.items()
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["number"]),
        helper.make_node("Unsqueeze", ["number", "axis"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["viewed"], axis=0),
        helper.make_node("Reshape", ["x", "viewed"], ["flat"]),
        helper.make_node("Neg", ["flat"], ["y"]),
    ]
    if in_nodes:
        nodes = [helper.make_node("Constant", [], [c.name], value=c) for c in constants] + nodes
        constants = []
    if lists:
        nodes += [
            helper.make_node("ReduceSum", [lists[0]], ["sum"], keepdims=0),
            helper.make_node("Add", ["tags__nnzs", "sum"], ["counted"]),
        ]
    inputs = {"x": ["N", 3], **{name: [f"of {name}", 1] for name in lists}}
    outputs = {"y": ["N", 3], **({"counted": ["N", 1]} if lists else {})}
    model = model_of(nodes, inputs, outputs, constants)
    network_to_onnx(as_network(model, {})).write(tmp_path)
    session = opened(tmp_path / "model.onnx")
    feed = {name: np.ones((2, size[1]), np.float32) for name, size in inputs.items()}
    answers = session.run(["y"], feed)
    np.testing.assert_array_equal(answers[0], -feed["x"])
    empty = {name: array[:0] for name, array in feed.items()}
    assert shapes_without_rows(tmp_path, empty) == str([(0, size[1]) for size in outputs.values()])
