"""Lists of a joined table are counted by their rows there: the same as joined first, then counted."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.polars.series import to_column
from workflow.expressions.program.count_by_table_row import cut_lists
from workflow.expressions.program.program import build
from workflow.fit.learning_input import read
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

MOVIES = {
    "movie": [1, 2, 3, 4, 5],
    "genres": [["b", "a"], ["a", None, "a"], [], None, ["c", "b"]],
}
RATINGS = {"movie": [2, 2, 1, 99, None, 3, 4, 2]}

KEYS = st.integers(-3, 8)
ELEMENTS = {
    pl.String: st.sampled_from(["", "a", "b", "é", "\0"]),
    pl.Int64: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pl.UInt8: st.integers(0, 3),
    pl.Boolean: st.booleans(),
}
CHAINS = {
    "joined": lambda genres: genres,
    "first": lambda genres: genres >> ops.ListSlice(1),
    "last two": lambda genres: genres >> ops.ListSlice(-2),
    "null replaced": lambda genres: genres >> ops.ListSlice(3) >> ops.HashBucket(3),
    "renamed": lambda genres: genres >> ops.Rename(name="tags") >> ops.ListSlice(0, 3),
}
LEARNERS = [
    ops.Categorify(),
    ops.Categorify(freq_threshold=2, num_buckets=2),
    ops.Categorify(max_size=5),
    ops.Categorify(split_out=2),
    ops.DataStats(),
]


@st.composite
def tables(draw):
    """Movies and ratings: keys that are missing, null or rated often; lists null, empty, with nulls."""
    dtype = draw(st.sampled_from([*ELEMENTS]))
    movies = draw(st.lists(KEYS, unique=True, max_size=6))
    row = st.none() | st.lists(st.none() | ELEMENTS[dtype], max_size=4)
    genres = draw(st.lists(row, min_size=len(movies), max_size=len(movies)))
    schema = {"movie": pl.Int64, "genres": pl.List(dtype)}
    rated = draw(st.lists(st.none() | KEYS, min_size=1, max_size=30))
    return (
        pl.DataFrame({"movie": movies, "genres": genres}, schema=schema),
        pl.DataFrame({"movie": rated}, schema={"movie": pl.Int64}),
    )


def joined(movies):
    return (["movie"] >> ops.JoinExternal(movies, on="movie"))["genres"]


def state(workflow: Workflow) -> dict[str, list[object]]:
    """The state of the last operator, as values."""
    last = workflow.states[max(workflow.states)]
    return {
        name: column.values.to_objects().tolist()
        if isinstance(column.values, Strings)
        else column.array.tolist()
        for name, column in last.items()
    }


@given(tables(), st.sampled_from([*CHAINS.values()]), st.sampled_from(LEARNERS))
@settings(max_examples=100)
def test_what_is_learnt_through_a_join_is_what_is_learnt_of_joined_rows(made, chain, learn):
    movies, ratings = made
    lists = Workflow(chain(joined(movies))).fit(ratings).transform(ratings).collect()
    through = Workflow(chain(joined(movies)) >> learn).fit(ratings)
    assert state(through) == state(Workflow(lists.columns >> learn).fit(lists))


def test_a_given_vocabulary_is_not_counted_through_a_join():
    given = ops.Categorify(vocabs={"genres": ["c", "a"]})
    ids = Workflow(joined(MOVIES) >> given).fit(RATINGS).transform({"movie": [1, 2, 5, 4]})
    assert ids.collect()["genres"].to_list() == [[2, 4], [4, 1, 4], [3, 2], []]


def read_by(workflow: Workflow) -> dict[str, str]:
    """The columns that the last operator of a fitted workflow reads while it learns."""
    node = workflow.nodes[-1]
    program = read(node.bind([workflow.made[parent] for parent in node.parents])).program
    return {column.name: str(column) for column, _ in program.outputs}


@pytest.mark.parametrize("learn", [ops.Categorify(), ops.DataStats()])
def test_no_list_is_made_of_a_rating(learn):
    workflow = Workflow(CHAINS["renamed"](joined(MOVIES)) >> learn).fit(RATINGS)
    assert read_by(workflow) == {"tags": "int64?"}


def test_a_table_that_is_too_long_to_gain_by_it_is_read_by_its_lists(monkeypatch):
    ids = joined(MOVIES) >> ops.Categorify()
    short = Workflow(ids).fit(RATINGS)
    monkeypatch.setattr("workflow.expressions.program.count_by_table_row.MOST_KEYS", 4)
    long = Workflow(ids).fit(RATINGS)
    assert read_by(long) == {"genres": "list[string]?"}
    assert state(long) == state(short)


def test_lists_of_the_rows_themselves_are_read_as_they_are():
    rows = RATINGS | {"own": [["a"]] * 8}
    lists = (["movie", "own"] >> ops.JoinExternal(MOVIES, on="movie"))[["own", "genres"]]
    workflow = Workflow(lists >> ops.Categorify()).fit(rows)
    assert read_by(workflow) == {"own": "list[string]?", "genres": "int64?"}


def test_a_vocabulary_that_joined_and_own_values_share_counts_both():
    rows = RATINGS | {"favourite": ["a"] * 8}
    columns = ["movie", "favourite"] >> ops.JoinExternal(MOVIES, on="movie")
    ids = columns[[["favourite", "genres"]]] >> ops.Categorify()
    workflow = Workflow(ids).fit(rows)
    assert state(workflow) == {"learnt.favourite_genres": ["a", "b"]}


def test_padding_of_rows_without_a_movie_counts():
    movies = {"movie": [1, 2], "codes": [[5], [7, 7]]}
    lists = (["movie"] >> ops.JoinExternal(movies, on="movie"))["codes"]
    padded = lists >> ops.ListSlice(0, 3, pad=True)
    rows = {"movie": [None, 99, 1, 2, 2]}
    stats = ops.DataStats.read(Workflow(padded >> ops.DataStats()).fit(rows))["codes"]
    assert (stats.mean, stats.cardinality) == (pytest.approx((5 + 4 * 7) / 15), 3)
    # Zero is there three times for each row without a movie, twice for one and once for two.
    often = Workflow(padded >> ops.Categorify(freq_threshold=10)).fit(rows)
    assert state(often) == {"learnt.codes": [0]}


def test_a_program_is_cut_only_where_all_data_comes_through():
    codes = Column(np.array([10, 20]))
    lists = to_column(pl.Series([["a"], [], ["b"], ["a", "b"]]), compact_strings=True)
    one, two = source("one", Type("int64")), source("two", Type("int64"))
    pair = one.lookup(codes) * 2 + two.lookup(codes)
    outputs = {
        "of both": pair.gather(lists),
        "of a pair": pair.lookup(Column(np.arange(4))).gather(lists),
        "of one": one.lookup(codes).gather(lists),
    }
    columns = [ColumnSchema(name, "string", is_list=True) for name in outputs]
    sources = Schema([ColumnSchema("one", "int64"), ColumnSchema("two", "int64")])
    cuts = cut_lists(build(zip(columns, outputs.values(), strict=True), sources))
    assert list(cuts) == ["of a pair", "of one"]
    assert cuts["of a pair"].step > cuts["of one"].step


@pytest.mark.parametrize("files", [1, 3])
def test_parts_of_files_add_up(files, tmp_path, monkeypatch):
    monkeypatch.setattr("workflow.fit.fit_graph.ROWS_OF_A_PASS", 2)
    monkeypatch.setattr("workflow.fit.learn_operators.FAN_IN", 2)
    ratings = pl.DataFrame(RATINGS)
    for number in range(files):
        part = ratings[number::files]
        part.write_parquet(tmp_path / f"{number}.parquet", row_group_size=2)
    ids = joined(MOVIES) >> ops.Categorify()
    assert state(Workflow(ids).fit(tmp_path)) == {"learnt.genres": ["a", "b"]}
    assert state(Workflow(ids).fit(ratings)) == {"learnt.genres": ["a", "b"]}


def test_a_list_that_cannot_be_counted_is_refused_by_what_it_is():
    movies = {"movie": [1], "scores": [[0.5, 1.5]]}
    scores = (["movie"] >> ops.JoinExternal(movies, on="movie"))["scores"]
    with pytest.raises(WorkflowError, match=r"'scores', list\[float64\]"):
        Workflow(scores >> ops.Categorify()).fit({"movie": [1]})
