"""Which columns a loader takes: as named, as tagged, or as feature columns say."""

import json
from types import SimpleNamespace

import pytest

from loader import KerasSequenceLoader, LoaderError
from workflow.schema import ColumnSchema, Schema, Tags

TAGGED = Schema(
    [
        ColumnSchema("price", "float32", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("rating", "int8", tags=(Tags.TARGET,)),
        ColumnSchema("userId", "int64", tags=(Tags.CATEGORICAL,), properties={"cardinality": 9}),
        ColumnSchema("genres", "int64", is_list=True, tags=(Tags.CATEGORICAL,)),
    ]
)


def columns(loader):
    x, y = loader.element_spec
    return list(x), y.dtype.name


def test_tags_of_a_given_schema(folder):
    loader = KerasSequenceLoader(folder, 10, schema=TAGGED)
    assert columns(loader) == (["userId", "genres", "price"], "int8")
    assert loader.input_schema["userId"].properties["cardinality"] == 9


def test_tags_of_the_schema_beside_the_files(ratings, tmp_path):
    ratings.write_parquet(tmp_path / "0.parquet")
    content = {"format": 1, "columns": TAGGED.to_json()}
    (tmp_path / "schema.json").write_text(json.dumps(content))
    for paths in (tmp_path, str(tmp_path / "*.parquet"), [tmp_path / "0.parquet"]):
        assert columns(KerasSequenceLoader(paths, 10)) == (["userId", "genres", "price"], "int8")
    named = KerasSequenceLoader(tmp_path, 10, cat_names=["movieId"])
    assert columns(named) == (["movieId"], "int8")


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2, "columns": []}', '{"format": 1}'])
def test_a_schema_file_that_makes_no_sense(ratings, tmp_path, content):
    ratings.write_parquet(tmp_path / "0.parquet")
    (tmp_path / "schema.json").write_text(content)
    with pytest.raises(LoaderError, match=r"schema\.json"):
        KerasSequenceLoader(tmp_path, 10)


def test_a_tagged_label_is_no_feature(folder):
    both = ColumnSchema("rating", "int8", tags=(Tags.TARGET, Tags.CATEGORICAL))
    schema = Schema([*TAGGED.without(["rating"]).columns, both])
    assert columns(KerasSequenceLoader(folder, 10, schema=schema))[0] == [
        "userId",
        "genres",
        "price",
    ]


def test_the_order_is_the_users(make):
    x, _ = make(cat_names=["genres", "userId", "movieId"]).element_spec
    assert list(x) == ["genres", "userId", "movieId", "price"]


def test_input_schema_describes_the_batch(make):
    schema = make().input_schema
    assert schema.names == ["userId", "movieId", "genres", "price", "rating"]
    assert schema["genres"].is_list
    assert schema["price"].has_tag(Tags.CONTINUOUS)
    assert schema["rating"].has_tag(Tags.TARGET)


def test_feature_columns_are_unwrapped(folder):
    """The attributes by which `tf.feature_column`, deprecated as it is, tells its sources."""
    user = SimpleNamespace(key="userId", number_buckets=1000)
    loader = KerasSequenceLoader(
        folder,
        10,
        ["rating"],
        feature_columns=[
            SimpleNamespace(key="price", shape=(1,), normalizer_fn=None),
            SimpleNamespace(categorical_column=user, dimension=8),
            SimpleNamespace(categorical_column=user, dimension=2),
        ],
    )
    assert columns(loader)[0] == ["userId", "price"]
    with pytest.raises(LoaderError, match="one named source column"):
        KerasSequenceLoader(folder, 10, ["rating"], [SimpleNamespace(keys=("a", "b"))])
