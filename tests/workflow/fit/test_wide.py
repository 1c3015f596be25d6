"""Data of very many columns: learnt as of few, from a graph that does not grow with their square."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from python_calls import MOST_GROWTH, growth

from workflow import Workflow, ops
from workflow.fit import fit_graph, learn_operators
from workflow.fit.held_rows import HeldRows
from workflow.graph.node import ConcatNode, Node, as_node
from workflow.ops._vocabulary.counts import SMALL, chosen

# The rows of these tests are wide with more columns than this: 200 take four times as long.
WIDE = 40
NAMES = [*(f"c{n}" for n in range(WIDE + 19)), ""]
ROWS = 1_000


each_operator = pytest.mark.parametrize(
    "operator",
    [
        ops.Categorify(),
        pytest.param(ops.Normalize(), marks=pytest.mark.long),
        pytest.param(ops.FillMedian(), marks=pytest.mark.long),
    ],
    ids=str,
)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    for module in (fit_graph, learn_operators):
        monkeypatch.setattr(module, "WIDE", WIDE)
    random = np.random.default_rng(0)
    return pl.DataFrame({name: random.integers(0, 9, ROWS) for name in NAMES})


def outputs(workflow: Workflow, rows: pl.DataFrame) -> pl.DataFrame:
    return workflow.transform(rows[:50]).collect()


@each_operator
def test_what_is_learnt_of_many_columns_is_what_is_learnt_of_each(
    operator, rows, tmp_path, monkeypatch
):
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    monkeypatch.setattr(
        fit_graph, "VALUES_OF_A_WIDE_PASS", 300 * len(NAMES)
    )  # several passes of it
    few = [*NAMES[:2], NAMES[-1]]
    want = outputs(Workflow(few >> operator).fit(rows.select(few)), rows)
    for data in (rows, rows.lazy(), tmp_path / "rows.parquet"):
        assert (
            outputs(Workflow(NAMES >> operator).fit(data), rows).select(want.columns).equals(want)
        )


def test_a_sum_of_many_nodes_is_one_node():
    node = as_node("c0")
    for name in NAMES[1:]:
        node = node + ([name] >> ops.FillMissing())
    assert isinstance(node, ConcatNode)
    assert len(node.parents) == len(NAMES)
    assert len(Workflow(node + node).nodes) == 2 * len(NAMES)


def test_a_sum_of_sums_has_each_node_once_in_the_order_of_writing():
    a, b, c = (["c0"] >> ops.FillMissing(), as_node("c1"), ["c2"] >> ops.FillMissing())
    left = a + b
    total = left + (b + ConcatNode(c, a))
    for _ in range(60):
        total = total + total  # two to the sixtieth paths
    assert total.parents == (a, b, c)
    assert left.parents == (a, b)
    assert (c + total + left).parents == (c, a, b)


def test_a_sum_written_in_a_loop_grows_as_its_nodes_do():
    def work_of(count: int) -> Callable[[], Any]:
        nodes = [as_node(f"c{n}") for n in range(count)]

        def work() -> None:
            total = nodes[0]
            for node in nodes[1:]:
                total = total + node
            assert total.parents == tuple(nodes)

        return work

    assert growth(work_of) <= MOST_GROWTH


def test_a_sum_that_is_part_of_others_stays_as_it_is(rows):
    first = as_node("c0") + "c1"
    second = first + "c2"
    assert Workflow(first).fit(rows).output_schema.names == ["c0", "c1"]
    assert Workflow("c3" + second).fit(rows).output_schema.names == ["c3", "c0", "c1", "c2"]


def sums(operator: ops.Categorify | ops.Normalize) -> ConcatNode:
    """A node of its own for each column."""
    return ConcatNode(*([name] >> operator for name in NAMES))


@each_operator
def test_what_is_learnt_by_many_nodes_is_what_is_learnt_by_one(
    operator, rows, tmp_path, monkeypatch
):
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    monkeypatch.setattr(fit_graph, "VALUES_OF_A_WIDE_PASS", 300 * len(NAMES))
    want = outputs(Workflow(NAMES >> operator).fit(rows), rows)
    for data in (rows, rows.lazy(), tmp_path / "rows.parquet"):
        assert outputs(Workflow(sums(operator)).fit(data), rows).equals(want)


def test_a_joined_column_is_learnt_from_among_many_nodes(rows):
    joined = ["c0"] >> ops.JoinExternal({"c0": list(range(9)), "name": list("abcdefghi")}, on="c0")
    names = joined["name"] >> ops.Categorify()
    made = Workflow(names + sums(ops.Categorify())).fit(rows)
    want = Workflow(names).fit(rows)
    assert outputs(made, rows)["name"].equals(outputs(want, rows)["name"])


def frames_planned_over(monkeypatch, workflow: Workflow, data: object) -> list[int]:
    """The widths of the frames that the queries of a fit are over."""
    widths: list[int] = []

    def collect_all(queries: list[pl.LazyFrame], engine: str) -> list[pl.DataFrame]:
        plans = (query.explain(optimized=False) for query in queries)
        found = [re.findall(r"PROJECT \S+/(\d+) COLUMNS", plan) for plan in plans]
        widths.extend(max(map(int, own)) for own in found)
        return engine_collect_all(queries, engine)

    engine_collect_all = learn_operators.collect_all
    monkeypatch.setattr(learn_operators, "collect_all", collect_all)
    workflow.fit(data)
    return widths


def data_in(form: str, rows: pl.DataFrame, folder: Path) -> Any:
    if form == "files":
        rows.write_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    return rows if form == "memory" else rows.lazy()


@pytest.mark.parametrize("form", ["memory", "files", "query"])
def test_the_queries_of_a_node_are_over_its_own_columns(form, rows, tmp_path, monkeypatch):
    """To plan one takes Polars as long as its frame is wide: 2,000 nodes would take the square."""
    widths = frames_planned_over(
        monkeypatch, Workflow(sums(ops.Categorify())), data_in(form, rows, tmp_path)
    )
    assert widths == [1] * len(NAMES)


@pytest.mark.parametrize(
    ("operator", "width"),
    [
        (ops.Categorify(), 1),
        (ops.Normalize(), 1),
        (ops.NormalizeMinMax(), 1),
        (ops.FillMedian(), 1),
        (ops.DataStats(), 1),
        (ops.ReduceDtypeSize(), 1),
        (ops.TargetEncoding("c0"), 2),
        (ops.JoinGroupby(["c0"]), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["memory", "files", "query"])
def test_the_queries_of_a_wide_operator_are_over_few_columns(
    operator, width, form, rows, tmp_path, monkeypatch
):
    """Planning once took half of the time of an operator over 4,000 columns."""
    widths = frames_planned_over(
        monkeypatch, Workflow(NAMES[1:] >> operator), data_in(form, rows, tmp_path)
    )
    assert widths == [width] * len(NAMES[1:])


HELD = pl.DataFrame({"a": [1, 2, None], "b": [0.5, 1.5, 2.5], "c": [[1], [], [2, 3]]})


@pytest.mark.parametrize(
    "selected",
    [
        ["a"],
        [pl.col("a") * 2, "b"],
        [pl.all()],
        [pl.exclude("c")],
        [pl.selectors.numeric()],
        [pl.col("^[ab]$")],
        [pl.col("a", "b").sum()],
        [["a", "b"]],
        [pl.len()],
        [pl.lit(3), pl.col("a")],
        [],
    ],
    ids=range(11),
)
def test_rows_held_in_memory_are_selected_from_as_any_frame_is(selected):
    held, plain = HeldRows(HELD), HELD.lazy()
    assert_frame_equal(held.select(*selected), plain.select(*selected))
    assert_frame_equal(held.select(*selected, n=pl.len()), plain.select(*selected, n=pl.len()))
    later = pl.col("b") > 1
    assert_frame_equal(held.filter(later).select("a"), plain.filter(later).select("a"))


@pytest.mark.parametrize("form", ["memory", "files", "query"])
def test_the_columns_of_a_wide_operator_are_computed_once(form, rows, tmp_path, monkeypatch):
    """Each query would plan all of them: of two nodes over half of the columns each, the square."""
    plans: list[str] = []

    def collect_all(queries: list[pl.LazyFrame], engine: str) -> list[pl.DataFrame]:
        plans.extend(query.explain(optimized=False) for query in queries)
        return engine_collect_all(queries, engine)

    engine_collect_all = learn_operators.collect_all
    monkeypatch.setattr(learn_operators, "collect_all", collect_all)
    halves = ConcatNode(*(NAMES[n::2] >> ops.FillMissing() >> ops.Normalize() for n in (0, 1)))
    Workflow(halves).fit(data_in(form, rows, tmp_path))
    assert plans
    assert not any("fill_null" in plan for plan in plans)


def queries_run(monkeypatch, work: Callable[[], object]) -> int:
    count = 0

    def collect(*args: Any, **settings: Any) -> pl.DataFrame:
        nonlocal count
        count += 1
        return polars_collect(*args, **settings)

    polars_collect = pl.LazyFrame.collect
    with monkeypatch.context() as patch:
        patch.setattr(pl.LazyFrame, "collect", collect)
        work()
    return count


@pytest.mark.parametrize(("keys", "most"), [([5, 7, None, 2], 0), (["5", "7", None, "2"], 1)])
def test_a_small_vocabulary_is_put_in_order_by_one_query_at_most(keys, most, monkeypatch):
    table = pl.DataFrame({"key0": keys, "count": [3, 9, 4, 3]})
    made = []
    assert queries_run(monkeypatch, lambda: made.append(chosen(table, 1, None))) <= most
    assert made[0]["key0"].to_list() == [keys[1], keys[3], keys[0]]


@pytest.mark.parametrize("values", [SMALL, SMALL + 1], ids=["small", "large"])
def test_vocabularies_of_both_sizes_are_in_the_order_of_their_counts(values):
    random = np.random.default_rng(0)
    keys = random.permutation(values - 1).tolist()
    counts = random.integers(1, 20, values - 1).tolist()
    table = pl.DataFrame({"key0": [*keys, None], "count": [*counts, 3]})
    pairs = sorted(zip(counts, keys, strict=True), key=lambda pair: (-pair[0], pair[1]))
    want = [key for count, key in pairs if count >= 2]
    assert chosen(table, 2, None)["key0"].to_list() == want
    assert chosen(table, 2, 100)["key0"].to_list() == want[:100]


def wide(columns: int) -> pl.DataFrame:
    return pl.DataFrame({f"c{n}": [n, 7, None, 7] for n in range(columns)})


def one_node(columns: int) -> Node:
    names = [f"c{n}" for n in range(columns)]
    return (names[::2] >> ops.Categorify()) + (names[1::2] >> ops.FillMissing() >> ops.Normalize())


def node_each(columns: int) -> Node:
    numbers = [[f"c{n}"] >> ops.FillMissing() >> ops.Normalize() for n in range(1, columns, 2)]
    return ConcatNode(*([f"c{n}"] >> ops.Categorify() for n in range(0, columns, 2)), *numbers)


QUICK = ["fit", "transform", "save"]
OTHERS = ["transform_to_parquet", "load", "remove_inputs", "show"]


@pytest.mark.parametrize(
    ("verb", "graph"),
    [
        *((verb, node_each) for verb in QUICK),
        *(pytest.param(verb, node_each, marks=pytest.mark.long) for verb in OTHERS),
        *((verb, one_node) for verb in QUICK[:1]),
        *(pytest.param(verb, one_node, marks=pytest.mark.long) for verb in QUICK[1:] + OTHERS),
    ],
)
def test_work_grows_as_columns_and_nodes_do(verb, graph, tmp_path):
    def work_of(columns: int) -> Callable[[], Any]:
        rows, workflow = wide(columns), Workflow(graph(columns))
        if verb == "fit":
            return lambda: workflow.fit(rows)
        workflow.fit(rows)
        if verb == "load":
            workflow.save(tmp_path / f"{columns}")
        return {
            "transform": lambda: workflow.transform(rows).collect(),
            "transform_to_parquet": lambda: workflow.transform_to_parquet(
                rows, tmp_path / f"made{columns}{len(list(tmp_path.iterdir()))}"
            ),
            "save": lambda: workflow.save(tmp_path / f"saved{columns}"),
            "load": lambda: Workflow.load(tmp_path / f"{columns}").output_schema,
            "remove_inputs": lambda: workflow.remove_inputs("c0"),
            "show": lambda: str(workflow),
        }[verb]

    assert growth(work_of) <= MOST_GROWTH
