import keras
import pytest

from training import TrainingError, model_signature, models
from workflow.embeddings import get_embedding_sizes
from workflow.schema import ColumnSchema, Schema


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


def test_it_trains_on_lists_whose_values_outnumber_the_rows(model, batches, rows, predict):
    model.compile("sgd", "binary_crossentropy")
    model.fit(batches(96, 32), verbose=0, shuffle=False)
    assert predict(model, rows(7).features).shape == (7, 1)


def test_a_cap_narrows_only_wider_tables(sizes):
    model = models.mlp(sizes, max_embedding_dim=10)
    tables = next(layer for layer in model.layers if hasattr(layer, "embedding_tables"))
    shapes = {name: tuple(table.shape) for name, table in tables.embedding_tables.items()}
    assert shapes == {"userId": (50, 8), "movieId": (40, 10), "genres": (22, 4)}


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
    model = models.mlp_from_schema(schema, output_name="click")
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
    model = models.mlp_from_schema(Schema([column]))
    features = next(layer for layer in model.layers if hasattr(layer, "embedding_tables"))
    expected = get_embedding_sizes(Schema([column]))["userId"]
    assert tuple(features.embedding_tables["userId"].shape) == expected


def test_a_categorical_column_without_a_cardinality_is_named():
    schema = Schema([ColumnSchema("userId", "int64", tags=("categorical",))])
    with pytest.raises(TrainingError, match=r"'userId'.*cardinality.*Categorify"):
        models.mlp_from_schema(schema)


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
    ],
)
def test_arguments_that_make_no_sense(sizes, options, message):
    with pytest.raises(TrainingError, match=message):
        models.mlp(sizes, **options)
