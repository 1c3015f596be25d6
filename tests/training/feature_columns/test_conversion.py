"""Feature columns as a workflow: its numbers are TensorFlow's own, computed by `input_layer`."""

import gzip

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from training import TrainingError, make_feature_column_workflow
from training.layers import DenseFeatures, EmbeddingCollection, LinearFeatures
from workflow import Workflow, WorkflowError, get_embedding_sizes

columns_of = tf.feature_column
numeric = columns_of.numeric_column
identity = columns_of.categorical_column_with_identity
listed = columns_of.categorical_column_with_vocabulary_list
in_file = columns_of.categorical_column_with_vocabulary_file
hashed = columns_of.categorical_column_with_hash_bucket
embedding = columns_of.embedding_column
indicator = columns_of.indicator_column

CITIES = ["Ulm", "b", "", "Zürich", "zz", "B", "b"]
# 16777217 is no float32; 0.7 as float32 is less than 0.7.
PRICES = [0.7, 0.1, -3.0, 25.5, 1e30, 16777217.0, 18.0]
COUNTS = [3, 0, -1, 7, 8, 2**40, -5]
ROWS = {"city": CITIES, "price": PRICES, "count": COUNTS}


def of_tensorflow(columns, rows=ROWS):
    """Each column as TensorFlow's layer of old computes it, and all of its variables."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = columns() if callable(columns) else columns
        tensors = {
            name: tf.constant(np.array(v, np.float32) if name == "price" else v)[:, None]
            for name, v in rows.items()
        }
        layer = tf.compat.v1.feature_column.input_layer
        values = [layer(tensors, [column]) for column in made]
        variables = tf.compat.v1.global_variables()
        session.run(
            [tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()]
        )
        return session.run([values, variables])


def ids_of_tensorflow(column):
    """Its ids; -1 where it gives none."""
    (counts,), _ = of_tensorflow([indicator(column)])
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1).tolist()


def ours(column, rows=ROWS):
    workflow, _ = make_feature_column_workflow([column])
    return workflow.fit(rows).transform(rows).collect().to_series().to_list()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cities.txt"
    path.write_bytes("Zürich\nb\r\nUlm\nnever".encode())
    return str(path)


@pytest.fixture
def numbers(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("7\n-5\n1099511627776\n")
    return str(path)


@pytest.mark.parametrize(
    "column",
    [
        listed("city", ["b", "Zürich", "Ulm"]),
        listed("city", ["b", "Zürich", "Ulm"], default_value=1),
        listed("city", ["b", "", "Ulm"], default_value=2),
        listed("count", [7, 3, 0], dtype=tf.int64),
        listed("count", [7, 3, -1], dtype=tf.int32, default_value=0),
        identity("count", 8, default_value=0),
        identity("count", 4, 3),
        columns_of.bucketized_column(numeric("price"), [0.1, 0.7, 18, 25.5]),
        columns_of.bucketized_column(numeric("price"), [16777216.0]),
        columns_of.bucketized_column(numeric("price", normalizer_fn=lambda x: x * 0.1), [0.01, 2]),
    ],
    ids=lambda column: f"{type(column).__name__}-{column.name}",
)
def test_ids_are_those_of_tensorflow(column):
    expected = ids_of_tensorflow(column)
    assert len(set(expected)) > 1
    assert ours(column) == expected


@pytest.mark.parametrize("settings", [{}, {"vocabulary_size": 2}, {"default_value": 0}], ids=str)
def test_ids_of_a_vocabulary_file_are_those_of_tensorflow(file, settings):
    column = in_file("city", file, **settings)
    assert ours(column) == ids_of_tensorflow(column)


def test_ids_of_files_of_numbers_and_of_records_are_those_of_tensorflow(numbers, tmp_path):
    column = in_file("count", numbers, dtype=tf.int64)
    assert ours(column) == ids_of_tensorflow(column) == [-1, -1, -1, 0, -1, 2, 1]
    records = str(tmp_path / "cities.tfrecord.gz")
    with tf.io.TFRecordWriter(records, "GZIP") as writer:
        for city in ("b", "Ulm"):
            writer.write(city.encode())
    # TensorFlow 2.21 itself reads such a file only in `tf.data`.
    assert ours(in_file("city", records)) == [1, 0, -1, -1, -1, -1, 0]


@pytest.mark.parametrize(
    "column",
    [
        numeric("price"),
        numeric("count"),
        numeric("price", normalizer_fn=lambda x: (x - 3.1) / 7.3),
        numeric("count", normalizer_fn=lambda x: x * 2),
        numeric("price", default_value=4.0),
    ],
    ids=range(5),
)
def test_numbers_are_those_of_tensorflow(column):
    (expected,), _ = of_tensorflow([column])
    made, _ = make_feature_column_workflow([column])
    result = made.fit(ROWS).transform(ROWS).collect().to_series()
    assert result.dtype == pl.Float32
    np.testing.assert_array_max_ulp(result.to_numpy(), expected[:, 0], maxulp=1)


def test_hashes_have_the_range_but_not_the_numbers_of_tensorflow():
    rows = {"city": [f"city {n}" for n in range(4000)], "count": list(range(4000))}
    columns = [
        hashed("city", 10),
        hashed("count", 10, tf.int64),
        listed("city", ["x"], num_oov_buckets=9),
    ]
    for column in columns:
        ids = np.array(ours(column, rows))
        first = int(column.num_buckets == 10 and hasattr(column, "vocabulary_list"))
        assert (ids.min(), ids.max()) == (first, 9)
        assert np.bincount(ids)[first:].min() > 300
    crossed = columns_of.crossed_column(["city", "count"], 7)
    assert sorted(set(ours(crossed, rows))) == [*range(7)]


def test_a_missing_value_has_no_id_and_a_missing_number_its_default():
    rows = {"city": ["", None, "b"], "count": [-1, None, 3], "price": [None, float("nan"), 2.0]}
    for column in (
        listed("city", ["b"], num_oov_buckets=4),
        hashed("city", 5),
        identity("count", 8, default_value=2),
        hashed("count", 5, tf.int64),
    ):
        assert ours(column, rows)[:2] == [-1, -1]
    bucketized = columns_of.bucketized_column(numeric("price"), [1])
    assert ours(bucketized, rows) == [-1, -1, 1]
    with_default = numeric("price", default_value=0.5)
    assert ours(with_default, rows) == [0.5, 0.5, 2.0]
    assert ours(columns_of.bucketized_column(with_default, [1]), rows) == [0, 0, 1]


def test_a_network_with_the_old_tables_computes_what_it_computed():
    city = listed("city", ["b", "Zürich", "Ulm"])
    bucket = columns_of.bucketized_column(numeric("price"), [0.1, 18])
    columns = [embedding(city, 3), indicator(bucket), numeric("price")]
    values, variables = of_tensorflow(columns)
    workflow, own = make_feature_column_workflow(columns)
    table = workflow.fit(ROWS).transform(ROWS).collect()
    layer = DenseFeatures(own)
    inputs = {name: table[name].to_numpy()[:, None] for name in table.columns}
    layer(inputs)
    layer.embeddings.set_embedding_table("city", variables[0])
    np.testing.assert_allclose(layer(inputs), np.concatenate(values, axis=1), rtol=1e-6)


def test_shared_embeddings_are_one_table():
    # TensorFlow 2.21 makes such columns in a graph alone, and has no layer that takes them.
    with tf.Graph().as_default():
        ids = [listed(name, ["b", "Ulm"]) for name in ("city", "home")]
        workflow, own = make_feature_column_workflow([*columns_of.shared_embeddings(ids, 3)])
    rows = {"city": ["b", "Ulm", "x"], "home": ["Ulm", "Ulm", "b"]}
    table = workflow.fit(rows).transform(rows).collect()
    layer = DenseFeatures(own)
    inputs = {name: table[name].to_numpy()[:, None] for name in table.columns}
    layer(inputs)
    assert [weight.shape for weight in layer.trainable_weights] == [(2 + 1, 3)]
    vectors = np.array([[1, 2, 3], [4, 5, 6], [0, 0, 0]], np.float32)
    layer.embeddings.set_embedding_table("home", vectors[:2])
    expected = np.concatenate([vectors[[0, 1, 2]], vectors[[1, 1, 0]]], axis=1)
    np.testing.assert_array_equal(layer(inputs), expected)
    again = DenseFeatures.from_config(layer.get_config())
    again(inputs)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(inputs), expected)


def test_a_shared_table_has_its_place_among_others():
    sizes = {"own": (4, 2), "a": (3, 2), "b": (3, 2), "last": (2, 2)}
    layer = EmbeddingCollection(sizes, shared={"b": "a"})
    layer.build()
    tables = {
        name: np.full(sizes[name], n, np.float32) for n, name in enumerate(("own", "a", "last"))
    }
    for name, table in tables.items():
        layer.set_embedding_table(name, table)
    ids = {name: tf.constant([[1], [9]]) for name in sizes}
    # The second id is unknown.
    got = {name: vectors.numpy().tolist() for name, vectors in layer(ids).items()}
    assert got == {n: [[v, v], [0, 0]] for n, v in zip(sizes, (0, 1, 1, 2), strict=True)}


@pytest.mark.parametrize(
    ("sizes", "shared", "combiner"),
    [
        ({"a": (3, 2), "b": (4, 2)}, {"b": "a"}, "mean"),
        ({"a": (3, 2), "b": (3, 2)}, {"b": "a"}, {"a": "mean", "b": "sum"}),
        ({"a": (3, 2), "b": (3, 2)}, {"b": "c"}, "mean"),
        ({"a": (3, 2), "b": (3, 2)}, {"b": "a", "a": "b"}, "mean"),
    ],
)
def test_columns_that_cannot_share_a_table(sizes, shared, combiner):
    with pytest.raises(TrainingError, match="Expected in shared columns of embedding_sizes"):
        DenseFeatures(sizes, combiner=combiner, shared=shared)


def test_settings_of_shared_embeddings_that_the_layer_cannot_honour():
    with tf.Graph().as_default():
        ids = [identity(name, 3) for name in ("a", "b")]
        columns = columns_of.shared_embeddings(ids, 3, trainable=False)
    with pytest.raises(TrainingError, match="trainable=False of 'a'"):
        DenseFeatures(columns)


def test_columns_of_a_wide_and_deep_model_are_made_once_and_saved(tmp_path):
    city = listed("city", ["b", "Ulm"])
    bucket = columns_of.bucketized_column(numeric("price"), [1, 18])
    wide = [city, bucket, columns_of.crossed_column([bucket, "city"], 50)]
    deep = [embedding(city, 4), numeric("price")]
    rows = {**ROWS, "label": [0, 1, 0, 1, 0, 1, 0]}
    made = make_feature_column_workflow(wide + deep, "label")
    workflow = made.workflow.fit(rows)
    assert workflow.output_schema.names == [
        "city", "price_bucketized", "city_X_price_bucketized", "price", "label",
    ]  # fmt: skip
    assert get_embedding_sizes(workflow, lambda _: 2) == {
        "city": (2, 2), "price_bucketized": (3, 2), "city_X_price_bucketized": (50, 2),
    }  # fmt: skip
    assert "target" in workflow.output_schema["label"].tags
    workflow.save(tmp_path / "workflow")
    loaded = Workflow.load(tmp_path / "workflow")
    table = loaded.transform(rows).collect()
    assert table.equals(workflow.transform(rows).collect())
    inputs = {name: table[name].to_numpy()[:, None] for name in table.columns}
    assert LinearFeatures(made.feature_columns[:3])(inputs).shape == (7, 1)
    assert DenseFeatures(made.feature_columns[3:])(inputs).shape == (7, 5)


def test_lists_are_looked_up_element_by_element():
    rows = {"city": [["b", "Ulm", "x"], [], ["Ulm"]]}
    assert ours(listed("city", ["Ulm", "b"]), rows) == [[1, 0, -1], [], [0]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], r"object or more. Received: \[\]"),
        ("city", "Received: str 'city'"),
        (columns_of.sequence_numeric_column("h"), "Received: SequenceNumericColumn 'h'"),
        (
            embedding(columns_of.weighted_categorical_column(identity("a", 3), "w"), 2),
            "Received: WeightedCategoricalColumn 'a_weighted_by_w'",
        ),
        ([listed("city", ["b"]), hashed("city", 3)], "one feature column of the name 'city'"),
        (numeric("price", normalizer_fn=tf.math.log), "normalizer_fn of 'price'.*numpy's"),
        (numeric("v", 2), r"single numbers, shape \(1,\). Received: 'v' of shape \(2,\)"),
        (columns_of.bucketized_column(numeric("v", 2), [1]), r"single numbers.*shape \(2,\)"),
        (
            columns_of.bucketized_column(numeric("v"), [1, 2])._replace(boundaries=(2, 1)),
            r"boundaries of 'v_bucketized' that ascend.*\[2, 1\]",
        ),
        (columns_of.bucketized_column(numeric("v"), [1.0, 1.0 + 1e-9]), "ascend, also as float32"),
        (
            listed("city", ["b"], num_oov_buckets=2)._replace(default_value=0),
            "num_oov_buckets or default_value for 'city'.*num_oov_buckets=2 and default_value=0",
        ),
        (listed("city", ["b"], default_value=7), "default_value from -1 to 0 for 'city'"),
        (columns_of.crossed_column(["a", "b"], 9, hash_key=3), "hash_key=3"),
    ],
)
def test_columns_that_no_workflow_computes_are_refused(columns, message):
    with pytest.raises(TrainingError, match=message):
        make_feature_column_workflow(columns)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (None, {"vocabulary_size": 3}, "vocabulary of 'city'.*no such file"),
        (b"a\nb\n", {"vocabulary_size": 3}, "vocabulary_size=3 values.*Received: 2"),
        (b"a\nb\na\n", {}, "'city' once. Received: 'a' 2 times"),
        (b"1\nx\n", {"dtype": tf.int64}, "integers.*'x'.*line 2"),
        (b"\xff\xfe", {"vocabulary_size": 1}, "vocabulary of 'city'.*utf-8"),
        (b"", {"vocabulary_size": 1}, "Received: 0"),
    ],
)
def test_vocabulary_files_that_are_wrong(tmp_path, content, settings, message):
    path = tmp_path / "cities.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TrainingError, match=message):
        make_feature_column_workflow([in_file("city", str(path), **settings)])


def test_a_damaged_file_of_records(tmp_path):
    path = tmp_path / "cities.tfrecord.gz"
    path.write_bytes(gzip.compress(b"no records" * 9))
    with pytest.raises(TrainingError, match="vocabulary of 'city'"):
        make_feature_column_workflow([in_file("city", str(path), vocabulary_size=1)])


@pytest.mark.parametrize(
    ("column", "rows", "message"),
    [
        (hashed("town", 3), ROWS, "'town'"),
        (listed("city", [1, 2]), ROWS, "integers in column 'city'.*Received: string"),
        (hashed("count", 3), ROWS, "strings in column 'count'.*Received: int64"),
        (identity("price", 3), ROWS, "integers in column 'price'.*Received: float64"),
        (numeric("city"), ROWS, "numbers in column 'city'.*Received: string"),
    ],
)
def test_data_without_a_column_or_with_another_type(column, rows, message):
    workflow, _ = make_feature_column_workflow([column])
    with pytest.raises(WorkflowError, match=message):
        workflow.fit(rows)
