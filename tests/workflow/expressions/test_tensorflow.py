"""The TensorFlow interpreter, as it is served: saved, loaded, fed with wire tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from movie_rows import SERVED, TRAIN, assert_answers, make_workflow, program_of, wire_tensors

from workflow import Workflow
from workflow.expressions.language.tree import constant, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program import build
from workflow.expressions.tensorflow import WireInterpreter, lookups
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import SchemaError
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import WireColumn


@pytest.fixture(scope="module")
def workflow() -> Workflow:
    return make_workflow()


@pytest.fixture(scope="module")
def served(workflow, tmp_path_factory):
    """The workflow's program as a SavedModel, loaded: a function over wire tensors."""
    return save_and_load(program_of(workflow), tmp_path_factory.mktemp("saved"))


def save_and_load(program, folder, **wire):
    module = WireInterpreter(program, **wire)
    function = tf.function(module, input_signature=[module.signature], autograph=False)
    tf.saved_model.save(module, str(folder), signatures=function)
    # What only this process holds must not be what makes the saved model work.
    del module, function
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return lambda tensors: {k: v.numpy() for k, v in serve(**tensors).items()}


def as_tensors(program, frame: pl.DataFrame) -> dict[str, tf.Tensor]:
    return {
        name: tf.constant(array, tf.string if array.dtype == object else None)
        for name, array in wire_tensors(program, frame).items()
    }


@pytest.mark.parametrize("rows", [SERVED, TRAIN, SERVED.head(0)], ids=["hard", "train", "empty"])
def test_saved_model_answers_what_transform_gives(workflow, served, rows):
    program = program_of(workflow)
    answer = served(as_tensors(program, rows))
    assert_answers(program, answer, workflow.transform(rows).collect())


def test_row_alone_is_the_row_in_a_batch(workflow, served):
    program = program_of(workflow)
    for row in range(SERVED.height):
        alone = SERVED.slice(row, 1)
        answer = served(as_tensors(program, alone))
        assert_answers(program, answer, workflow.transform(alone).collect())


def test_large_string_vocabulary_is_an_asset_whatever_it_holds(tmp_path, monkeypatch):
    # A line cannot be empty nor hold its own end; a tab, a NUL or a number must not be split off.
    texts = ["plain", "", "two\nlines", "carriage\r", "\r", "tab\t7", "nul\0", "日本", "3", " "]
    monkeypatch.setattr(lookups, "LARGE_VOCABULARY", 5)
    x = source("x", Type("string"))
    keys = Column(Strings.of(texts))
    program = build(
        [(ColumnSchema("y", "int64"), x.lookup(keys, first=3, missing=2).fill_null(1))],
        Schema([ColumnSchema("x", "string")]),
    )
    serve = save_and_load(program, tmp_path)
    assert [path.name for path in (tmp_path / "assets").iterdir()] == ["vocabulary_6.txt"]
    raw = [text.encode() for text in texts]
    asked = [*raw, b"two", b"lines", b"\xff1", b"carriage", b"none", b"\xff"]
    answer = serve({"x": tf.constant(asked, shape=[len(asked), 1])})["y"]
    assert answer.ravel().tolist() == [*range(3, 13), 2, 2, 2, 2, 2, 1]


ARITHMETIC = {
    "constants": lambda x: x * 3.0 / 7.0,
    "converted constant": lambda x: (x.cast("float64") / constant(49)).cast(x.type.dtype),
    "reciprocal": lambda x: x / 49.0,
    "square root": lambda x: x * 3.0 / (x + 7.0).sqrt(),
    "sums": lambda x: x * 3.0 + (x * 7.0 + (x * x + x * x * x)),
    "merged sums": lambda x: (x + 0.1) + 0.2,
    "common factor": lambda x: x * 0.1 + x * 0.7,
}


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_graph_optimiser_leaves_arithmetic_alone(name, dtype, tmp_path):
    x = source("x", Type(dtype, nullable=False))
    inputs = Schema([ColumnSchema("x", dtype, nullable=False)])
    program = build([(ColumnSchema("y", dtype, nullable=False), ARITHMETIC[name](x))], inputs)
    values = np.random.default_rng(0).random(4000).astype(dtype)
    serve = save_and_load(program, tmp_path)
    answer = serve({"x": tf.constant(values.reshape(-1, 1))})["y"].ravel()
    expected = NumpyInterpreter(program)({"x": Column(values)})["y"].array
    np.testing.assert_array_equal(answer, expected)


def test_what_is_not_greater_may_be_neither_less_nor_equal(tmp_path):
    x = source("x", Type("float64", nullable=False))
    inputs = Schema([ColumnSchema("x", "float64", nullable=False)])
    program = build([(ColumnSchema("y", "bool", nullable=False), ~(x.sqrt() > 0.0))], inputs)
    answer = save_and_load(program, tmp_path)({"x": tf.constant([[-1.0], [4.0]], tf.float64)})
    assert answer["y"].ravel().tolist() == [True, False]


def test_unsigned_integers_wrap_round_in_a_graph(tmp_path):
    x = source("x", Type("uint8", nullable=False))
    inputs = Schema([ColumnSchema("x", "uint8", nullable=False)])
    outputs = [("minus", 0 - x), ("negated", -x)]
    made = [(ColumnSchema(name, "uint8", nullable=False), y) for name, y in outputs]
    answer = save_and_load(build(made, inputs), tmp_path)({"x": tf.constant([[1], [0]], tf.uint8)})
    assert {k: v.ravel().tolist() for k, v in answer.items()} == {
        "minus": [255, 0],
        "negated": [255, 0],
    }


BAD = {
    "too few values": ({"tags__nnzs": [[1], [1], [0], [2], [1]]}, "tags do not add up"),
    "negative length": ({"tags__nnzs": [[4], [-1], [0], [2], [1]]}, "tags do not add up"),
    "lengths that wrap round": (
        {"tags__nnzs": [[2**63 - 1], [2**63 - 1], [8], [0], [0]]},
        "add up",
    ),
    "one row for many": ({"price": [[1.0]]}, "number of rows"),
    "NaN where no null is taken": (
        {"rating": [[1.0], [np.nan], [1.0], [1.0], [1.0]]},
        "rating holds NaN",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_request_that_does_not_fit_is_refused(case, workflow, served):
    changed, text = BAD[case]
    tensors = as_tensors(program_of(workflow), SERVED)
    for name, rows in changed.items():
        tensors[name] = tf.constant(rows, tensors[name].dtype)
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        served(tensors)


def test_null_leaves_as_its_code(tmp_path):
    x = source("x", Type("int32"))
    table = Column(Strings.of(["a", ""]), np.array([True, False]))
    outputs = [
        (ColumnSchema("whole", "int32"), x + 1),
        (ColumnSchema("real", "float64"), x / 2),
        (ColumnSchema("text", "string"), x.gather(table)),
    ]
    program = build(outputs, Schema([ColumnSchema("x", "int32")]))
    answer = save_and_load(program, tmp_path)({"x": tf.constant([[0], [1], [-(2**31)]])})
    assert answer["whole"].ravel().tolist() == [1, 2, -(2**31)]
    np.testing.assert_array_equal(answer["real"].ravel(), [0.0, 0.5, np.nan])
    assert answer["text"].ravel().tolist() == [b"a", b"\xff", b"\xff"]


@pytest.mark.parametrize("have", ["int32", "int64"])
@pytest.mark.parametrize("want", ["int32", "int64"])
def test_row_lengths_have_a_dtype_of_their_own(have, want, tmp_path):
    x = source("x", Type("float32", is_list=True, nullable=False))
    inputs = Schema([ColumnSchema("x", "float32", is_list=True, nullable=False)])
    program = build([(ColumnSchema("y", "float32"), x * 2)], inputs)
    serve = save_and_load(
        program,
        tmp_path,
        inputs=[WireColumn("x", "float32", "flat", nnzs_dtype=have)],
        outputs=[WireColumn("y", "float32", "flat", nnzs_dtype=want)],
    )
    lengths = tf.constant([[2], [0]], have)
    answer = serve({"x__values": tf.constant([[1.0], [2.0]]), "x__nnzs": lengths})
    assert answer["y__values"].tolist() == [[2.0], [4.0]]
    assert answer["y__nnzs"].tolist() == [[2], [0]]
    assert answer["y__nnzs"].dtype == want


def test_wire_form_that_does_not_fit_is_an_error():
    x = source("x", Type("int64"))
    program = build([(ColumnSchema("y", "int64"), x)], Schema([ColumnSchema("x", "int64")]))
    with pytest.raises(SchemaError, match="'y' can be null"):
        WireInterpreter(program, outputs=[WireColumn("y", "int64")])
    with pytest.raises(SchemaError, match=r"input 'x'.*Received: .*int32"):
        WireInterpreter(program, inputs=[WireColumn("x", "int32", nullable=True)])
    with pytest.raises(SchemaError, match=r"output 'y'.*Received: None"):
        WireInterpreter(program, outputs=[])
    with pytest.raises(SchemaError, match="Expected the tensors x"):
        WireInterpreter(program)({"z": tf.constant([[1]])})


def test_program_fuses_with_a_network_in_one_saved_model(workflow, tmp_path):
    program = program_of(workflow)

    class Fused(tf.Module):
        def __init__(self):
            super().__init__()
            self.preprocess = WireInterpreter(program)
            self.embedding = tf.Variable(tf.reshape(tf.range(20.0), [10, 2]))

        def __call__(self, tensors):
            ids = self.preprocess(tensors)["userId"]
            return {"score": tf.reduce_sum(tf.gather(self.embedding, ids[:, 0]), 1, keepdims=True)}

    fused = Fused()
    signature = [fused.preprocess.signature]
    function = tf.function(fused, input_signature=signature, autograph=False)
    tf.saved_model.save(fused, str(tmp_path), signatures=function)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    ids = workflow.transform(SERVED).collect()["userId"].to_numpy()
    scores = serve(**as_tensors(program, SERVED))["score"].numpy().ravel()
    np.testing.assert_array_equal(scores, 4.0 * ids + 1)


def test_workflow_alone_does_not_import_tensorflow():
    check = "import sys, workflow; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
