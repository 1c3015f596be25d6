"""Steps on a constant table's values are computed once, with the same answers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.language.tree import source, where
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_series
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.program import build
from workflow.expressions.program.program_json import load_program, save_program
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

ROW = source("row", Type("int64"))
DATA = {
    "row": Column(np.array([2, -1, 0, 1, 99, 0]), np.array([True, True, True, True, True, False]))
}
NUMBERS = Column(np.array([5, 0, 7]), np.array([True, False, True]))
TEXTS = Column(Strings.of(["b", "a", "b"]))
LISTS = Column(
    Strings.of(["b", "a", "", "c"]), np.array([True, True, False, True]), np.array([3, 0, 1])
)
KEYS = Column(Strings.of(["a", "b"]))
DOUBLES = Column(np.array([10, 11, 12, 13, 14, 15]))


def program(**outputs):
    made = [
        (ColumnSchema(name, e.type.dtype, e.type.is_list, e.type.nullable), e)
        for name, e in outputs.items()
    ]
    return build(made, Schema([ColumnSchema("row", "int64")]))


def verbs(folded):
    return sorted(step.verb for step in folded.steps)


def assert_same_answers(a, b, data=DATA):
    expected, received = NumpyInterpreter(a)(data), NumpyInterpreter(b)(data)
    assert a.output_schema == b.output_schema
    for name, column in expected.items():
        other = received[name]
        valid = [
            np.ones(len(c.array), bool) if c.valid is None else c.valid for c in (column, other)
        ]
        np.testing.assert_array_equal(*valid, name)
        assert column.array[valid[0]].tolist() == other.array[valid[0]].tolist(), name
        if column.is_list:
            np.testing.assert_array_equal(column.lengths, other.lengths, name)


genres, number, text = ROW.gather(LISTS), ROW.gather(NUMBERS), ROW.gather(TEXTS)
ids = genres.lookup(KEYS, first=3, missing=2)

FOLDED = {
    "a lookup": text.lookup(KEYS),
    "ids of a list": ids.fill_null(1).cast("int32"),
    "nulls of a list": genres.is_null(),
    "a choice in a list": where(ids.is_null(), 0, ids + 1),
    "arithmetic": (number * 2 - 1).clip(0, 9).cast("float64") / 3,
    "two columns of one table": number.cast("float64") + text.lookup(KEYS),
    "strings": genres.fill_null("none"),
    "the first ids of a list": ids.fill_null(1).list_slice(0, 1) + 1,
    "hashed strings": text.hash_bucket(10),
    "a table behind a table": number.gather(DOUBLES),
    "lists behind a table": text.lookup(KEYS).gather(LISTS),
}


@pytest.mark.parametrize("case", FOLDED)
def test_table_takes_the_work(case):
    made = program(out=FOLDED[case])
    folded = fold_tables(made)
    assert fold_tables(made) is folded  # folded once
    assert verbs(folded) == ["gather", "source"]
    assert_same_answers(made, folded)


KEPT = {
    # A row that the table does not have is null, and what fills it is not in the table.
    "a filled scalar": number.fill_null(-1),
    "a null scalar": number.is_null(),
    "a decided null": (number > 5) | True,
    "the row itself": number + ROW,
    "a length": genres.list_length(),
    # A row that the table does not have is an empty list, and padding fills it.
    "a padded list": ids.list_pad(3),
    "nothing": ROW + 1,
}


@pytest.mark.parametrize("case", KEPT)
def test_what_the_table_cannot_know_stays(case):
    made = program(out=KEPT[case])
    assert verbs(fold_tables(made)) != ["gather", "source"]
    assert_same_answers(made, fold_tables(made))


def test_outputs_with_and_without_the_work_stand_side_by_side():
    made = program(
        raw=genres,
        ids=ids,
        filled=ids.fill_null(1),
        length=genres.list_length(),
        row=ROW,
        first=genres.list_slice(-1),
    )
    assert_same_answers(made, fold_tables(made))
    assert "lookup" not in verbs(fold_tables(made))


def test_a_cast_to_the_own_dtype_is_no_step():
    made = program(same=ROW.cast("int64"), narrow=ROW.cast("int64").cast("int32"))
    assert verbs(made) == ["cast", "source"]
    assert NumpyInterpreter(made)(DATA)["same"].array.tolist() == [2, -1, 0, 1, 99, 0]


def test_rows_that_a_table_has_not_are_null_whatever_the_dtype():
    table = Column(np.array([5, 6, 7]))
    for dtype, far in (("int8", -1), ("int64", -(2**63)), ("uint64", 2**64 - 1), ("uint8", 255)):
        rows = source("row", Type(dtype))
        made = [(ColumnSchema("taken", "int64"), rows.gather(table))]
        run = NumpyInterpreter(build(made, Schema([ColumnSchema("row", dtype)])))
        taken = run({"row": Column(np.array([2, far, 3, 0], dtype))})["taken"]
        assert np.where(taken.valid, taken.array, -1).tolist() == [7, -1, -1, 5]


@pytest.mark.parametrize("start", [0, 1, -1])
def test_a_slice_of_lists_whose_elements_are_joined_is_no_slice_of_the_table(start):
    rows = source("rows", Type("int64", is_list=True)).gather(NUMBERS)
    outputs = [
        (ColumnSchema("sliced", "int64", is_list=True), rows.list_slice(start)),
        (ColumnSchema("more", "int64", is_list=True), (rows + 1).list_slice(start) * 2),
    ]
    made = build(outputs, Schema([ColumnSchema("rows", "int64", is_list=True)]))
    data = {"rows": Column(np.array([2, 0, 9, 1]), None, np.array([3, 0, 1]))}
    assert_same_answers(made, fold_tables(made), data)


MET = {
    "lists of the table": lambda beside: beside + ids,
    "what is made of them": lambda beside: where(ids.is_null(), beside, ids * 2),
    "a part of them": lambda beside: (
        (ids + 1).list_slice(1) * beside - ids.list_slice(1).list_length()
    ),
    "a value of the table": lambda _: number.repeat_as(genres) + ids,
    "elements that are looked up": lambda beside: ROWS.gather(NUMBERS) * 2 - beside,
}
ROWS = source("rows", Type("int64", is_list=True))


@pytest.mark.parametrize("case", MET)
def test_a_column_beside_lists_of_a_table_meets_elements_of_one_list(case, tmp_path):
    made = MET[case](ROW * 3)
    inputs = Schema([ColumnSchema("row", "int64"), ColumnSchema("rows", "int64", is_list=True)])
    column = ColumnSchema("out", made.type.dtype, made.type.is_list, made.type.nullable)
    whole = build([(column, made)], inputs)
    folded = fold_tables(whole)
    assert fold_tables(folded).steps == folded.steps
    data = {**DATA, "rows": Column(np.array([2, 0, 9, 1]), None, np.array([3, 0, 1, 0, 0, 0]))}
    data = {name: data[name] for name in whole.inputs}
    assert_same_answers(whole, folded, data)
    save_program(folded, tmp_path)  # a reader checks which lists the elements belong to
    assert_same_answers(whole, load_program(tmp_path), data)
    frame = pl.LazyFrame([to_series(column, name) for name, column in data.items()])
    expected = to_series(NumpyInterpreter(whole)(data)["out"], "out")
    assert apply(frame, folded).collect()["out"].to_list() == expected.to_list()
