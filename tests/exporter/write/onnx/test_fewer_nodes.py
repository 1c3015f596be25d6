"""The fused graph has few nodes, and answers as the network does to transformed rows."""

from collections import Counter

import keras
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import polars as pl
import pytest
import tensorflow as tf

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.write.onnx import tabulate
from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.simplify import rows_agree, simplify
from training import layers, models
from workflow import Workflow, get_embedding_sizes, ops
from workflow.expressions.polars.series import to_column
from workflow.wire.format import encode

FUSED = ServingOptions(runtime="fused_onnx")
MOVIES = pl.DataFrame(
    {
        "movieId": [1, 2, 3, 4],
        "genres": [["a", "b"], [], ["c"], ["b", "a", "c"]],
        "year": [1990, None, 2001, 1984],
    },
    schema_overrides={"year": pl.Int32},
)
RATINGS = pl.DataFrame({"userId": [10, 20, 20, 30], "movieId": [1, 2, 4, 3]})
ASKED = pl.DataFrame({"userId": [10, 99, None, 30, 20], "movieId": [4, 2, None, 77, 1]})


class Served:
    """A fused model as exported, beside the network over transformed rows."""

    def __init__(self, report, network, workflow):
        self.plan, self.network, self.workflow = report.plan, network, workflow
        path = str(report.paths["movies"] / "model.onnx")
        self.operators = Counter(node.op_type for node in onnx.load(path).graph.node)
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(self, tensors):
        return self.session.run(None, tensors)[0]

    def tensors(self, rows):
        sent = {}
        for column in self.plan.features.inputs:
            sent |= encode(column, to_column(rows[column.name]))
        return sent

    def expect_as_network(self, rows):
        made = self.workflow.transform(rows).collect()
        features = {}
        for column in self.plan.features.outputs:
            features |= encode(column, to_column(made[column.name]))
        inputs = self.network.input
        flat = [features[tensor.name] for tensor in keras.tree.flatten(inputs)]
        expected = self.network(keras.tree.pack_sequence_as(inputs, [*map(tf.constant, flat)]))
        np.testing.assert_allclose(
            self.run(self.tensors(rows)), next(iter(keras.tree.flatten(expected))), atol=1e-6
        )


@pytest.fixture
def serve(export):
    def run(network, workflow):
        report = export(network, workflow, labels=[], serving=FUSED)
        return Served(report, network, workflow)

    return run


def clicks(columns):
    """Ids and counts, the preprocessing of both, and a network."""
    random = np.random.default_rng(columns)
    data = {f"n{n}": random.normal(2, 3, 50).astype(np.float32) for n in range(columns)}
    data |= {f"c{n}": random.integers(0, 20, 50) for n in range(columns)}
    rows = pl.DataFrame(data)
    rows = rows.with_columns(pl.when(pl.int_range(50) % 7 > 0).then(pl.all()))
    counts = [f"n{n}" for n in range(columns)] >> ops.FillMissing(0.0)
    counts = counts >> ops.LambdaOp(lambda c: c.clip(0.0, None).log1p()) >> ops.Normalize()
    ids = [f"c{n}" for n in range(columns)] >> ops.Categorify(dtype="int32")
    workflow = Workflow(counts + ids).fit(rows)
    network = models.mlp(
        get_embedding_sizes(workflow), [f"n{n}" for n in range(columns)], max_embedding_dim=4
    )
    return rows, workflow, network


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    rows, workflow, network = clicks(12)
    folder = tmp_path_factory.mktemp("many")
    report = export_tensorflow_ensemble(network, workflow, "movies", folder, [], serving=FUSED)
    return rows, Served(report, network, workflow)


def test_columns_of_one_kind_take_one_node(serve, many):
    rows, workflow, network = clicks(5)
    few = serve(network, workflow)
    few.expect_as_network(rows)
    rows, served = many
    served.expect_as_network(rows)
    served.expect_as_network(rows[:1])
    found = [Counter(few.operators), Counter(served.operators)]
    assert [each.pop("LabelEncoder") for each in found] == [5, 12]
    assert found[0] == found[1]
    # The ids are known to be in the table, and one column stands beside another at the network's.
    assert found[0].keys().isdisjoint({"Identity", "Split", "And"})


@pytest.mark.parametrize("beside", ["concatenated", "added"])
@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (0, 3), (3, 0), (2, 3), (0, 1), (1, 0)])
def test_columns_with_other_rows_are_refused(beside, counts, serve):
    a, b = (keras.Input((1,), name=name) for name in "ab")
    joint = keras.ops.concatenate([a, b], axis=1) if beside == "concatenated" else a + b
    network = keras.Model({"a": a, "b": b}, {"y": keras.ops.sum(joint, axis=1, keepdims=True)})
    rows = pl.DataFrame({"a": [1.0, None, 3.0], "b": [4.0, 5.0, None]}).cast(pl.Float32)
    served = serve(network, Workflow(["a", "b"] >> ops.FillMissing(0.0)).fit(rows))
    served.expect_as_network(rows)
    tensors = {n: np.ones((c, 1), np.float32) for n, c in zip("ab", counts, strict=True)}
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        served.run(tensors)


@pytest.mark.parametrize("column", ["a", "b", "c", "d"])
def test_nan_is_refused_where_there_is_no_null(column, serve):
    names = ["a", "b", "c", "d"]
    inputs = {name: keras.Input((1,), name=name) for name in names}
    joint = keras.ops.concatenate([*inputs.values()], axis=1)
    network = keras.Model(inputs, {"y": keras.ops.sum(joint, axis=1, keepdims=True)})
    rows = pl.DataFrame({name: [1.0, 2.0] for name in names}).cast(pl.Float32)
    served = serve(network, Workflow(names >> ops.LambdaOp(lambda c: c * 2)).fit(rows))
    served.expect_as_network(rows)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        served.run({n: np.full((2, 1), np.nan if n == column else 1, "f") for n in names})


@pytest.mark.parametrize("odd", ["n0", "n11", "c0", "c11"])
def test_many_columns_with_other_rows_are_refused(odd, many):
    rows, served = many
    assert served.operators["Shape"] < 5
    tensors = served.tensors(rows[:3])
    for count in (0, 1, 2, 4):
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            served.run(tensors | {odd: served.tensors(rows[:count])[odd]})
    one = served.tensors(rows[:1])
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        served.run(one | {odd: one[odd][:0]})
    assert served.run(served.tensors(rows[:0])).shape == (0, 1)


@pytest.mark.parametrize(
    ("body", "agree"),
    [
        ("y = Concat<axis = 1>(a, b)", True),
        ("c = Relu(a) d = Cast<to = 1>(b) y = Concat<axis = 1>(c, d)", False),  # no rule for Relu
        ("c = Abs(a) d = Cast<to = 1>(b) y = Concat<axis = 1>(c, d)", True),
        ("y = Concat<axis = 0>(a, b)", False),
        ("y = Add(a, b)", False),
        ("c = Add(a, b) y = Concat<axis = 1>(c, b)", False),
    ],
)
def test_columns_side_by_side_agree_in_their_rows(body, agree):
    head = '<ir_version: 9, opset_import: ["" : 18]>'
    signature = "g (float[n, 1] a, float[m, 1] b) => (float[r, k] y)"
    graph = onnx.parser.parse_model(f"{head} {signature} {{ {body} }}")
    assert rows_agree(OnnxModel(graph)) == agree


@pytest.mark.parametrize("odd", ["x0", "x9"])
def test_columns_that_are_only_added_are_counted(odd, serve):
    inputs = {name: keras.Input((1,), name=name) for name in (f"x{n}" for n in range(10))}
    network = keras.Model(inputs, {"y": keras.layers.Add()([*inputs.values()])})
    rows = pl.DataFrame({name: [1.0, 2.0, 3.0] for name in inputs}).cast(pl.Float32)
    served = serve(network, Workflow([*inputs]).fit(rows))
    served.expect_as_network(rows)
    tensors = served.tensors(rows)
    for count in (0, 1, 2):
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            served.run(tensors | {odd: tensors[odd][:count]})


def test_numbers_are_not_added_to_ids_that_are_outputs_as_well():
    encoder = (
        "LabelEncoder<keys_tensor = int64[2] {5, 6}, values_tensor = int64[2] {1, 2}, "
        "default_tensor = int64[1] {0}>"
    )
    graph = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 4]>
        g (int64[n, 1] a, int64[n, 1] b) => (int64[n, 1] own, int64[n, 2] sum)
        <int64[2] added = {{10, 20}}> {{
            own = ai.onnx.ml.{encoder}(a)
            other = ai.onnx.ml.{encoder}(b)
            joint = Concat<axis = 1>(own, other)
            moved = Add(joint, added)
            sum = Abs(moved)
        }}"""
    )
    made = simplify(OnnxModel(graph)).proto.SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    asked = {"a": np.array([[5], [7]]), "b": np.array([[6], [5]])}
    own, sums = session.run(["own", "sum"], asked)
    assert own.tolist() == [[1], [0]]
    assert sums.tolist() == [[11, 22], [10, 21]]


def test_ids_that_may_be_in_no_table_are_unknown(serve):
    rows = pl.DataFrame({"userId": [1, 2, 3], "movieId": [0, 10**12, -1]})
    looked_up = ["userId"] >> ops.Categorify()
    workflow = Workflow(looked_up + (["movieId"] >> ops.LambdaOp(lambda c: c + 1))).fit(rows)
    inputs = {n: keras.Input((1,), name=n, dtype="int64") for n in ("userId", "movieId")}
    size = get_embedding_sizes(workflow)["userId"][0]
    vectors = layers.EmbeddingCollection({"userId": (size, 3), "movieId": (9, 3)}, "sum", "normal")
    joint = keras.ops.concatenate([*vectors(inputs).values()], axis=1)
    served = serve(keras.Model(inputs, {"y": keras.layers.Dense(1)(joint)}), workflow)
    served.expect_as_network(rows)


def rated(joined):
    """Columns joined from the table of movies, beside the user's id."""
    table = MOVIES.select("movieId", *joined)
    found = ["movieId"] >> ops.JoinExternal(table, on="movieId", columns_ext=["movieId", *joined])
    return Workflow((["userId"] + found) >> ops.Categorify()).fit(RATINGS)


def rating_network(workflow, over_rows=None):
    """A network over the user, the movie and the genres, whose vector something may be made of."""
    values, nnzs = (
        keras.Input((1,), name=f"genres__{h}", dtype="int64") for h in ("values", "nnzs")
    )
    ids = {name: keras.Input((1,), name=name, dtype="int64") for name in ("userId", "movieId")}
    sizes = get_embedding_sizes(workflow)
    bag = layers.EmbeddingBag(sizes[1]["genres"][0], 3, embeddings_initializer="normal")
    vector = bag((values, nnzs))
    if over_rows is not None:
        vector = over_rows(vector)
    single = layers.EmbeddingCollection({n: (sizes[0][n][0], 4) for n in ids}, "sum", "normal")(ids)
    joint = keras.ops.concatenate([single["userId"], single["movieId"], vector], axis=1)
    inputs = {**ids, "genres__values": values, "genres__nnzs": nnzs}
    return keras.Model(inputs, {"y": keras.layers.Dense(1)(joint)})


@pytest.mark.parametrize("most", [tabulate.MOST_BYTES, 10])
def test_a_joined_list_is_one_vector_of_a_table(most, serve, monkeypatch):
    monkeypatch.setattr(tabulate, "MOST_BYTES", most)
    workflow = rated(["genres"])
    served = serve(rating_network(workflow), workflow)
    assert ("ScatterND" in served.operators) == (most == 10)
    served.expect_as_network(ASKED)
    for row in range(ASKED.height):
        served.expect_as_network(ASKED[row : row + 1])


def test_so_is_a_list_in_a_large_table_of_many_columns(serve):
    """Columns of one width have one table, and ids of users make it large."""
    users = pl.DataFrame({"userId": np.arange(10_000), "movieId": np.arange(10_000) % 4 + 1})
    features = ["movieId"] >> ops.JoinExternal(
        MOVIES, on="movieId", columns_ext=["movieId", "genres"]
    )
    workflow = Workflow((["userId"] + features) >> ops.Categorify()).fit(users)
    served = serve(models.mlp(workflow.output_schema, max_embedding_dim=4), workflow)
    assert not served.operators["ScatterND"]
    served.expect_as_network(ASKED)
    for row in range(ASKED.height):
        served.expect_as_network(ASKED[row : row + 1])


@keras.saving.register_keras_serializable(package="tests")
class LessTheFirst(keras.layers.Layer):
    """A row's excess over the first row of the request."""

    def call(self, x):
        return x - x[:1]


def test_what_depends_on_other_rows_is_no_table(serve):
    workflow = rated(["genres"])
    with pytest.warns(UserWarning, match="differently alone and beside other rows"):
        served = serve(rating_network(workflow, LessTheFirst()), workflow)
    assert served.operators["ScatterND"]
    served.expect_as_network(ASKED)
    served.expect_as_network(ASKED[::-1])
