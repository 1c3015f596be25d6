"""A fitted workflow's tables are prepared once, not for each call."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops
from workflow.expressions.cudf import verbs as cudf_verbs
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU
from workflow.expressions.polars import tables as polars_tables
from workflow.expressions.polars.stages import compile_stages, run_stages
from workflow.expressions.tables import lookup
from workflow.schema.column import Column

KEYS = 5_000
VALUES = {
    "texts": [f"value {n}" for n in range(KEYS)],
    "far apart": (np.arange(KEYS) * 1_000_003).tolist(),
    "side by side": list(range(KEYS)),
}
# What takes time for each entry of a table.
MAKERS = (
    (polars_tables, "cuckoo_table"),
    (lookup, "cuckoo_table"),
    (lookup, "direct_table"),
    (polars_tables, "to_series"),
    (cudf_verbs, "to_series"),
    (cudf_verbs, "as_int64"),
)


def size(table) -> int:
    """The entries of a table."""
    return table.rows if isinstance(table, Column) else len(table)


@pytest.fixture
def made(monkeypatch):
    """The preparations of whole tables, as they happen."""
    calls: list[str] = []

    def counted(name, make):
        def call(table, *arguments, **settings):
            if size(table) >= KEYS:
                calls.append(name)
            return make(table, *arguments, **settings)

        return call

    for module, name in MAKERS:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return calls


def of_values(kind: str) -> tuple[Workflow, pl.DataFrame]:
    data = pl.DataFrame({"a": VALUES[kind]})
    return Workflow(["a"] >> ops.Categorify()).fit(data), data


def joined() -> tuple[Workflow, pl.DataFrame]:
    """A table of strings that are handed on, beside ids that are folded into a table."""
    table = pl.DataFrame({"movie": range(KEYS), "title": VALUES["texts"]})
    movies = ["movie"] >> ops.JoinExternal(table, on="movie")
    ids = movies["title"] >> ops.Categorify() >> ops.Rename(postfix="_id")
    data = table.select("movie")
    return Workflow(movies["title"] + ids).fit(data), data


CASES = {
    **{kind: (lambda kind=kind: of_values(kind)) for kind in VALUES},
    "joined": joined,
}


@pytest.mark.parametrize("case", CASES)
def test_a_second_call_makes_nothing(case, made, tmp_path):
    workflow, data = CASES[case]()
    first = workflow.transform(data[:1]).collect()
    workflow.transform_to_parquet(data[:1], tmp_path / "first")
    assert made
    made.clear()
    assert workflow.transform(data[:1]).collect().equals(first)
    assert workflow.transform(data[:1].lazy()).collect(engine="streaming").equals(first)
    files = workflow.transform_to_parquet(data, tmp_path / "second")
    assert pl.read_parquet(files).equals(workflow.transform(data).collect())
    assert made == []


@pytest.mark.parametrize("case", CASES)
def test_a_second_query_for_the_gpu_makes_nothing(case, made):
    workflow, data = CASES[case]()
    stages = [compile_stages(workflow.program, VERBS_ON_GPU) for _ in range(2)]
    assert made
    made.clear()
    stages.append(compile_stages(workflow.program, VERBS_ON_GPU))
    assert made == []
    want = workflow.transform(data).collect()
    assert all(run_stages(data.lazy(), each).collect().equals(want) for each in stages)


def test_tables_are_made_once_though_dtypes_are_assigned(made):
    workflow, data = of_values("texts")
    workflow.transform(data).collect()
    made.clear()
    workflow.output_dtypes["a"] = "int32"
    assert workflow.transform(data).collect().schema["a"] == pl.Int32
    assert made == []


def test_eight_threads_make_a_table_once(made):
    workflow, data = of_values("texts")
    want = list(range(3, KEYS + 3))
    _ = workflow.program
    made.clear()
    together = Barrier(8)

    def transform(_):
        together.wait()
        return sorted(workflow.transform(data).collect()["a"].to_list())

    with ThreadPoolExecutor(8) as pool:
        assert all(answer == want for answer in pool.map(transform, range(8)))
    assert made.count("cuckoo_table") == 1


@pytest.mark.parametrize(
    "operator",
    [ops.DifferenceLag("b"), ops.Filter(lambda rows: rows["a"] > 1)],
    ids=["window", "filter"],
)
def test_operators_over_several_rows_make_a_table_once(operator, made):
    data = pl.DataFrame({"a": VALUES["texts"], "b": ["x", "y"] * (KEYS // 2)})
    workflow = Workflow(["a"] >> ops.Categorify() >> operator).fit(data)
    first = workflow.transform(data).collect()
    assert "cuckoo_table" in made
    made.clear()
    assert workflow.transform(data).collect().equals(first)
    assert made == []


def test_what_was_learnt_anew_is_looked_up_anew():
    workflow, data = of_values("texts")
    assert workflow.transform(data[:1]).collect()["a"].to_list() != [2]
    workflow.fit({"a": ["other"]})
    assert workflow.transform({"a": ["other", "value 0"]}).collect()["a"].to_list() == [3, 2]


def test_a_loaded_workflow_makes_its_own(made, tmp_path):
    workflow, data = of_values("far apart")
    want = workflow.transform(data).collect()
    workflow.save(tmp_path / "workflow")
    made.clear()
    loaded = Workflow.load(tmp_path / "workflow")
    assert loaded.transform(data).collect().equals(want)
    assert made.count("cuckoo_table") == 1
    assert loaded.transform(data).collect().equals(want)
    assert made.count("cuckoo_table") == 1


def test_tables_go_with_what_was_learnt():
    workflow, data = of_values("texts")
    workflow.transform(data).collect()
    (keys,) = tables_of(workflow)
    hashed = weakref.ref(keys.derived("hashed", dict))
    assert hashed().keys.len() == KEYS
    del keys
    workflow.fit({"a": ["other"]})
    gc.collect()
    assert hashed() is None


def pickled(value):
    """A copy as Dask sends it to its workers."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_is_without_them(copied):
    workflow, data = of_values("texts")
    (keys,) = tables_of(workflow)
    alone = len(pickle.dumps(keys))
    want = workflow.transform(data).collect()
    assert len(pickle.dumps(keys)) == alone
    assert vars(copied(keys)).keys() == {"values", "valid", "lengths"}
    program = copied(workflow.program)
    assert run_stages(data.lazy(), compile_stages(program)).collect().equals(want)


def test_they_are_not_saved(tmp_path):
    workflow, data = of_values("texts")
    workflow.save(tmp_path / "before")
    workflow.transform(data).collect()
    workflow.save(tmp_path / "after")
    names = [path.name for path in sorted((tmp_path / "before").iterdir())]
    assert names == [path.name for path in sorted((tmp_path / "after").iterdir())]
    assert all(
        (tmp_path / "before" / n).read_bytes() == (tmp_path / "after" / n).read_bytes()
        for n in names
    )


def tables_of(workflow: Workflow) -> list[Column]:
    steps = workflow.program.steps
    return [p for step in steps for p in step.parameters.values() if isinstance(p, Column)]
