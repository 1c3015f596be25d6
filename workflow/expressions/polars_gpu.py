"""What cuDF's engine for Polars lacks, and what is done instead: the one list of it.

As of cudf-polars 26.10. All else that the Polars interpreter writes runs there as it is; what does
not is an error, since every query is sent with `raise_on_fail`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from .polars import VERBS, Compile, expressions, step_expression
from .polars_buckets import bucketize_by_search
from .polars_gpu_verbs import divide, gather, log1p, lookup, modulo
from .program import Program, Step

# Said in other Polars expressions, which run on the GPU.
REEXPRESSED: Mapping[str, Compile] = {
    "bucketize": bucketize_by_search,
    "divide": divide,
    "gather": gather,
    "log1p": log1p,
    "lookup": lookup,
    "modulo": modulo,
}
VERBS_ON_GPU: Mapping[str, Compile] = {**VERBS, **REEXPRESSED}

# Those that name an operand more than once. cuDF computes it as often, so it becomes a column first.
_REPEATING = {"bucketize", "gather", "hash", "log1p", "lookup", "maximum", "minimum", "modulo"}

# Done on the host, between two queries that run on the GPU.
ON_HOST: Mapping[str, str] = {
    "source": "Lists of the data are read on the GPU and taken apart into elements and lengths.",
    "gather": "Lists taken from a table, where a program does more than hand them on.",
    "hash": "Distinct strings are hashed; which row has which is found on the GPU.",
    "list_length": "The lengths are kept when lists are taken apart.",
    "list_slice": "Lists are put together, cut, and taken apart again.",
    "list_pad": "Lists are put together, padded, and taken apart again.",
}


def expressions_on_gpu(program: Program) -> list[pl.Expr]:
    """The outputs of a program that is one query, as expressions that cuDF runs."""
    return expressions(program, VERBS_ON_GPU)


class QueryOnGpu:
    """A program that is one query for cuDF, ready to be asked of frames of its inputs.

    Args:
        program: what to make of each row.

    Example:
        >>> from workflow import Workflow, ops
        >>> ids = {"userId": [7, 7, 9]}
        >>> query = QueryOnGpu(Workflow(["userId"] >> ops.Categorify()).fit(ids).program)
        >>> query(pl.LazyFrame(ids)).collect()["userId"].to_list()
        [3, 3, 4]
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._made: list[pl.Expr] = []
        # The steps that become columns first, one group after the other, and for each step how many
        # of the groups its expression needs.
        self._columns: list[dict[str, pl.Expr]] = []
        self._needs: list[int] = []
        for step in program.steps:
            self._add(step)

    def __call__(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The outputs, lazily, rows in the order of the given frame's."""
        for columns in self._columns:
            frame = frame.with_columns(**columns)
        outputs = self._program.outputs
        return frame.select(self._made[step].alias(column.name) for column, step in outputs)

    def _add(self, step: Step) -> None:
        if step.verb in _REPEATING:
            for operand in step.operands:
                self._make_column(operand)
        operands = [self._made[operand] for operand in step.operands]
        types = [self._program.steps[operand].type for operand in step.operands]
        self._made.append(step_expression(self._program, step, types, operands, VERBS_ON_GPU))
        self._needs.append(max((self._needs[operand] for operand in step.operands), default=0))

    def _make_column(self, step: int) -> None:
        name, need = f"@{step}", self._needs[step]
        is_column = any(name in columns for columns in self._columns)
        if is_column or self._program.steps[step].verb in ("source", "constant"):
            return
        if need == len(self._columns):
            self._columns.append({})
        self._columns[need][name] = self._made[step]
        self._made[step], self._needs[step] = pl.col(name), need + 1


def is_one_query(program: Program) -> bool:
    """Whether cuDF runs the whole program in one query, with nothing done on the host.

    Lists it can take from a table, explode and write. It cannot compute with them, nor make empty
    ones of those that are missing in the data.
    """
    return not any(_leaves_gpu(program, step) for step in program.steps)


def hashes_strings(program: Program, step: Step) -> bool:
    """Whether a step takes the hash of strings."""
    return step.verb == "hash" and program.steps[step.operands[0]].type.kind == "string"


def _leaves_gpu(program: Program, step: Step) -> bool:
    if hashes_strings(program, step):
        return True
    takes_list = any(program.steps[operand].type.is_list for operand in step.operands)
    return takes_list or (step.type.is_list and step.verb != "gather")
