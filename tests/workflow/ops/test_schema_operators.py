"""Operators that change or learn what is known of columns, and those that pick by it."""

from __future__ import annotations

import math
import statistics

import numpy as np
import polars as pl
import pytest

from workflow import Tags, Workflow, WorkflowError, get_embedding_sizes, ops

# Rename


def test_renamed_columns_keep_values_tags_and_embeddings():
    ids = ["user", "genres"] >> ops.Categorify() >> ops.Rename(postfix="_id")
    workflow = Workflow(ids).fit({"user": [7, 7, 9], "genres": [["a"], [], ["b", "a"]]})
    assert get_embedding_sizes(workflow) == ({"user_id": (5, 16)}, {"genres_id": (5, 16)})
    assert workflow.output_schema.tagged(Tags.CATEGORICAL).names == ["user_id", "genres_id"]
    made = workflow.transform({"user": [9, None], "genres": [["b"], None]}).collect()
    assert made.rows() == [(4, [4]), (1, [])]


def test_function_that_renames_is_saved_as_what_it_gave(tmp_path):
    workflow = Workflow(["a", "b"] >> ops.Rename(lambda name: f"{name}{name}")).fit(
        {"a": [1], "b": [2]}
    )
    workflow.save(tmp_path / "saved")
    assert Workflow.load(tmp_path / "saved").output_schema.names == ["aa", "bb"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs one of f, postfix and name. Received: none"),
        ({"postfix": "x", "name": "y"}, "Received: postfix, name"),
        ({"f": 3}, "a function, a mapping"),
        ({"postfix": 3}, "postfix as a text"),
        ({"name": "x"}, "takes one column. Received: a, b"),
        ({"f": {"a": "b"}}, "two columns 'b', one of them from 'b'"),
        ({"f": lambda _: None}, r"f\('a'\) as a text. Received: None"),
        ({"f": lambda name: name.nothing}, "function fails for 'a': AttributeError"),
        ({"f": lambda _: ops.Rename()}, r"function fails for 'a': Workf.*Received: none\.$"),
    ],
)
def test_rename_settings_are_checked(settings, message):
    with pytest.raises(WorkflowError, match=message):
        Workflow(["a", "b"] >> ops.Rename(**settings)).fit({"a": [1], "b": [2]})


# AddMetadata and its kind


def test_tags_and_properties_reach_the_schema_and_selectors(tmp_path):
    known = ["user"] >> ops.TagAsUserID() >> ops.AddProperties({"unit": "person"})
    item = ["item"] >> ops.TagAsItemID
    features = (["age"] >> ops.TagAsUserFeatures()) + (["year"] >> ops.TagAsItemFeatures())
    both = known + item + features + (["x"] >> ops.AddMetadata("mine", {"a": [1]}))
    workflow = Workflow(both).fit({name: [1] for name in ("user", "item", "age", "year", "x")})
    workflow.save(tmp_path / "saved")
    schema = Workflow.load(tmp_path / "saved").output_schema
    assert schema.tagged("user_id").names == ["user"]
    assert schema.tagged(Tags.ID).names == ["user", "item"]
    assert schema.tagged(Tags.USER).names == ["user", "age"]
    assert schema.tagged(Tags.ITEM).names == ["item", "year"]
    assert schema["user"].properties == {"unit": "person"}
    assert schema["x"].properties == {"a": [1]}
    assert schema["x"].tags == ("mine",)


def test_kind_of_a_column_follows_what_was_made_of_it():
    # Else tags=["continuous"] would send ids into the network as numbers.
    ages = ["age"] >> ops.AddTags([Tags.CONTINUOUS, "mine"])
    workflow = Workflow(ages >> ops.Categorify()).fit({"age": [1, 2]})
    assert workflow.output_schema["age"].tags == ("mine", "categorical")
    workflow = Workflow(ages >> ops.Categorify() >> ops.Normalize()).fit({"age": [1, 2]})
    assert workflow.output_schema["age"].tags == ("mine", "continuous")


def test_facts_end_with_the_values_and_the_users_words_stay():
    known = {"domain": {"min": 0, "max": 9}, "cardinality": 10, "unit": "years"}
    ages = ["age"] >> ops.AddProperties(known) >> ops.Normalize()
    schema = Workflow(ages).fit({"age": [1, 2]}).output_schema
    assert schema["age"].properties.keys() == {"unit", "fit_digest"}
    assert schema["age"].properties["unit"] == "years"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.AddTags([""]), "tags of a letter or more"),
        (lambda: ops.AddProperties({"a": [1, float("nan")]}), r"nan as properties\['a'\]\[1\]"),
        (lambda: ops.AddProperties({"a": {"b": {"c": 1}}}), r"as properties\['a'\]\['b'\]"),
        (lambda: ops.AddProperties({"cardinality": "10"}), "whole numbers from 1"),
        (lambda: ops.AddProperties({"domain": {"max": 3}}), "for 'domain'"),
        (lambda: ops.AddProperties({"value_count": {"min": 3, "max": 2}}), "for 'value_count'"),
    ],
)
def test_metadata_is_checked(make, message):
    with pytest.raises(WorkflowError, match=message):
        make()


# ValueCount


def test_shortest_and_longest_row_are_known_and_pass_on():
    data = {"genres": [["x"], [], None, ["y", None, "z"]], "pair": [[1, 2]] * 4}
    counted = ["genres", "pair"] >> ops.ValueCount() >> ops.Categorify()
    schema = Workflow(counted).fit(data).output_schema
    assert schema["genres"].properties["value_count"] == {"min": 0, "max": 3}
    assert schema["pair"].properties["value_count"] == {"min": 2, "max": 2}


def test_only_lists_have_a_value_count():
    with pytest.raises(WorkflowError, match=r"ValueCount over age: .*'age', int64"):
        Workflow(["age"] >> ops.ValueCount()).fit({"age": [1]})


# ReduceDtypeSize


def test_integers_become_as_narrow_as_their_values_and_no_narrower():
    data = {
        "byte": [-128, 127],
        "short": [128, 0],
        "middle": [2**15, 0],
        "wide": [2**31, 0],
        "none": pl.Series([None, None], dtype=pl.Int64),
        "full": pl.Series([255, 0], dtype=pl.UInt8),
        "price": [0.5, 1e300],
        "city": ["a", "b"],
    }
    workflow = Workflow(list(data) >> ops.ReduceDtypeSize()).fit(data)
    dtypes = {name: column.dtype for name, column in workflow.output_schema.items()}
    assert dtypes == {
        "byte": "int8",
        "short": "int16",
        "middle": "int32",
        "wide": "int64",
        "none": "int64",
        "full": "uint8",
        "price": "float32",
        "city": "string",
    }
    later = {name: values[:1] for name, values in data.items()} | {"byte": [1000]}
    assert workflow.transform(later).collect()["byte"].item() == 127


def test_ids_that_only_the_vocabulary_has_do_not_saturate():
    vocabulary = {"user": list(range(500)), "age": [1] * 500}
    ids = ["user"] >> ops.Categorify()
    small = Workflow(ids >> ops.ReduceDtypeSize()).fit(vocabulary)
    assert small.output_schema["user"].dtype == "int16"
    assert small.output_schema["user"].properties["cardinality"] == 503
    known = ["id"] >> ops.AddProperties({"domain": {"min": 0, "max": 300}}) >> ops.ReduceDtypeSize()
    assert Workflow(known).fit({"id": [1, 2]}).output_schema["id"].dtype == "int16"


# DataStats


def test_statistics_are_those_of_the_columns(tmp_path):
    random = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "age": random.integers(0, 90, 500),
            "price": random.normal(1e8, 1, 500),
            "city": random.choice(["", "a", "日本"], 500),
            "scores": [random.random(n).tolist() for n in random.integers(0, 4, 500)],
        }
    ).with_columns(pl.when(pl.int_range(pl.len()) % 7 > 0).then(pl.col("age", "price", "city")))
    for number, part in enumerate(frame.iter_slices(60)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    workflow = Workflow(["*"] >> ops.DataStats()).fit(tmp_path)
    workflow.save(tmp_path / "saved")
    found = ops.DataStats.read(Workflow.load(tmp_path / "saved"))
    assert found == ops.DataStats.read(workflow)
    values = {name: frame[name].drop_nulls().to_list() for name in ("age", "price", "city")}
    values["city"] = [len(text) for text in values["city"]]
    values["scores"] = [score for row in frame["scores"] for score in row]
    for name, have in values.items():
        assert (found[name].min, found[name].max) == (min(have), max(have))
        assert found[name].mean == pytest.approx(statistics.fmean(have), rel=1e-12)
        assert found[name].std == pytest.approx(statistics.stdev(have), rel=1e-9)
    assert found["age"].cardinality == len(set(values["age"]))
    assert found["city"].cardinality == 3
    assert found["price"].cardinality is None
    assert found["price"].per_nan == pytest.approx(100 * 72 / 500)
    assert [found[name].dtype for name in found] == ["int64", "float64", "string", "float64"]


def test_two_values_have_a_deviation():
    rows = {"whole": [1, None, 3], "real": [0.5, None, 3.0], "text": ["a", None, "bcd"]}
    found = ops.DataStats.read(Workflow([*rows] >> ops.DataStats()).fit(rows))
    stds = [found[name].std for name in rows]
    assert stds == pytest.approx([math.sqrt(2), statistics.stdev([0.5, 3.0]), math.sqrt(2)])


def test_statistics_of_nothing_are_none():
    workflow = Workflow(["a", "b"] >> ops.DataStats())
    found = ops.DataStats.read(
        workflow.fit({"a": [None, 5], "b": pl.Series([None, None], dtype=pl.Int8)})
    )
    assert (found["a"].mean, found["a"].std, found["a"].per_nan) == (5, None, 50)
    assert (found["b"].min, found["b"].mean, found["b"].per_nan) == (None, None, 100)
    with pytest.raises(WorkflowError, match="has no DataStats"):
        ops.DataStats.read(Workflow(["a"]).fit({"a": [1]}))


# DropLowCardinality


def test_columns_of_few_categories_are_dropped_and_not_asked_for():
    data = {"same": ["x", "x", "x"], "city": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]}
    ids = ["same", "city"] >> ops.Categorify()
    workflow = Workflow(ids + ["price"] >> ops.DropLowCardinality()).fit(data)
    assert workflow.output_schema.names == ["city", "price"]
    assert workflow.program.inputs.names == ["city", "price"]
    with pytest.raises(WorkflowError, match=r"leaves no column: same has 4, city has 6"):
        Workflow(ids >> ops.DropLowCardinality(7)).fit(data)


@pytest.mark.parametrize(("least", "kept"), [(4, ["c2"]), (3, ["c1", "c2"]), (0, ["c1", "c2"])])
def test_cardinality_is_compared_by_the_largest_id_as_in_nvtabular(least, kept):
    data = {"c1": ["v"] * 4, "c2": ["v", "w"] * 2}  # the largest ids are 3 and 4
    node = list(data) >> ops.Categorify() >> ops.DropLowCardinality(least)
    assert Workflow(node).fit(data).output_schema.names == kept


# ColumnSimilarity


def dense(table: dict, rows: list, columns: list) -> np.ndarray:
    matrix = np.zeros((len(rows), len(columns)))
    for row, column, weight in zip(*table.values(), strict=True):
        matrix[rows.index(row), columns.index(column)] += weight
    return matrix


def scaled(matrix: np.ndarray, metric: str) -> np.ndarray:
    if metric == "tfidf":
        matrix = matrix * np.log(len(matrix) / (matrix != 0).sum(axis=0).clip(1))
    if metric != "inner":
        length = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = np.divide(matrix, length, out=np.zeros_like(matrix), where=length > 0)
    return matrix


def features(ids: int, words: int, seed: int) -> dict:
    random = np.random.default_rng(seed)
    each = np.concatenate([np.arange(ids), random.integers(0, ids, ids * 4)])
    return {
        "document": each.tolist(),
        "word": random.integers(0, words, len(each)).tolist(),
        "weight": random.random(len(each)).round(2).tolist(),
    }


@pytest.mark.parametrize("metric", ["tfidf", "cosine", "inner"])
@pytest.mark.parametrize("sizes", [(9, 30), (30, 9)])
def test_similarity_is_that_of_dense_rows(metric, sizes):
    left, right = features(sizes[0], 12, 1), features(sizes[1], 15, 2)
    rows = [list(range(size)) for size in sizes]
    matrices = [
        scaled(dense(table, r, list(range(15))), metric)
        for table, r in zip((left, right), rows, strict=True)
    ]
    pairs = {"a": [a for a in rows[0] for _ in rows[1]], "b": rows[1] * len(rows[0])}
    workflow = Workflow([["a", "b"]] >> ops.ColumnSimilarity(left, right, metric)).fit(pairs)
    made = workflow.transform(pairs).collect()["a_b_sim"].to_numpy()
    np.testing.assert_allclose(made, (matrices[0] @ matrices[1].T).ravel(), rtol=1e-6, atol=1e-12)


def test_table_of_lists_and_of_a_file_are_the_same_as_a_long_one(tmp_path):
    long = pl.DataFrame({"id": [1, 1, 2, 3], "f": ["x", "y", "y", "z"], "w": [1.0, 2.0, 3.0, 1.0]})
    wide = long.group_by("id", maintain_order=True).agg("f", "w")
    long.write_parquet(tmp_path / "long.parquet")
    pairs = {"a": [1, 2, 3, 1], "b": [2, 2, 1, None]}
    made = [
        Workflow([["a", "b"]] >> ops.ColumnSimilarity(table, metric="inner")).fit(pairs)
        for table in (long, wide, wide.to_dict(), long.to_pandas(), tmp_path / "long.parquet")
    ]
    for workflow in made:
        assert workflow.transform(pairs).collect()["a_b_sim"].to_list() == [6, 9, 0, None]


def test_features_without_weights_count_as_often_as_they_are_shared():
    words = [["a", "b", "c"], ["b", "c", "c"], ["d", "e", "f"]]
    pairs = {"a": [1, 2, 1], "b": [2, 2, 3]}
    for features in (words, np.array(words)):
        similar = ops.ColumnSimilarity({"id": [1, 2, 3], "words": features}, metric="inner")
        workflow = Workflow([["a", "b"]] >> similar).fit(pairs)
        assert workflow.transform(pairs).collect()["a_b_sim"].to_list() == [1 + 2, 1 + 4, 0]


@pytest.mark.parametrize("turned", [False, True])
def test_one_side_may_have_any_number_of_features(turned):
    many, few = {"id": [1] * 100, "f": list(range(100))}, {"id": [7, 7, 8], "f": [3, 98, 200]}
    pairs, columns = {"many": [1, 1], "few": [7, 8]}, ["many", "few"]
    tables = (few, many) if turned else (many, few)
    similar = ops.ColumnSimilarity(*tables, metric="inner")
    workflow = Workflow([columns[::-1] if turned else columns] >> similar).fit(pairs)
    assert workflow.transform(pairs).collect().to_series().to_list() == [2, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "jaccard"}, "metric among tfidf, cosine, inner. Received: 'jaccard'"),
        ({"left_features": {"id": [1]}}, "left_features needs columns of ids.*Received: id"),
        ({"left_features": {"id": [1], "f": [None]}}, "as an integer|needs rows|Null"),
        ({"left_features": {"id": [1.5], "f": [1]}}, "every id as an integer"),
        ({"left_features": {"id": [1], "f": [1], "w": [float("inf")]}}, "finite numbers"),
        ({"left_features": {"id": ["a"], "f": [1]}}, "lookup cannot find int64"),
        ({"right_features": {"id": [1], "f": ["x"]}}, "Features on both sides need one type"),
        ({"left_features": {"id": [1] * 65, "f": list(range(65))}}, "up to 64 features.*65"),
        ({"left_features": "missing.parquet"}, "No parquet file matches"),
    ],
)
def test_similarity_settings_are_checked(settings, message):
    table = {"id": [1, 2], "f": [1, 2]}
    with pytest.raises(WorkflowError, match=message):
        Workflow([["a", "b"]] >> ops.ColumnSimilarity(**{"left_features": table, **settings})).fit(
            {"a": [1], "b": [2]}
        )


def test_similarity_takes_pairs():
    with pytest.raises(WorkflowError, match=r"takes pairs of columns.*Received: \['a'\], \['b'\]"):
        Workflow(["a", "b"] >> ops.ColumnSimilarity({"id": [1], "f": [1]})).fit(
            {"a": [1], "b": [2]}
        )
