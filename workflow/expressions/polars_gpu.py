"""What cuDF's engine for Polars lacks, and what is done instead: the one list of it.

As of cudf-polars 26.10. All else that the Polars interpreter writes runs there as it is; what does
not is an error, since every query is sent with `raise_on_fail`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from .polars import VERBS, Compile, expressions
from .polars_buckets import bucketize_by_search
from .polars_gpu_verbs import divide, gather, log1p, lookup, modulo
from .polars_stages import Stages, compile_stages
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


def stages_on_gpu(program: Program) -> Stages:
    """A program that is one query for cuDF, in the stages that `run_stages` puts together.

    Args:
        program: what to make of each row.

    Example:
        >>> from workflow import Workflow, ops
        >>> from workflow.expressions.polars_stages import run_stages
        >>> ids = {"userId": [7, 7, 9]}
        >>> query = stages_on_gpu(Workflow(["userId"] >> ops.Categorify()).fit(ids).program)
        >>> run_stages(pl.LazyFrame(ids), query).collect()["userId"].to_list()
        [3, 3, 4]
    """
    repeated = {o for step in program.steps if step.verb in _REPEATING for o in step.operands}
    kept = {o for o in repeated if program.steps[o].verb not in ("source", "constant")}
    return compile_stages(program, VERBS_ON_GPU, kept)


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
