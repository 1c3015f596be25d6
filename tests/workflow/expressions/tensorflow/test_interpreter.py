"""The TensorFlow interpreter, as it is served: saved, loaded, fed with wire tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from movie_rows import SERVED, TRAIN, assert_answers, make_workflow, program_of, wire_tensors

from workflow import Workflow, ops
from workflow.expressions.language.tree import constant, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program import build
from workflow.expressions.tensorflow import WireInterpreter, lookups
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import ColumnSchema, Schema


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


@pytest.mark.parametrize("text", [False, True])
def test_lists_may_stand_at_any_place_among_many_columns(text, tmp_path):
    # The numbers of TensorFlow's dtypes, such as 9 of int64, are no places of columns.
    rows = pl.DataFrame({f"c{n:02}": [n, None, 3] for n in range(24)})
    lists = [f"c{n:02}" for n in range(5, 24, 2)]
    rows = rows.with_columns(pl.concat_list(name, name) for name in lists)
    if text:
        scalars = pl.all().exclude(lists).cast(pl.String)
        rows = rows.with_columns(scalars, pl.col(lists).cast(pl.List(pl.String)))
    workflow = Workflow(rows.columns >> ops.Categorify()).fit(rows)
    program = program_of(workflow)
    answer = save_and_load(program, tmp_path)(as_tensors(program, rows))
    assert_answers(program, answer, workflow.transform(rows).collect())


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
    asked = [*raw, b"two", b"lines", b"\x011", b"carriage", b"none", b"\xff"]
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


def test_a_missing_tensor_is_an_error():
    x = source("x", Type("int64"))
    program = build([(ColumnSchema("y", "int64"), x)], Schema([ColumnSchema("x", "int64")]))
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


@pytest.mark.parametrize("dtype", [name for name, info in DTYPES.items() if info.is_integer])
def test_squares_of_differences_are_integers_of_every_dtype(dtype, tmp_path):
    """Grappler makes one operation of them, which TensorFlow has for int32 and int64 alone."""
    a, b = (source(name, Type(dtype, nullable=False)) for name in "ab")
    outputs = {"square": (a - b) ** 2, "opposite": (-a) * (-a)}
    inputs = Schema(ColumnSchema(name, dtype, nullable=False) for name in "ab")
    program = build([(ColumnSchema(n, dtype), made) for n, made in outputs.items()], inputs)
    serve = save_and_load(program, tmp_path)
    values = {"a": np.array([5, 12, 0], dtype), "b": np.array([3, 1, 7], dtype)}
    answer = serve({n: tf.constant(v[:, np.newaxis]) for n, v in values.items()})
    assert answer["square"].ravel().tolist() == ((values["a"] - values["b"]) ** 2).tolist()
    assert answer["opposite"].ravel().tolist() == (values["a"] ** 2).tolist()
