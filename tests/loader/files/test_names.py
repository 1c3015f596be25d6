"""A loader takes the columns that are named, tagged, or described by feature columns."""

import cProfile

import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderError
from loader.files.parquet_files import ColumnType, read_footers
from workflow.data.dataset import DataFile, PublishedData
from workflow.schema.schema import ColumnSchema, Schema, Tags

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
    file = tmp_path / "0.parquet"
    ratings.write_parquet(file)
    manifest = PublishedData(TAGGED, (DataFile(file, ratings.height, file.stat().st_size),))
    (tmp_path / "_schema.json").write_bytes(manifest.to_text())
    for paths in (tmp_path, str(tmp_path / "*.parquet"), [tmp_path / "0.parquet"]):
        assert columns(KerasSequenceLoader(paths, 10)) == (["userId", "genres", "price"], "int8")
    named = KerasSequenceLoader(tmp_path, 10, cat_names=["movieId"])
    assert columns(named) == (["movieId"], "int8")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 2, "columns": [], "files": {}}', '{"format": 1}']
)
def test_a_schema_file_that_makes_no_sense(ratings, tmp_path, content):
    ratings.write_parquet(tmp_path / "0.parquet")
    (tmp_path / "_schema.json").write_text(content)
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


def test_a_named_label_is_no_feature_by_its_tag(folder):
    loader = KerasSequenceLoader(folder, 10, label_names=["userId"], schema=TAGGED)
    assert columns(loader) == (["genres", "price"], "int64")
    with pytest.raises(LoaderError, match=r"once among.*Received twice: userId"):
        KerasSequenceLoader(folder, 10, ["userId"], cat_names=["userId"], schema=TAGGED)


def test_the_order_is_the_users(make):
    x, _ = make(cat_names=["genres", "userId", "movieId"]).element_spec
    assert list(x) == ["genres", "userId", "movieId", "price"]


def test_input_schema_describes_the_batch(make):
    schema = make().input_schema
    assert schema.names == ["userId", "movieId", "genres", "price", "rating"]
    assert schema["genres"].is_list
    assert schema["price"].has_tag(Tags.CONTINUOUS)
    assert schema["rating"].has_tag(Tags.TARGET)


def test_feature_columns_are_unwrapped_to_their_sources(folder):
    columns_of = tf.feature_column
    movie = columns_of.categorical_column_with_identity("movieId", 50)
    price = columns_of.numeric_column("price")
    crossed = columns_of.crossed_column(["userId", movie], 100)
    loader = KerasSequenceLoader(
        folder,
        10,
        ["rating"],
        feature_columns=[
            columns_of.bucketized_column(price, [1, 10]),
            columns_of.embedding_column(movie, 8),
            columns_of.indicator_column(movie),
            columns_of.embedding_column(crossed, 4),
        ],
    )
    assert columns(loader)[0] == ["movieId", "userId", "price"]
    assert loader.input_schema["price"].has_tag(Tags.CONTINUOUS)
    assert loader.input_schema["userId"].has_tag(Tags.CATEGORICAL)


def test_the_weight_of_a_weighted_column_is_a_number(folder):
    movie = tf.feature_column.categorical_column_with_identity("movieId", 50)
    weighted = tf.feature_column.weighted_categorical_column(movie, "price")
    loader = KerasSequenceLoader(folder, 10, ["rating"], [weighted])
    assert loader.input_schema["price"].has_tag(Tags.CONTINUOUS)


@pytest.mark.parametrize("column", ["userId", 3, object()])
def test_what_is_no_feature_column(folder, column):
    with pytest.raises(LoaderError, match=r"objects of tf\.feature_column.*Received"):
        KerasSequenceLoader(folder, 10, ["rating"], feature_columns=[column])


def test_an_empty_list_of_feature_columns_is_none(folder):
    """NVTabular's examples pass one beside the names."""
    names = {"cat_names": ["userId", "genres"], "cont_names": []}
    loader = KerasSequenceLoader(folder, 10, ["rating"], feature_columns=[], **names)
    assert list(loader.peek()[0]) == ["userId", "genres"]


def test_feature_columns_and_names_together(folder):
    price = tf.feature_column.numeric_column("price")
    with pytest.raises(LoaderError, match="either feature_columns or cat_names"):
        KerasSequenceLoader(folder, 10, ["rating"], [price], cat_names=["userId"])


def test_what_a_footer_costs_grows_with_its_columns_and_no_faster(tmp_path):
    def calls_of(width):
        names = [f"c{number}" for number in range(width)]
        path = tmp_path / f"{width}.parquet"
        pl.DataFrame({name: [1] for name in names}).write_parquet(path)
        profile = cProfile.Profile()
        source = profile.runcall(read_footers, [DataFile(path)], names)
        assert source.types == dict.fromkeys(names, ColumnType("int64"))
        return sum(entry.callcount for entry in profile.getstats())

    narrow, wide = calls_of(100), calls_of(400)
    assert wide < 4.5 * narrow


def test_a_list_is_no_label_and_becomes_one_as_the_error_says(tmp_path):
    file = tmp_path / "0.parquet"
    pl.DataFrame({"a": [1.0, 2.0], "relevance": [[1.0, 0.0], [0.0, 1.0]]}).write_parquet(file)
    with pytest.raises(LoaderError, match=r"list\[float64\]\. Read a list .*sparse_names.*map\."):
        KerasSequenceLoader(file, 2, cont_names=["a"], label_names=["relevance"])
    loader = KerasSequenceLoader(
        file,
        2,
        shuffle=False,
        cont_names=["a", "relevance"],
        sparse_names=["relevance"],
        sparse_max={"relevance": 2},
        sparse_as_dense=True,
    )
    x, y = next(iter(loader.map(lambda x, *_: ({"a": x["a"]}, x["relevance"]))))
    assert list(x) == ["a"]
    assert y.numpy().tolist() == [[1.0, 0.0], [0.0, 1.0]]
