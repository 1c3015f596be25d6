"""The Polars interpreter for programs with steps that cuDF's engine cannot run.

The stages are those of `polars/stages.py`: verbs over the elements of lists become a program over
rows of elements, which runs on the engine; the lists stay on the GPU. A step that makes other
lists, or numbers of lists, runs as its ordinary expression in the host's memory, between two
queries; so do the hashes of strings and the fingerprints, for the distinct ones. The rows of these
verbs say that they leave the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from threading import Lock

import polars as pl

from workflow.expressions.polars.interpreter import VERBS, expressions, source_expression
from workflow.expressions.polars.series import polars_dtype
from workflow.expressions.polars.stages import (
    ELEMENT,
    QueryStage,
    Stages,
    compile_stages,
    run_stages,
    stages,
)
from workflow.expressions.program.count_by_table_row import part
from workflow.expressions.program.program import Program
from workflow.expressions.program.roots import is_element, roots_of
from workflow.schema.schema import ColumnSchema

from .exceptions import VERBS_ON_GPU, hashes_on_host, is_one_query
from .rows_on_gpu import Gpu, PreparedQuery, RowsOnGpu
from .verbs import find, sort_tables

Run = Callable[[pl.LazyFrame, Gpu], RowsOnGpu]


def host_and_engine(program: Program, made_before: Collection[str] = ()) -> Run:
    """A function that computes a program's outputs on the engine, except for steps on the host.

    Args:
        program: the program to run on each row.
        made_before: the inputs that are not data, as in `expressions`.

    Returns:
        It takes the program's inputs, which fit into memory, and the GPU; it only reads lists.
    """
    sort_tables(program)
    if is_one_query(program):
        stages_of_query = compile_stages(program, VERBS_ON_GPU, made_before)
        return _OneQuery(program.inputs.names, stages_of_query)
    earlier_columns = set(made_before)
    actions: list[Callable[[_Columns], None]] = []
    *before, last = stages(program, VERBS_ON_GPU, _around_the_host(program))
    for stage in before:
        if stage.elements_of is None:
            actions += _of_rows(stage.program, earlier_columns)
        else:
            actions.append(_of_elements(stage, stage.elements_of))
        earlier_columns |= set(stage.program.output_schema)
    outputs = expressions(last.program, VERBS_ON_GPU, earlier_columns)

    def run(data: pl.LazyFrame, gpu: Gpu) -> RowsOnGpu:
        columns = _Columns(data, gpu)
        for action in actions:
            action(columns)
        return columns.select(outputs)

    return run


class _OneQuery:
    """A program that is one query, which is prepared once: rows are read before they are computed with.

    Args:
        names: the program's inputs.
        of_query: its stages.
    """

    def __init__(self, names: Sequence[str], of_query: Stages) -> None:
        self._names = names
        self._query = partial(run_stages, stages=of_query)
        self._prepared: dict[Hashable, PreparedQuery] = {}
        self._lock = Lock()

    def __call__(self, data: pl.LazyFrame, gpu: Gpu) -> RowsOnGpu:
        if not self._names:  # without a column nothing would tell how many rows there are
            return gpu.hold(self._query(data))
        rows = gpu.hold(data.select(self._names))
        types = tuple(rows.schema.items())
        with self._lock:
            if types not in self._prepared:
                self._prepared[types] = gpu.prepare(self._query, rows.schema)
        return self._prepared[types].run(rows)


def _around_the_host(program: Program) -> set[int]:
    """The steps that run on the host, and the steps whose results they take from the engine."""
    roots = roots_of(program)
    numbers = set()
    for number, step in enumerate(program.steps):
        if (
            roots[number] is not None
            and not is_element(number, roots)
            and _on_host(program, number)
        ):
            numbers |= {number, *(o for o in step.operands if roots[o] is not None)}
    return {n for n in numbers if not is_element(n, roots)}


def _on_host(program: Program, number: int) -> bool:
    step = program.steps[number]
    lists = step.type.is_list or any(program.steps[o].type.is_list for o in step.operands)
    return lists or hashes_on_host(program, step)


class _Columns:
    """The columns of a run: lazy expressions for the engine, and lists that are there already."""

    def __init__(self, data: pl.LazyFrame, gpu: Gpu) -> None:
        self.rows, self.gpu = data, gpu
        self.lists: dict[str, RowsOnGpu] = {}

    def select(self, columns: Sequence[pl.Expr]) -> RowsOnGpu:
        """Some columns: computed by a query, or lists."""
        lists = {c.meta.output_name(): self._list(c) for c in columns}
        parts = {name: of for name, of in lists.items() if of is not None}
        if scalar_columns := [c for c in columns if lists[c.meta.output_name()] is None]:
            names = [column.meta.output_name() for column in scalar_columns]
            # A constant has the length of the rows beside it.
            parts |= self.gpu.hold(self.rows.with_columns(scalar_columns).select(names)).columns()
        return self.gpu.together({name: parts[name] for name in lists})

    def _list(self, column: pl.Expr) -> RowsOnGpu | None:
        names = column.meta.root_names()
        return self.lists.get(names[0]) if names else None

    def add(self, frame: pl.DataFrame) -> None:
        """Add columns that were computed in the host's memory."""
        lists = [c.name for c in frame if isinstance(c.dtype, pl.List)]
        if lists:
            self.lists |= self.gpu.send(frame.select(lists)).columns()
        if len(lists) < frame.width:
            self.rows = self.rows.with_columns(frame.drop(lists).get_columns())


def _of_rows(program: Program, made_before: Collection[str]) -> list[Callable[[_Columns], None]]:
    """A stage over rows: columns that the engine adds, and columns that the host computes."""
    host = [output for output in program.outputs if _on_host(program, output[1])]
    engine = [output for output in program.outputs if output not in host]
    actions: list[Callable[[_Columns], None]] = []
    if engine:
        added = expressions(part(program, engine, {}), VERBS_ON_GPU, made_before)
        actions.append(lambda columns: _add_lazily(columns, added))
    for column, number in host:
        step = program.steps[number]
        if step.verb == "source":
            actions.append(_read(column.name, program.inputs[step.parameters["name"]]))
            continue
        if hashes_on_host(program, step):
            values = program.steps[step.operands[0]]
            hashed = VERBS[step.verb](step, [values.type], [pl.col(ELEMENT)])
            actions.append(_hash(values.parameters["name"], hashed, column.name))
        else:
            host_part = part(program, [(column, number)], {})
            actions.append(_on_the_host(host_part, expressions(host_part, VERBS, made_before)))
    return actions


def _read(name: str, source: ColumnSchema) -> Callable[[_Columns], None]:
    """Lists of the data, whose elements become as the program takes them."""
    as_taken = source_expression(source.with_(name=ELEMENT, is_list=False))
    dtype = polars_dtype(source.dtype)

    def action(columns: _Columns) -> None:
        if source.name in columns.lists:
            columns.lists[name] = columns.lists[source.name]
            return
        lists = columns.gpu.hold(columns.rows.select(source.name)).with_empty_lists()
        elements = lists.elements(ELEMENT)
        if elements.schema[ELEMENT] != dtype or dtype.is_float():
            values = columns.gpu.hold(elements.lazy().select(as_taken))
            lists = values.in_lists(lists)
        columns.lists[name] = lists

    return action


def _add_lazily(columns: _Columns, added: Sequence[pl.Expr]) -> None:
    columns.rows = columns.rows.with_columns(added)


def _on_the_host(program: Program, outputs: Sequence[pl.Expr]) -> Callable[[_Columns], None]:
    names = [pl.col(name) for name in program.inputs]
    return lambda columns: columns.add(columns.select(names).to_host().select(outputs))


def _of_elements(stage: QueryStage, lists: str) -> Callable[[_Columns], None]:
    run = host_and_engine(stage.program, stage.program.inputs)

    def action(columns: _Columns) -> None:
        of = columns.lists[lists]
        elements = of.elements(ELEMENT)
        if stage.repeated:
            rows = columns.gpu.hold(columns.rows.select(stage.repeated))
            elements = columns.gpu.together({ELEMENT: elements} | rows.repeated(of).columns())
        made = run(elements.lazy(), columns.gpu)
        columns.lists |= made.in_lists(of).columns()

    return action


def _hash(values: str, hashed: pl.Expr, name: str) -> Callable[[_Columns], None]:
    """Hash the distinct values of a column, and look up the hash of each row.

    Args:
        values: the column.
        hashed: the hash of the column `ELEMENT`.
        name: the new column.
    """

    def action(columns: _Columns) -> None:
        value = pl.col(values)
        unique_rows = columns.gpu.hold(columns.rows.select(value).unique())
        distinct = unique_rows.to_host()[values].drop_nulls()
        hashes = distinct.alias(ELEMENT).to_frame().select(hashed).to_series()
        row_hash = pl.when(value.is_not_null()).then(find(value, distinct, hashes, 0))
        _add_lazily(columns, [row_hash.alias(name)])

    return action
