"""The polars interpreter for programs of which cuDF's engine does not run every step.

A list column becomes a flat column of its elements and a column of its lengths. What works on
each element, which is nearly all, is then what it is on scalars, and runs on the engine. A step
that makes a list of scalars, scalars of a list or another list runs by its ordinary expression in
memory, between two queries; so do the hashes of strings, of the distinct ones. What these steps
are stands in `polars_gpu.ON_HOST`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from .hashing import hash_strings
from .polars import VERBS, step_expression
from .polars_gpu import VERBS_ON_GPU, hashes_strings
from .polars_gpu_verbs import find
from .program import Program, Step
from .series import to_lists, to_strings
from .types import Root, element_root

Collect = Callable[[pl.LazyFrame], pl.DataFrame]

# The level of scalar columns; that of elements is the number of the step which made their lists.
ROWS = -1


class FlatInterpreter:
    """A program, ready to run on pieces of data that fit into memory.

    Args:
        program: what to make of each row.

    Example:
        >>> from workflow import Workflow, ops
        >>> genres = {"genres": [["a", "b"], ["a"]]}
        >>> program = Workflow(["genres"] >> ops.Categorify()).fit(genres).program
        >>> made = FlatInterpreter(program)(pl.LazyFrame(genres), pl.LazyFrame.collect)
        >>> made["genres"].to_list()
        [[3, 4], [3]]
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        # Each step as an expression over the columns of its level; of elements it is "element".
        self.made: list[pl.Expr] = []
        # A constant has no level: it is the same on all.
        self.levels: list[Root] = []
        # The steps done in memory, each with its ordinary expression over its operands; for the
        # hash of strings it is the operand's.
        self.crossings: dict[int, pl.Expr] = {}
        for number in range(len(program.steps)):
            self._add(number)

    def _add(self, number: int) -> None:
        step = self.program.steps[number]
        types = [self.program.steps[o].type for o in step.operands]
        levels = [self.levels[o] for o in step.operands]
        own = None if step.verb == "constant" else number if step.type.is_list else ROWS
        level = element_root(step.verb, step.type, types, levels, own)
        operands = [self.made[o] for o in step.operands]
        if level == number or (level == ROWS and not {ROWS, None}.issuperset(levels)):
            columns = zip(step.operands, levels, operands, strict=True)
            named = [made if at is None else pl.col(_name(o)) for o, at, made in columns]
            self.crossings[number] = step_expression(self.program, step, types, named, VERBS)
            self.made.append(pl.col(_name(number) if level == ROWS else "element"))
        elif hashes_strings(self.program, step) and level is not None:
            (self.crossings[number],) = operands
            self.made.append(pl.col(_name(number)))
        else:
            self.made.append(step_expression(self.program, step, types, operands, VERBS_ON_GPU))
        self.levels.append(level)

    def __call__(self, data: pl.LazyFrame, collect: Collect) -> pl.DataFrame:
        """The outputs.

        Args:
            data: the program's inputs.
            collect: runs a query on the engine; lists it only reads.
        """
        run = _Run(self, data, collect)
        for number, expression in self.crossings.items():
            step = self.program.steps[number]
            if hashes_strings(self.program, step):
                run.hash(number, step.parameters["seed"], expression)
            else:
                run.cross(number, step, expression)
        return run.outputs()


class _Run:
    """A program on its way over one piece."""

    def __init__(self, interpreter: FlatInterpreter, data: pl.LazyFrame, collect: Collect) -> None:
        self._of, self._data, self._collect = interpreter, data, collect
        self._frames: dict[Root, pl.LazyFrame] = {ROWS: data}
        self._lengths: dict[int, pl.Series] = {}

    def cross(self, number: int, step: Step, expression: pl.Expr) -> None:
        """Run a step between levels in memory, and put its result where it belongs."""
        made = self._operands(step).lazy().select(expression.alias(_name(number))).collect()
        if self._of.levels[number] == ROWS:
            self._frames[ROWS] = pl.concat(
                [self._frames[ROWS], made.lazy()], how="horizontal", strict=True
            )
            return
        lists = made.to_series()
        self._lengths[number] = lists.list.len()
        elements = lists.explode(empty_as_null=False)
        self._frames[number] = elements.to_frame("element").lazy()

    def _operands(self, step: Step) -> pl.DataFrame:
        """What a step works on, in memory."""
        if step.verb == "source":
            return self._collect(self._data.select(step.parameters["name"]))
        operands: dict[int, dict[str, pl.Expr]] = {}
        for operand in step.operands:
            if (level := self._of.levels[operand]) is not None:
                operands.setdefault(level, {})[_name(operand)] = self._of.made[operand]
        return pl.DataFrame([c for level, e in operands.items() for c in self._columns(level, e)])

    def hash(self, number: int, seed: int, texts: pl.Expr) -> None:
        """Hash the distinct strings of a column, and look up there which hash each row has."""
        level = self._of.levels[number]
        frame = self._frames[level]
        distinct = self._collect(frame.select(text=texts).unique())["text"].drop_nulls()
        hashes = pl.Series(hash_strings(to_strings(distinct), seed))
        found = pl.when(texts.is_not_null()).then(find(texts, distinct, hashes, 0))
        self._frames[level] = frame.with_columns(found.alias(_name(number)))

    def outputs(self) -> pl.DataFrame:
        """The program's outputs."""
        levels: dict[int, dict[str, pl.Expr]] = {}
        constants: dict[str, pl.Expr] = {}
        for column, step in self._of.program.outputs:
            level = self._of.levels[step]
            exprs = constants if level is None else levels.setdefault(level, {})
            exprs[column.name] = self._of.made[step]
        columns = [one for level, exprs in levels.items() for one in self._columns(level, exprs)]
        frame = pl.DataFrame(columns).with_columns(**constants)
        return frame.select(column.name for column, _ in self._of.program.outputs)

    def _columns(self, level: int, exprs: dict[str, pl.Expr]) -> list[pl.Series]:
        """Columns of a level, their elements in lists again."""
        query = self._frames[level].select(expr.alias(name) for name, expr in exprs.items())
        columns = self._collect(query).get_columns()
        if level == ROWS:
            return columns
        offsets = np.concatenate([[0], np.cumsum(self._lengths[level].to_numpy(), dtype=np.int64)])
        return [to_lists(column, offsets).alias(column.name) for column in columns]


def _name(step: int) -> str:
    return f"@{step}"
