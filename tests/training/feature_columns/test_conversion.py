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
cross = columns_of.crossed_column
bucketized = columns_of.bucketized_column
embedding = columns_of.embedding_column
indicator = columns_of.indicator_column

CITIES = ["Ulm", "b", "", "Zürich", "U\rlm", "B", "b"]
# 16777217 is no float32; 0.7 as float32 is less than 0.7.
PRICES = [0.7, 0.1, -3.0, 25.5, 1e30, 16777217.0, 18.0]
COUNTS = [3, 0, -1, 7, 8, 2**40, -5]
ROWS = {"city": CITIES, "price": PRICES, "count": COUNTS}


def tensor_of(name, values, *, sparse):
    """A column of rows, or lists of one length, as TensorFlow takes it: null only in sparse tensors."""
    if sparse and name != "price":
        present = [[row, 0] for row, value in enumerate(values) if value is not None]
        shape = [len(values), 1]
        return tf.SparseTensor(present, [v for v in values if v is not None], shape)
    dense = tf.constant(np.array(values, np.float32) if name == "price" else values)
    return dense if len(dense.shape) == 2 else dense[:, None]


def of_tensorflow(columns, rows=ROWS, *, sparse=False):
    """Each column as TensorFlow's layer of old computes it, and all of its variables."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = columns() if callable(columns) else columns
        tensors = {name: tensor_of(name, v, sparse=sparse) for name, v in rows.items()}
        layer = tf.compat.v1.feature_column.input_layer
        values = [layer(tensors, [column]) for column in made]
        variables = tf.compat.v1.global_variables()
        session.run(
            [tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()]
        )
        return session.run([values, variables])


def ids_of_tensorflow(column, rows=ROWS, *, sparse=False):
    """Its ids; -1 where it gives none."""
    (counts,), _ = of_tensorflow([indicator(column)], rows, sparse=sparse)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1).tolist()


def ours(column, rows=ROWS, *, sparse=False):
    workflow, _ = make_feature_column_workflow([column], sparse=sparse)
    return workflow.fit(rows).transform(rows).collect().to_series().to_list()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cities.txt"
    path.write_bytes("Zürich\nb\r\nU\rlm\nnever\r\r\nUlm\r".encode())
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
        numeric("count", dtype=tf.int64),
        numeric("price", default_value=4.0),
    ],
    ids=range(6),
)
def test_numbers_are_those_of_tensorflow(column):
    (expected,), _ = of_tensorflow([column])
    made, _ = make_feature_column_workflow([column])
    result = made.fit(ROWS).transform(ROWS).collect().to_series()
    assert result.dtype == pl.Float32
    np.testing.assert_array_max_ulp(result.to_numpy(), expected[:, 0], maxulp=1)


def random_rows(count):
    """Texts of all lengths to 200 bytes and more, and integers of all sizes; each may be missing."""
    rng = np.random.default_rng(39)
    letters = ["a", "Z", "7", " ", "é", "日", "\U0001f600"]
    texts = ["".join(rng.choice(letters, n % 101)) for n in range(count)]
    whole = [int(bits) >> n % 64 for n, bits in enumerate(rng.integers(-(2**63), 2**63, count))]
    limits = [-(2**63), 2**63 - 1, 0, -1, 9, 10]
    return {
        "city": texts,
        "town": rng.choice([*texts[:50], ""], count).tolist(),
        "count": limits + whole[len(limits) :],
        "price": rng.uniform(-5, 40, count).tolist(),
    }


CITY = listed("city", CITIES[3:6])
AGE = bucketized(numeric("price"), [1.0, 18.0])
# Columns whose ids are hashes, in few buckets, since TensorFlow counts each bucket.
HASHES = {
    "strings": lambda: hashed("city", 1009),
    "integers": lambda: hashed("count", 997, tf.int64),
    "unknown strings": lambda: listed("city", ["b", "Ulm"], num_oov_buckets=101),
    "unknown integers": lambda: listed("count", [0, 9], dtype=tf.int64, num_oov_buckets=101),
    "two strings": lambda: cross(["town", "city"], 1013),
    "two keys in turn": lambda: cross(["city", "town"], 1013),
    "string and integer": lambda: cross(["count", "city"], 1013),
    "three": lambda: cross(["city", "count", "town"], 1013),
    "own key": lambda: cross(["city", "count"], 1013, hash_key=77),
    "negative key": lambda: cross(["city", "count"], 1013, hash_key=-(2**62)),
    "key zero": lambda: cross(["city", "count"], 1013, hash_key=0),
    "buckets": lambda: cross([AGE, "city"], 1013),
    "a string before buckets": lambda: cross(["city", AGE, "count"], 1013),
    "a vocabulary": lambda: cross(["town", CITY], 1013),
    "a vocabulary of unknown ones": lambda: cross([CITY, AGE], 1013),
    "a vocabulary with buckets": lambda: cross(
        [listed("city", ["b", "Ulm"], num_oov_buckets=101), "town"], 1013
    ),
    "identity": lambda: cross([identity("count", 20, default_value=19), "town"], 1013),
    "a cross in a cross": lambda: cross([cross(["town", "count"], 5), "city"], 1013),
    "one column twice": lambda: cross(["city", CITY], 1013),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", HASHES)
def test_hashes_and_crosses_are_those_of_tensorflow(case, sparse):
    rows = random_rows(1500)
    if sparse:
        for name, every in (("city", 7), ("town", 11), ("count", 13)):
            rows[name][::every] = [None] * len(rows[name][::every])
    expected = ids_of_tensorflow(HASHES[case](), rows, sparse=sparse)
    assert len(set(expected)) > 2
    assert ours(HASHES[case](), rows, sparse=sparse) == expected


def test_a_cross_of_numbers_is_that_of_tensorflow_which_truncates_them():
    rows = random_rows(500)
    column = cross(["price", "town"], 1013)
    assert ours(column, rows) == ids_of_tensorflow(column, rows)


def test_crosses_of_unlike_columns_differ_between_dense_and_sparse_tensors():
    """So that the cases above hold what they are named for."""
    rows = random_rows(300)
    column = HASHES["a string before buckets"]()
    dense, sparse = (ours(column, rows, sparse=way) for way in (False, True))
    assert sum(a == b for a, b in zip(dense, sparse, strict=True)) < 10


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_hashes_of_integers_of_every_width_are_those_of_tensorflow(dtype):
    limits = np.iinfo(dtype)
    rows = {"count": np.array([limits.min, limits.max, 0, -1, 7, -10], dtype)}
    column = hashed("count", 1009, tf.as_dtype(dtype))
    assert ours(column, rows) == ids_of_tensorflow(column, rows)


def test_hashes_in_lists_are_those_of_tensorflow():
    rows = {"city": [["b", "Ulm", "x"], ["日本", "", "y" * 70]]}
    (counts,), _ = of_tensorflow([indicator(hashed("city", 997))], rows)
    ids = ours(hashed("city", 997), rows)
    assert [sorted(set(row) - {-1}) for row in ids] == [np.flatnonzero(c).tolist() for c in counts]
    assert ids[1][1] == -1


def test_a_cross_of_a_missing_value_has_no_id():
    rows = {"city": ["b", None, "", "b"], "count": [1, 1, None, -1], "price": [2.0] * 3 + [None]}
    assert ours(cross(["city", "count"], 50), rows)[1:3] == [-1, -1]
    assert ours(cross(["city", AGE], 50), rows)[1] == -1
    assert ours(cross(["city", AGE], 50), rows)[3] == -1
    assert -1 not in [ours(cross(["city", "count"], 50), rows)[n] for n in (0, 3)]


def test_lists_are_not_crossed():
    workflow, _ = make_feature_column_workflow([cross(["city", "count"], 9)])
    with pytest.raises(WorkflowError, match="single values in each column of the cross 'city_X_co"):
        workflow.fit({"city": [["a", "b"]], "count": [1]})


@pytest.mark.parametrize(
    "column",
    [
        numeric("v", 2),
        numeric("v", (2,), normalizer_fn=lambda x: (x - 3.1) / 7.3),
        numeric("v", (2,), default_value=(0.5, 0.5)),
    ],
    ids=range(3),
)
def test_vectors_of_numbers_are_those_of_tensorflow(column):
    rows = {"v": [[1.5, 2.5], [-3.0, 1e30]]}
    (expected,), _ = of_tensorflow([column], rows)
    workflow, own = make_feature_column_workflow([column])
    table = workflow.fit(rows).transform(rows).collect()
    assert workflow.output_schema["v"].properties["value_count"] == {"min": 2, "max": 2}
    np.testing.assert_array_max_ulp(
        np.array(table["v"].to_list(), np.float32), expected.astype(np.float32), maxulp=1
    )
    values = table["v"].explode(empty_as_null=False).to_numpy()[:, None]
    given = {"v": (values, np.array([[2], [2]], np.int64))}
    np.testing.assert_allclose(DenseFeatures(own)(given), expected, rtol=1e-6)


def test_vectors_of_another_length_are_cut_or_filled():
    rows = {"v": [[1.0], None, [1.0, 2.0, 3.0], [None, 2.0]]}
    assert ours(numeric("v", 2, default_value=7.0), rows) == [[1, 7], [7, 7], [1, 2], [7, 2]]
    without = ours(numeric("v", 2), rows)
    assert without[2] == [1, 2]
    assert np.isnan(without[0][1])


def test_numbers_of_another_form_than_the_columns_shape_are_refused():
    for column, rows, wanted in (
        (numeric("v", 2), {"v": [1.0]}, "lists of numbers"),
        (numeric("v"), {"v": [[1.0]]}, "single numbers"),
    ):
        workflow, _ = make_feature_column_workflow([column])
        with pytest.raises(WorkflowError, match=f"Expected {wanted} in column 'v'"):
            workflow.fit(rows)


def test_a_missing_value_has_no_id_and_a_missing_number_its_default():
    rows = {"city": ["", None, "b"], "count": [-1, None, 3], "price": [None, float("nan"), 2.0]}
    for column in (
        listed("city", ["b"], num_oov_buckets=4),
        listed("city", ["b"], default_value=None),
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


@pytest.mark.parametrize("combiner", ["mean", "sqrtn", "sum"])
def test_unknown_elements_of_a_list_count_as_little_as_in_tensorflow(combiner):
    rows = {"city": [["b", "Ulm", "x"], ["x", "", "x"], ["Ulm", "b", "b"]]}
    column = embedding(listed("city", ["b", "Ulm"]), 3, combiner=combiner)
    (expected,), variables = of_tensorflow([column], rows)
    workflow, own = make_feature_column_workflow([column])
    lists = workflow.fit(rows).transform(rows).collect()["city"].to_list()
    inputs = {"city": (np.array(lists).reshape(-1, 1), np.array([[3], [3], [3]]))}
    made = DenseFeatures(own)
    made(inputs)
    made.embeddings.set_embedding_table("city", variables[0])
    again = DenseFeatures.from_config(made.get_config())
    again(inputs)
    again.embeddings.set_embedding_table("city", variables[0])
    for layer in (made, again):
        np.testing.assert_allclose(layer(inputs), expected, rtol=1e-6)


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
    assert workflow.output_schema["price"].tags == ("continuous",)
    again = make_feature_column_workflow(tuple(wide + deep), ("label",))
    assert again.workflow.fit(rows).output_schema == workflow.output_schema
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
        (columns_of.sequence_numeric_column("h"), "Received: SequenceNumericColumn 'h'.*sparse_as"),
        (
            indicator(columns_of.sequence_categorical_column_with_identity("h", 3)),
            "Received: SequenceCategoricalColumn 'h'.*keras.layers.Embedding",
        ),
        (
            embedding(columns_of.weighted_categorical_column(identity("a", 3), "w"), 2),
            "Received: WeightedCategoricalColumn 'a_weighted_by_w'.*no weights of ids",
        ),
        ([listed("city", ["b"]), hashed("city", 3)], "one feature column of the name 'city'"),
        (numeric("price", normalizer_fn=tf.math.log), "normalizer_fn of 'price'.*numpy's"),
        (numeric("v", (2, 3)), r"'v' of shape \(2, 3\). Give the column the shape \(6,\)"),
        (numeric("v", 2, default_value=(1.0, 2.0)), "one default_value of 'v'.*1.0, 2.0"),
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
        (listed("city", [b"b", b"\xff"]), r"'city' in UTF-8.*Received: b'\\xff'"),
        (listed("city", ["b"], default_value=7), "default_value from -1 to 0 for 'city'"),
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


@pytest.mark.parametrize("label", [5, [5], None])
def test_labels_that_are_no_names(label):
    price = tf.feature_column.numeric_column("price")
    with pytest.raises(WorkflowError, match=r"Expected a column name.*Received: \[(5|None)\]"):
        make_feature_column_workflow([price], label)
