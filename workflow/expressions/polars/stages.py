"""Programs in stages, so that each step is computed once, and lists are processed by elements.

Polars computes a repeated expression each time, or takes long to find that it is repeated. So a
step that is used more than once becomes a column, and expressions refer to columns. Verbs over the
elements of lists run over all elements of a column at once, as rows of a separate frame: in a
`list.eval` Polars would copy a table for each list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import polars as pl

from workflow.expressions.language.types import Root, table_dtype
from workflow.expressions.program.count_by_table_row import part
from workflow.expressions.program.program import Program, Step
from workflow.expressions.program.roots import ROWS, is_element, roots_of
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

from .interpreter import VERBS, Compile, expressions, step_expression
from .narrow_lookups import with_narrow_lookups
from .series import list_elements, list_offsets, polars_dtype, relisted

# The expressions of each stage, over a program's inputs and the columns that earlier stages added.
Stages = Sequence[Sequence[pl.Expr]]

# The lists' input of a program over the elements of a list column.
ELEMENT = "element"
# Polars ends the process for expressions some hundred deep; a step takes up to five levels.
DEEPEST_EXPRESSION = 50


@dataclass(frozen=True)
class QueryStage:
    """Columns that are computed at once, from a program's inputs and from earlier stages.

    Attributes:
        program: computes the columns, over rows or over elements.
        elements_of: the list column over whose elements the program runs, which it reads as
            `ELEMENT`: each of its outputs becomes a column of lists of the same lengths. None: over
            rows.
    """

    program: Program
    elements_of: str | None = None

    @property
    def repeated(self) -> list[str]:
        """The columns of rows that a program over elements reads, each repeated for a row's elements."""
        return [name for name in self.program.inputs if name != ELEMENT]


def apply(frame: pl.LazyFrame, program: Program) -> pl.LazyFrame:
    """A frame of the program's outputs, with rows in the order of the given frame."""
    return run_stages(frame, compile_stages(program))


def run_stages(frame: pl.LazyFrame, stages: Stages) -> pl.LazyFrame:
    """A frame of the outputs of a program, from the expressions of `compile_stages`."""
    *before, outputs = stages
    for columns in before:
        frame = frame.with_columns(columns)
    return frame.select(outputs)


def compile_stages(
    program: Program,
    verbs: Mapping[str, Compile] = VERBS,
    made_before: Collection[str] = (),
    beside: Collection[str] = (),
) -> Stages:
    """Polars expressions over a frame of a program's inputs: columns to add, and the outputs.

    Args:
        program: the program to run on each row.
        verbs: Polars expressions of verbs, as in `expressions`.
        made_before: the inputs that are not data, as in `expressions`.
        beside: the frame's columns, if those that are not inputs are to be kept unchanged.
    """
    earlier_columns = set(made_before)
    compiled: list[list[pl.Expr]] = []
    parts = stages(with_narrow_lookups(program), verbs, beside=beside)
    # Those over elements read lists that stages over rows have made, so neighbours are independent.
    for over_rows, neighbours in groupby(parts, lambda stage: stage.elements_of is None):
        group = list(neighbours)
        if over_rows:
            for stage in group:
                compiled.append(expressions(stage.program, verbs, earlier_columns))
                earlier_columns |= set(stage.program.output_schema)
        else:
            compiled += _over_elements(group, verbs)
            earlier_columns |= {name for stage in group for name in stage.program.output_schema}
    return compiled


def _over_elements(
    group: Sequence[QueryStage], verbs: Mapping[str, Compile]
) -> list[list[pl.Expr]]:
    """The expressions of list columns, which programs over other columns' elements compute.

    They are one column of structs at first: a stage for each list would repeat the names of all columns
    in the query, so that its memory would grow with the square of their number.
    """
    runners = [_elements_runner(of, verbs) for of in group]
    read = list(dict.fromkeys(n for of in group for n in (str(of.elements_of), *of.repeated)))
    columns = [column for of in group for column, _ in of.program.outputs]
    dtypes = {column.name: polars_dtype(column.dtype, is_list=True) for column in columns}

    def run(inputs: pl.Series) -> pl.Series:
        given = [inputs] if len(read) == 1 else inputs.struct.unnest().get_columns()
        by_name = dict(zip(read, given, strict=True))
        made = [made for runner in runners for made in runner(by_name)]
        # Not pl.DataFrame(made): its first call in a process fails if another thread calls it too.
        return made[0] if len(made) == 1 else made[0].to_frame().hstack(made[1:]).to_struct()

    name = columns[0].name
    dtype = dtypes[name] if len(columns) == 1 else pl.Struct(dtypes)
    inputs = pl.col(read[0]) if len(read) == 1 else pl.struct(read)
    made = inputs.map_batches(run, return_dtype=dtype, is_elementwise=True)
    if len(columns) == 1:
        return [[made.alias(name)]]
    together = f"{name} and others"
    return [[made.alias(together)], [pl.col(together).struct.field(name) for name in dtypes]]


def _elements_runner(
    stage: QueryStage, verbs: Mapping[str, Compile]
) -> Callable[[Mapping[str, pl.Series]], list[pl.Series]]:
    compiled = compile_stages(stage.program, verbs, stage.program.inputs)

    def run(given: Mapping[str, pl.Series]) -> list[pl.Series]:
        lists = given[str(stage.elements_of)]
        elements = list_elements(lists).alias(ELEMENT).to_frame()
        if stage.repeated:
            rows = np.arange(len(lists)).repeat(np.diff(list_offsets(lists)))
            elements = elements.hstack([given[n].gather(rows).alias(n) for n in stage.repeated])
        columns = run_stages(elements.lazy(), compiled).collect(engine="in-memory")
        return [relisted(column, lists) for column in columns]

    return run


def stages(
    program: Program,
    verbs: Mapping[str, Compile] = VERBS,
    kept: Collection[int] = (),
    beside: Collection[str] = (),
) -> list[QueryStage]:
    """Split a program into programs, each over the inputs and the columns of earlier ones.

    Args:
        program: any program.
        verbs: Polars expressions of verbs, which determine how often an operand is repeated.
        kept: steps, not over elements, that become columns in any case.
        beside: names that these columns must not have, in addition to those of the inputs.

    Returns:
        At least one; the last computes the program's outputs. Together they have as many steps as
        the program, and two more for each intermediate column.

    Example:
        >>> from workflow import Workflow, ops
        >>> ids = ["city"] >> ops.Categorify(num_buckets=3)
        >>> [len(s.program.outputs) for s in stages(Workflow(ids).fit({"city": ["a"]}).program)]
        [1, 1, 1, 1]
    """
    roots = roots_of(program)
    program = _with_lengths_of_roots(program, roots)
    columns = _columns(program, roots, verbs) | set(kept)
    levels = _levels(program, roots, columns)
    start = free_name("", [*program.inputs, *beside])
    names = {number: f"{start}{number}" for number in levels}
    parts: list[QueryStage] = []
    for level in sorted(set(levels.values())):
        of: dict[Root, list[int]] = defaultdict(list)
        for number in (n for n, own in levels.items() if own == level):
            of[roots[number] if is_element(number, roots) else ROWS].append(number)
        before = {n: names[n] for n in levels if levels[n] < level}
        rows_before = {n: name for n, name in before.items() if roots[n] == ROWS}
        for root, numbers in of.items():
            outputs = [(_named(names[n], program.steps[n]), n) for n in numbers]
            if root == ROWS or root is None:
                parts.append(QueryStage(part(program, outputs, before)))
            else:
                elements = part(program, outputs, {**rows_before, root: ELEMENT})
                parts.append(QueryStage(_of_elements(elements), names[root]))
    return [*parts, QueryStage(part(program, program.outputs, names))]


def _with_lengths_of_roots(program: Program, roots: Sequence[Root]) -> Program:
    """The same program, with lengths taken from the original lists instead of from derived ones."""
    steps = tuple(
        replace(step, operands=tuple(root for o in step.operands if (root := roots[o]) is not None))
        if step.verb == "list_length" and is_element(step.operands[0], roots)
        else step
        for step in program.steps
    )
    return replace(program, steps=steps)


def _columns(program: Program, roots: Sequence[Root], verbs: Mapping[str, Compile]) -> set[int]:
    """The steps that become columns: those of several uses, deep ones, and what elements are made of."""
    named = Counter(step for _, step in program.outputs)
    places: dict[Hashable, list[int]] = {}
    for number, step in enumerate(program.steps):
        if step.operands and not is_element(number, roots):
            kind = _kind(program, step)
            if kind not in places:
                places[kind] = _named_operands(program, step, verbs)
            named.update(step.operands[place] for place in places[kind])
    elements = {n for n in named if is_element(n, roots)}
    lists = {root for n in elements if (root := roots[n]) is not None}
    shared_steps = {n for n, count in named.items() if count > 1 and roots[n] is not None}
    repeated = {
        operand
        for number, step in enumerate(program.steps)
        if is_element(number, roots)
        for operand in step.operands
        if roots[operand] == ROWS
    }
    columns = elements | lists | shared_steps | repeated
    return columns | _too_deep(program, roots, columns)


def _too_deep(program: Program, roots: Sequence[Root], columns: Collection[int]) -> set[int]:
    """Further steps over rows that become columns, so that no expression is too deep."""
    found: set[int] = set()
    depths: list[int] = []
    for number, step in enumerate(program.steps):
        depth = 1 + max((depths[operand] for operand in step.operands), default=0)
        if depth > DEEPEST_EXPRESSION and not is_element(number, roots):
            found.add(number)
        depths.append(0 if number in columns or number in found else depth)
    return found


def _kind(program: Program, step: Step) -> Hashable:
    """Equal for steps whose expressions use their operands equally often, such as 26 lookups."""
    types = [program.steps[o].type for o in step.operands]
    tables = [v for v in step.parameters.values() if isinstance(v, Column)]
    return (
        step.verb,
        step.type,
        tuple((type_, type_.value) for type_ in types),
        tuple((n, repr(v)) for n, v in step.parameters.items() if not isinstance(v, Column)),
        tuple((t.rows == 0, t.is_list, table_dtype(t)) for t in tables),
    )


def _named_operands(program: Program, step: Step, verbs: Mapping[str, Compile]) -> list[int]:
    """The places of a step's operands, each as often as its expression uses the operand."""
    types = [program.steps[o].type for o in step.operands]
    places = [pl.col(str(place)) for place in range(len(types))]
    # The number of uses does not depend on a table's size, and compiling a large one takes long.
    tables = {n: _first_row(v) for n, v in step.parameters.items() if isinstance(v, Column)}
    small = replace(step, parameters={**step.parameters, **tables})
    expression = step_expression(program, small, types, places, verbs)
    return [int(name) for name in expression.meta.root_names()]


def _first_row(table: Column) -> Column:
    """A table of one row that is not null: the expression of a table of nulls alone is another one."""
    if table.lengths is not None:
        return table
    values = table.values
    if isinstance(values, Strings):
        return Column(Strings(values.data, values.offsets[:2]))
    return Column(values[:1])


def _levels(program: Program, roots: Sequence[Root], columns: Collection[int]) -> dict[int, int]:
    """Some steps, each with the length of the longest chain of them that ends in it."""
    levels: dict[int, int] = {}
    # Shared by all other steps.
    depths: list[int] = []
    # Of elements: the depth of their lists, and of the columns that are repeated for them.
    read: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        if is_element(number, roots):
            depth = read[number] = max(read.get(o, depths[o]) for o in step.operands)
        else:
            depth = max((depths[operand] for operand in step.operands), default=0)
        if number in columns:
            levels[number] = depth = depth + 1
        depths.append(depth)
    return levels


def free_name(name: str, taken: Collection[str]) -> str:
    """The name with a prefix that no other name begins with.

    Example:
        >>> free_name("row", ["row", "@2"])
        '@@row'
    """
    start = "@"
    while any(other.startswith(start) for other in taken):
        start += "@"
    return start + name


def _named(name: str, step: Step) -> ColumnSchema:
    return ColumnSchema(name, step.type.dtype, step.type.is_list, step.type.nullable)


def _of_elements(program: Program) -> Program:
    """A program over lists, converted to one over their elements as rows."""
    steps = tuple(
        replace(step, type=replace(step.type, is_list=False)) if step.type.is_list else step
        for step in program.steps
    )
    inputs = Schema(column.with_(is_list=False) for column in program.inputs.columns)
    outputs = tuple((column.with_(is_list=False), step) for column, step in program.outputs)
    return Program(inputs, steps, outputs)
