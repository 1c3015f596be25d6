import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, model_signature, models, save_model, train
from training.layers import EmbeddingBag
from training.private import layers_of
from workflow import Workflow, ops
from workflow.embedding_sizes import get_embedding_sizes
from workflow.schema.schema import ColumnSchema, Schema


def described(model):
    return {spec.name: spec.dtype for spec in model_signature(model).inputs}


def test_inputs_are_the_seeds(model):
    assert described(model) == {
        "userId": "int32",
        "movieId": "int32",
        "genres__values": "int64",
        "genres__nnzs": "int64",
    }
    assert model.output_names == ["output"]


def test_names_of_numbers_may_come_from_an_iterator():
    model = models.mlp({"user": (9, 2)}, (name for name in ("age", "price")))
    assert described(model) == {"user": "int32", "age": "float32", "price": "float32"}
    with pytest.raises(TrainingError, match=r"Received: 'age'\. For one column: \['age'\]"):
        models.mlp({"user": (9, 2)}, "age")


def test_it_trains_on_lists_whose_values_outnumber_the_rows(model, batches, rows, predict):
    model.compile("sgd", "binary_crossentropy")
    model.fit(batches(96, 32), verbose=0, shuffle=False)
    assert predict(model, rows(7).features).shape == (7, 1)


@pytest.mark.parametrize("make", [models.mlp, models.wide_and_deep])
@pytest.mark.parametrize("lists", [False, True])
def test_keras_may_compile_by_xla_what_has_no_lists(make, lists):
    """On a GPU, Keras asks the layers; XLA knows no sum of segments."""
    tables = {"user": (9, 2)}, {"tags": (5, 2)} if lists else {}
    dtypes = {"user": "int32", "tags": ("int32", "int32")}
    dtypes = {name: dtypes[name] for table in tables for name in table}
    model = make(tables, ["age"], hidden=(4,), id_dtypes=dtypes)
    assert all(part.supports_jit for part in layers_of(model)) is not lists
    compiled = tf.function(model, jit_compile=True)
    x = {"user": tf.constant([[3]]), "age": tf.constant([[0.5]])}
    if not lists:
        assert compiled(x).shape == (1, 1)
        return
    x["tags"] = (tf.constant([[1]]), tf.constant([[1]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="SparseSegmentSum"):
        compiled(x)


def test_lists_of_a_later_place_count_too():
    """Ids come first to the table that a history shares."""
    item, values, nnzs = (keras.Input((1,), name=n, dtype="int32") for n in ("item", "v", "n"))
    table = EmbeddingBag(9, 2)
    vectors = [table(item)]
    assert table.supports_jit
    vectors.append(table((values, nnzs)))
    assert not table.supports_jit
    model = keras.Model([item, values, nnzs], keras.layers.Concatenate()(vectors))
    assert not keras.models.clone_model(model).get_layer(table.name).supports_jit


def test_a_cap_narrows_only_wider_tables(sizes):
    model = models.mlp(sizes, max_embedding_dim=10)
    tables = next(layer for layer in model.layers if hasattr(layer, "embedding_tables"))
    shapes = {name: tuple(table.shape) for name, table in tables.embedding_tables.items()}
    assert shapes == {"userId": (50, 8), "movieId": (40, 10), "genres": (22, 4)}


@pytest.mark.parametrize("features", [object(), 3, ["userId", "movieId"], ({"a": (3, 2)},)])
def test_features_of_another_form_are_told(features):
    with pytest.raises(TrainingError, match="Expected a workflow's output_schema, or embedding"):
        models.mlp(features)


def test_sizes_without_lists_are_one_dictionary():
    model = models.mlp({"userId": (50, 8)}, ["age"], id_dtypes={"userId": "int64"})
    assert described(model) == {"userId": "int64", "age": "float32"}


def test_a_model_from_a_schema_takes_the_schemas_dtypes():
    table = {"cardinality": 30, "embedding_size": 16}
    schema = Schema(
        [
            ColumnSchema("userId", "int64", tags=("categorical",), properties=table),
            ColumnSchema("tags", "int32", True, tags=("categorical",), properties=table),
            ColumnSchema("age", "float32", tags=("continuous",)),
            ColumnSchema("rating", "int8", tags=("target", "continuous")),
            ColumnSchema("note", "string"),
        ]
    )
    model = models.mlp(schema, output_name="click")
    assert described(model) == {
        "userId": "int64",
        "tags__values": "int32",
        "tags__nnzs": "int64",
        "age": "float32",
    }
    assert model.output_names == ["click"]


def test_a_table_without_a_width_gets_the_workflows():
    column = ColumnSchema(
        "userId", "int64", tags=("categorical",), properties={"cardinality": 1000}
    )
    model = models.mlp(Schema([column]))
    features = next(layer for layer in model.layers if hasattr(layer, "embedding_tables"))
    expected = get_embedding_sizes(Schema([column]))["userId"]
    assert tuple(features.embedding_tables["userId"].shape) == expected


def test_a_categorical_column_without_a_cardinality_is_named():
    schema = Schema([ColumnSchema("userId", "int64", tags=("categorical",))])
    with pytest.raises(TrainingError, match=r"'userId'.*cardinality.*Categorify"):
        models.mlp(schema)


def test_lists_of_numbers_are_named():
    rows = {"item": [7, 9], "scores": [[1.0], [2.0, 3.0]]}
    vectors = {"item": [7, 9], "vector": [[1.0, 2.0], [3.0, 4.0]]}
    columns = (["item"] >> ops.PretrainedVectors(vectors, ids="item")) + (
        ["scores"] >> ops.Normalize()
    )
    with pytest.raises(TrainingError, match=r"numbers in item, scores\. Leave them out.*without"):
        models.mlp(Workflow(columns).fit(rows).output_schema)


def test_mixed_precision_still_answers_in_float32(sizes):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = models.mlp(sizes, hidden=(8,), dropout=0.5)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model_signature(model).outputs[0].dtype == "float32"


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        (({}, {}), {}, "at least one column"),
        (({}, {}, {}), {}, "as a pair"),
        ({"userId": (50, 8)}, {"id_dtypes": {"user": "int64"}}, "Received: user"),
        (
            {"userId": (50, 8)},
            {"id_dtypes": {"userId": ("int64", "int64")}},
            "one dtype for 'userId'",
        ),
        # Keras would read 300 as 44.
        ({"userId": (400, 8)}, {"id_dtypes": {"userId": "int8"}}, "'userId', 0 to 399.*'int8'"),
        (
            ({}, {"tags": (129, 8)}),
            {"id_dtypes": {"tags": ("int8", "int64")}},
            "'tags', 0 to 128.*'int8'",
        ),
    ],
)
def test_arguments_that_make_no_sense(sizes, options, message):
    with pytest.raises(TrainingError, match=message):
        models.mlp(sizes, **options)


@pytest.mark.parametrize("width", [0, "8", 1.5])
def test_a_width_of_the_towers_that_makes_no_sense(width):
    sizes = {"userId": (50, 8), "movieId": (40, 8)}
    with pytest.raises(TrainingError, match=f"width as a whole number from 1. Received: {width!r}"):
        models.two_tower(sizes, query=["userId"], candidate=["movieId"], width=width)


def schema_of(numbers, ids):
    """A label, numbers, and ids, of which the first three are lists."""
    return Schema(
        [ColumnSchema("label", "int8", tags=("target",))]
        + [ColumnSchema(f"n{number}", "float32", tags=("continuous",)) for number in range(numbers)]
        + [
            ColumnSchema(
                f"c{number}",
                "int32",
                number < 3,
                tags=("categorical",),
                properties={"cardinality": 10 + number},
            )
            for number in range(ids)
        ]
    )


SEED_002 = schema_of(10, 40)


@pytest.mark.parametrize(
    ("make", "numbers", "ids"),
    [
        (models.mlp, 10, 40),
        (models.wide_and_deep, 2, 7),
        (lambda schema: models.dlrm(schema, embedding_dim=8), 2, 7),
        (lambda schema: models.dcn(schema, rank=4), 2, 7),
        (
            lambda schema: models.two_tower(
                schema,
                query=[name for name in schema.names if name < "c5" and name != "label"],
                candidate=[name for name in schema.names if name >= "c5" and name != "label"],
            ),
            2,
            7,
        ),
    ],
    ids=["mlp", "wide_and_deep", "dlrm", "dcn", "two_tower"],
)
def test_every_model_takes_a_schema_and_is_saved_and_loaded(make, numbers, ids, tmp_path):
    schema = schema_of(numbers, ids)
    model = make(schema)
    names = set(described(model))
    assert len(names) == numbers + ids - 3 + 2 * 3
    assert "label" not in names
    features = batch_of(schema, 5)
    answer = model(features).numpy()
    assert answer.shape == (5, 1)
    assert ((answer > 0) & (answer < 1)).all()
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        keras.models.load_model(tmp_path / "model.keras")(features), answer
    )
    save_model(model, tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    flat = {name: tensor for name, tensor in features.items() if not isinstance(tensor, tuple)}
    for name in features.keys() - flat.keys():
        flat |= zip((f"{name}__values", f"{name}__nnzs"), features[name], strict=True)
    np.testing.assert_allclose(served(**flat)["output"], answer, rtol=1e-5)
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(features), answer)


@pytest.mark.parametrize("make", [models.mlp, models.dlrm, models.dcn, models.wide_and_deep])
def test_layers_have_names_that_say_what_they_are(make):
    """Two models in one program have them too: messages and summaries name weights by them."""
    sizes = {"userId": (50, 8)}
    for _ in range(2):
        model = make(sizes, ["age"])
        paths = [variable.path for variable in model.trainable_variables]
        assert not [path for path in paths if path.startswith(("dense", "embedding"))]
    assert model.name == make.__name__


def test_a_column_named_as_a_layer_is_told():
    with pytest.raises(TrainingError, match=r"hidden_1.*ops\.Rename"):
        models.mlp({"hidden_1": (50, 8)})


@pytest.mark.parametrize("make", [models.mlp, models.dlrm, models.dcn, models.wide_and_deep])
@pytest.mark.parametrize("column", ["od280/od315", ""])
@pytest.mark.parametrize("kind", ["single", "list", "number"])
def test_a_column_whose_name_keras_refuses_is_told(make, column, kind):
    """scikit-learn's wines have such a name. Keras' own words say nothing of columns."""
    own = {column: (50, 8)}
    features = {
        "single": ({"userId": (9, 8)} | own, {}),
        "list": ({"userId": (9, 8)}, own),
        "number": ({"userId": (9, 8)}, {}),
    }
    with pytest.raises(TrainingError, match=rf"{column!r}.*ops\.Rename"):
        make(features[kind], [column] if kind == "number" else ["age"])


def batch_of(schema, rows):
    rng = np.random.default_rng(0)
    features = {}
    for column in schema.without(["label"]).columns:
        if "continuous" in column.tags:
            features[column.name] = rng.normal(size=(rows, 1)).astype("float32")
        elif column.is_list:
            lengths = rng.integers(0, 11, (rows, 1))
            values = rng.integers(0, 10, (lengths.sum(), 1), column.dtype)
            features[column.name] = (values, lengths)
        else:
            features[column.name] = rng.integers(0, 10, (rows, 1), column.dtype)
    return tf.nest.map_structure(tf.constant, features)


def test_wide_and_deep_has_a_weight_for_each_id_and_a_vector():
    model = models.wide_and_deep(SEED_002, hidden=(16,), max_embedding_dim=8)
    ids = sum(10 + number for number in range(40)) + 40
    shapes = [tuple(weight.shape) for weight in model.weights]
    assert (ids, 1) in shapes  # the wide part
    assert (ids, 8) in shapes  # the deep part: one table
    assert (10, 1) in shapes  # the wide part's numbers
    assert (40 * 8 + 10, 16) in shapes


def test_dlrm_multiplies_every_pair_once(sizes):
    model = models.dlrm(sizes, ["age"], embedding_dim=4, bottom=(8,), top=(6,))
    # Three embeddings and the vector of the numbers make six pairs; the vector goes along.
    assert (6 + 4, 6) in [tuple(weight.shape) for weight in model.weights]
    without = models.dlrm(sizes, embedding_dim=4, top=(6,))
    assert (3, 6) in [tuple(weight.shape) for weight in without.weights]


def test_either_tower_can_be_served_alone(sizes, rows):
    model = models.two_tower(sizes, query=["userId"], candidate=["movieId", "genres"], width=4)
    features = tf.nest.map_structure(tf.constant, rows(6).features)
    towers = {}
    for side, names in (("query", ["userId"]), ("candidate", ["movieId", "genres"])):
        inputs = {name: model.input[name] for name in names}
        tower = keras.Model(inputs, model.get_layer(f"{side}_vector").output)
        towers[side] = tower({name: features[name] for name in names}).numpy()
        np.testing.assert_allclose(np.linalg.norm(towers[side], axis=1), 1, rtol=1e-5)
    weight, bias = (value.numpy() for value in model.get_layer("output").weights)
    logit = (towers["query"] * towers["candidate"]).sum(axis=1, keepdims=True) * weight + bias
    np.testing.assert_allclose(model(features), 1 / (1 + np.exp(-logit)), rtol=1e-5)


@pytest.mark.parametrize("precision", [pytest.param("bfloat16", marks=pytest.mark.long), "float16"])
def test_two_towers_learn_in_16_bits_from_rows_without_a_feature(precision):
    """Lists of some rows are empty: a vector of zeros, and in float16 an overflow at first."""
    keras.utils.set_random_seed(0)
    model = models.two_tower(
        ({"userId": (50, 8)}, {"genres": (22, 4)}),
        query=["userId"],
        candidate=["genres"],
        hidden=(16,),
    )
    user = np.arange(256, dtype="int32")[:, None] % 50
    lengths = (user % 4).astype("int64")
    genres = np.arange(lengths.sum())[:, None] % 22, lengths
    data = tf.data.Dataset.from_tensors(({"userId": user, "genres": genres}, user % 2))
    optimizer = keras.optimizers.Adam(0.02)
    settings = {"precision": precision, "optimizer": optimizer, "metrics": []}
    report = train(model, data.repeat(100), **settings)
    assert np.isfinite(report.loss_curve).all()
    assert report.loss_curve[-1] < 0.5 * report.loss_curve[0]


@pytest.mark.parametrize(
    ("query", "candidate"),
    [(["userId"], ["movieId"]), (["userId", "movieId", "genres"], []), (["userId"], ["userId"])],
)
def test_each_column_belongs_to_one_tower(sizes, query, candidate):
    with pytest.raises(TrainingError, match="either in query or in candidate"):
        models.two_tower(sizes, query=query, candidate=candidate)


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"hidden": [8, 0]}, r"hidden=\[8, 0\]"),
        ({"hidden": [8.5]}, r"hidden=\[8\.5\]"),
        ({"hidden": 8}, "hidden=8"),
        ({"dropout": 1.5}, r"dropout=1\.5"),
        ({"dropout": "half"}, "dropout='half'"),
    ],
)
def test_widths_and_a_dropout_that_no_layer_can_have(options, received):
    with pytest.raises(TrainingError, match=rf"\[128, 64\], and dropout.* Received: .*{received}"):
        models.mlp({"userId": (50, 4)}, **options)


@pytest.mark.parametrize("hidden", [[np.int64(4), 2], np.array([4, 2]), range(4, 1, -2)])
def test_widths_of_any_sequence(hidden):
    model = models.mlp({"userId": (50, 4)}, hidden=hidden)
    assert [model.get_layer(f"hidden_{number}").units for number in (1, 2)] == [4, 2]
