"""Every operator gives what its definition says, as plain Python and pandas work it out.

The answer to each case is in a file of the operator's name. It shares no code with the library.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from functools import cache
from importlib import import_module
from typing import Any

import polars as pl
import pytest
from reference_cases import CASES, Case, named
from tables import SHAPES, Shape, Table, drawn, dtype_name, microseconds

from workflow import Workflow, ops
from workflow.ops.data_stats import DataStats

# Floats of ours are float32, and theirs the sums of other orders.
RELATIVE, ABSOLUTE = 1e-6, 1e-7


@cache
def expected(case: Case, shape: Shape) -> tuple[Any, dict[str, Any]]:
    """The reference's state of a table, and its answers for these rows and new ones."""
    reference = import_module(case.file)
    train, new = drawn(shape)
    state = reference.fit(train, case.columns, {**case.settings, **case.plain})
    return state, reference.transform(state, new)


def fitted(case: Case, data: Any) -> Workflow:
    return Workflow(case.left >> case.made()).fit(data)


def in_memory(case: Case, train: Table, new: Table, _folder) -> pl.DataFrame:
    return fitted(case, train.rows).transform(new.rows).collect()


def saved_and_loaded(case: Case, train: Table, new: Table, folder) -> pl.DataFrame:
    fitted(case, train.rows).save(folder / "workflow")
    return Workflow.load(folder / "workflow").transform(new.rows).collect()


def from_files_to_files(case: Case, train: Table, new: Table, folder) -> pl.DataFrame:
    workflow = fitted(case, in_files(train, folder / "train"))
    data = in_files(new, folder / "new")
    files = workflow.transform_to_parquet(data, folder / "made", rows_per_file=17)
    return pl.concat([pl.read_parquet(file) for file in files])


def lazily(case: Case, train: Table, new: Table, _folder) -> pl.DataFrame:
    return fitted(case, train.rows.lazy()).transform(new.rows.lazy()).collect()


def streamed(case: Case, train: Table, new: Table, folder) -> pl.DataFrame:
    workflow = fitted(case, in_files(train, folder / "train"))
    return workflow.transform(in_files(new, folder / "new")).collect(engine="streaming")


WAYS = [saved_and_loaded, from_files_to_files, lazily, streamed]


def in_files(table: Table, folder) -> Any:
    """The table in three files of odd row groups, one of them without a row."""
    folder.mkdir()
    third = len(table) // 3
    ends = [0, third, third, len(table)]
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        part = table.rows[start:end]
        part.write_parquet(folder / f"{number}.parquet", row_group_size=(7, 1, 13)[number])
    return folder


@pytest.mark.parametrize("name", ops.__all__)
def test_every_operator_has_a_reference(name: str):
    cases = [case for case in CASES if case.operator == name]
    assert cases, (
        f"Expected a reference of {name} in tests/reference/, and a case of it in "
        "tests/reference/reference_cases.py. Received: no case. Write both."
    )


@pytest.mark.parametrize("case", CASES, ids=named(CASES))
def test_operator_gives_what_its_definition_says(case: Case):
    expect_defined(case, shapes(case))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=named(CASES))
def test_operator_gives_what_its_definition_says_for_every_other_table(case: Case):
    expect_defined(case, [shape for shape in SHAPES if shape not in shapes(case)])


def expect_defined(case: Case, shapes: list[Shape]) -> None:
    for shape in shapes:
        train, new = drawn(shape)
        workflow = fitted(case, train.rows)
        made = workflow.transform(new.rows).collect()
        expect_facts(case, workflow, shape)
        expect_same(case, made, shape)
        for column in workflow.output_schema.columns:
            assert column.nullable or made[column.name].null_count() == 0, (shape.name, column)


def number_of(case: Case) -> int:
    """The number of cases of its operator that come before it."""
    return [other for other in CASES if other.operator == case.operator].index(case)


def shapes(case: Case) -> list[Shape]:
    """Every second table for the first two cases of an operator, every fourth one for the others."""
    number = number_of(case)
    return SHAPES[number % 4 :: 4] if number > 1 else SHAPES[number::2]


def ways(case: Case) -> list[Any]:
    """Two ways for the first two cases of an operator, and one for each other."""
    number = number_of(case)
    return [WAYS[number % 4]] if number > 1 else WAYS[number::2]


EACH_WAY = [
    pytest.param(
        case,
        way,
        id=f"{name}-{way.__name__}",
        marks=() if way in ways(case) else pytest.mark.long,
    )
    for case, name in zip(CASES, named(CASES), strict=True)
    for way in WAYS
]


@pytest.mark.parametrize(("case", "way"), EACH_WAY)
def test_every_way_gives_the_same(case: Case, way, tmp_path):
    shape = SHAPES[(CASES.index(case) + 3 * WAYS.index(way)) % len(SHAPES)]
    expect_same(case, way(case, *drawn(shape), tmp_path), shape)


OUT_OF_FOLD = [case for case in CASES if case.operator == "TargetEncoding"]


@pytest.mark.parametrize("case", OUT_OF_FOLD, ids=named(OUT_OF_FOLD))
def test_training_data_is_encoded_out_of_fold(case: Case, tmp_path):
    for shape in SHAPES:
        train, _ = drawn(shape)
        answers = import_module(case.file).out_of_fold(train, case.columns, case.settings)
        workflow = Workflow(case.left >> case.made())
        compare(case, answers, workflow.fit_transform(train.rows).collect(), shape)
        data = in_files(train, tmp_path / shape.name)
        files = workflow.fit_transform_to_parquet(data, tmp_path / f"{shape.name}_made")
        compare(case, answers, pl.concat(map(pl.read_parquet, files)), shape)


def expect_same(case: Case, made: pl.DataFrame, shape: Shape) -> None:
    compare(case, expected(case, shape)[1], made, shape)


def compare(case: Case, answers: dict[str, Any], made: pl.DataFrame, shape: Shape) -> None:
    reference = import_module(case.file)
    near = {
        "rel_tol": getattr(reference, "RELATIVE", RELATIVE),
        "abs_tol": getattr(reference, "ABSOLUTE", ABSOLUTE),
        "whole": hasattr(reference, "RELATIVE"),
    }
    assert made.columns == list(answers), shape.name
    for name, (dtype, values) in answers.items():
        where = f"{shape.name}, column {name!r}"
        series = made[name]
        assert dtype in (None, dtype_name(series.dtype)), where
        assert series.len() == len(values), where
        for row, (ours, theirs) in enumerate(zip(series.to_list(), values, strict=True)):
            assert same(ours, theirs, **near), f"{where}, row {row}: {ours!r} is not {theirs!r}"


def same(ours: Any, theirs: Any, *, whole: bool = False, **near: float) -> bool:
    """Whether two values are one; of whole numbers only where `whole` says so, those near by."""
    if isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and len(ours) == len(theirs)
            and all(same(a, b, whole=whole, **near) for a, b in zip(ours, theirs, strict=True))
        )
    if isinstance(theirs, dt.date):
        theirs = microseconds(theirs)
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, float) or whole:
        return math.isclose(ours, theirs, **near) or (math.isnan(ours) and math.isnan(theirs))
    return ours == theirs


def expect_facts(case: Case, workflow: Workflow, shape: Shape) -> None:
    """Compare the schema's facts of the columns with their values."""
    reference = import_module(case.file)
    state, _ = expected(case, shape)
    if isinstance(workflow.operators[-1], DataStats):
        for name, statistics in DataStats.read(workflow).items():
            for fact, value in state[name].items():
                ours = getattr(statistics, fact)
                ours = float(ours) if isinstance(value, float) and ours is not None else ours
                # A mean is of values that may cancel each other.
                size = max(abs(state[name]["min"] or 0), abs(state[name]["max"] or 0), 1)
                near = {"rel_tol": 1e-9, "abs_tol": 1e-12 * size if math.isfinite(size) else 0.0}
                assert same(ours, value, **near), (shape.name, name, fact)
    if hasattr(reference, "facts"):
        for name, facts in reference.facts(state).items():
            properties = workflow.output_schema[name].properties
            assert facts.items() <= properties.items(), (shape.name, name)
    if case.file == "add_metadata":
        tags = [*case.settings.get("tags", []), *reference.TAGS.get(case.operator, [])]
        for column in workflow.output_schema.columns:
            assert set(tags) == set(column.tags)
            assert case.settings.get("properties", {}).items() <= column.properties.items()
