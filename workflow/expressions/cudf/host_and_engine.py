"""The Polars interpreter for programs with steps that cuDF's engine cannot run.

The stages are those of `polars/stages.py`: verbs over the elements of lists become a program over
rows of elements, which runs on the engine. A step that converts between scalars and lists, or makes
other lists, runs as its ordinary expression in memory, between two queries; so do the hashes of
strings, for the distinct ones. `exceptions.ON_HOST` lists these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import polars as pl

from workflow.expressions.language.hashing import hash_strings
from workflow.expressions.polars.interpreter import VERBS, expressions
from workflow.expressions.polars.series import list_elements, relisted, to_strings
from workflow.expressions.polars.stages import (
    ELEMENT,
    compile_stages,
    is_element,
    roots_of,
    run_stages,
    stages,
)
from workflow.expressions.program.count_by_table_row import part
from workflow.expressions.program.program import Program

from .exceptions import VERBS_ON_GPU, hashes_strings, is_one_query
from .verbs import find

Collect = Callable[[pl.LazyFrame], pl.DataFrame]
Run = Callable[[pl.LazyFrame, Collect], pl.DataFrame]


def host_and_engine(program: Program, made_before: Collection[str] = ()) -> Run:
    """A function that computes a program's outputs on the engine, except for steps on the host.

    Args:
        program: the program to run on each row.
        made_before: the inputs that are not data, as in `expressions`.

    Returns:
        It takes the program's inputs, which fit into memory, and a function that runs a query on
        the engine; it only reads lists.

    Example:
        >>> from workflow import Workflow, ops
        >>> genres = {"genres": [["a", "b"], ["a"]]}
        >>> program = Workflow(["genres"] >> ops.Categorify()).fit(genres).program
        >>> host_and_engine(program)(pl.LazyFrame(genres), pl.LazyFrame.collect)["genres"].to_list()
        [[3, 4], [3]]
    """
    if is_one_query(program):
        query = compile_stages(program, VERBS_ON_GPU, made_before)
        return lambda data, collect: collect(run_stages(data, query))
    made = set(made_before)
    actions: list[Callable[[_Columns], None]] = []
    *before, last = stages(program, VERBS_ON_GPU, _around_the_host(program))
    for stage in before:
        if stage.elements_of is None:
            actions += _of_rows(stage.program, made)
        else:
            actions.append(_of_elements(stage.program, stage.elements_of))
        made |= set(stage.program.output_schema)
    outputs = expressions(last.program, VERBS_ON_GPU, made)

    def run(data: pl.LazyFrame, collect: Collect) -> pl.DataFrame:
        columns = _Columns(data, collect)
        for action in actions:
            action(columns)
        return columns.select(outputs)

    return run


def _around_the_host(program: Program) -> set[int]:
    """The steps that run on the host, and the steps whose results they take from the engine."""
    roots = roots_of(program)
    kept = set()
    for number, step in enumerate(program.steps):
        if (
            roots[number] is not None
            and not is_element(number, roots)
            and _on_host(program, number)
        ):
            kept |= {number, *(o for o in step.operands if roots[o] is not None)}
    return {n for n in kept if not is_element(n, roots)}


def _on_host(program: Program, number: int) -> bool:
    step = program.steps[number]
    lists = step.type.is_list or any(program.steps[o].type.is_list for o in step.operands)
    return lists or hashes_strings(program, step)


class _Columns:
    """The columns of a run: lazy expressions for the engine, and lists in memory."""

    def __init__(self, data: pl.LazyFrame, collect: Collect) -> None:
        self.rows, self.collect = data, collect
        self.lists: dict[str, pl.Series] = {}

    def select(self, columns: Sequence[pl.Expr]) -> pl.DataFrame:
        """Some columns in memory: computed on the engine, or lists that are there already."""
        lists, scalars, constants = [], [], []
        for column in columns:
            names = column.meta.root_names()
            if not names:
                constants.append(column)
            elif names[0] in self.lists:
                lists.append(self.lists[names[0]].alias(column.meta.output_name()))
            else:
                scalars.append(column)
        made = self.collect(self.rows.select(scalars)).get_columns() if scalars else []
        together = pl.DataFrame([*made, *lists]).with_columns(constants)
        return together.select(column.meta.output_name() for column in columns)

    def add(self, made: pl.DataFrame) -> None:
        """Add columns that were computed in memory."""
        lists = {c.name: c for c in made if isinstance(c.dtype, pl.List)}
        self.lists |= lists
        if len(lists) < made.width:
            frames = [self.rows, made.drop(lists).lazy()]
            self.rows = pl.concat(frames, how="horizontal", strict=True)


def _of_rows(program: Program, made: Collection[str]) -> list[Callable[[_Columns], None]]:
    """A stage over rows: columns that the engine adds, and columns that the host computes."""
    host = [output for output in program.outputs if _on_host(program, output[1])]
    engine = [output for output in program.outputs if output not in host]
    actions: list[Callable[[_Columns], None]] = []
    if engine:
        added = expressions(part(program, engine, {}), VERBS_ON_GPU, made)
        actions.append(lambda columns: _add_lazily(columns, added))
    for column, number in host:
        step = program.steps[number]
        if hashes_strings(program, step):
            texts = program.steps[step.operands[0]].parameters["name"]
            actions.append(_hash(texts, column.name, step.parameters["seed"]))
        else:
            own = part(program, [(column, number)], {})
            actions.append(_on_the_host(own, expressions(own, VERBS, made)))
    return actions


def _add_lazily(columns: _Columns, added: Sequence[pl.Expr]) -> None:
    columns.rows = columns.rows.with_columns(added)


def _on_the_host(program: Program, made: Sequence[pl.Expr]) -> Callable[[_Columns], None]:
    names = [pl.col(name) for name in program.inputs]
    return lambda columns: columns.add(columns.select(names).lazy().select(made).collect())


def _of_elements(program: Program, lists: str) -> Callable[[_Columns], None]:
    run = host_and_engine(program, {ELEMENT})

    def action(columns: _Columns) -> None:
        of = columns.lists[lists]
        elements = list_elements(of).alias(ELEMENT).to_frame()
        made = run(elements.lazy(), columns.collect)
        columns.add(pl.DataFrame([relisted(column, of) for column in made]))

    return action


def _hash(texts: str, name: str, seed: int) -> Callable[[_Columns], None]:
    """Hash the distinct strings of a column, and look up the hash of each row."""

    def action(columns: _Columns) -> None:
        value = pl.col(texts)
        distinct = columns.collect(columns.rows.select(value).unique())[texts].drop_nulls()
        hashes = pl.Series(hash_strings(to_strings(distinct), seed))
        found = pl.when(value.is_not_null()).then(find(value, distinct, hashes, 0))
        _add_lazily(columns, [found.alias(name)])

    return action
