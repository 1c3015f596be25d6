"""Gaps of cuDF's engine for Polars, and their replacements, in one list.

As of cudf-polars 26.10. A verb's row says whether it is `reexpressed_on` cuDF, and of which operands
it reads the bytes (`bytes_of`): then it runs between two queries, as do lists, which are read and split
into elements and lengths on the GPU. Everything else that the Polars interpreter writes runs on cuDF
unchanged or raises an error, since every query is sent with `raise_on_fail`.
"""

from __future__ import annotations

from collections.abc import Mapping

from workflow.expressions.language.verbs import of_every_verb, reads_bytes
from workflow.expressions.polars.buckets import bucketize_by_search
from workflow.expressions.polars.interpreter import VERBS, Compile
from workflow.expressions.program.program import Program, Step

from .verbs import divide, gather, log1p, lookup, modulo

# Verbs written in other Polars expressions, which run on the GPU.
REEXPRESSED: Mapping[str, Compile] = of_every_verb(
    "cudf",
    {
        "bucketize": bucketize_by_search,
        "divide": divide,
        "gather": gather,
        "log1p": log1p,
        "lookup": lookup,
        "modulo": modulo,
    },
    engine="cudf",
)
VERBS_ON_GPU: Mapping[str, Compile] = {**VERBS, **REEXPRESSED}


def is_one_query(program: Program) -> bool:
    """Whether cuDF runs the whole program in one query, without any step on the host.

    cuDF can take lists from a table, explode and write them. It can neither compute with them, nor
    replace missing lists in the data by empty ones.
    """
    return not any(_leaves_gpu(program, step) for step in program.steps)


def hashes_on_host(program: Program, step: Step) -> bool:
    """Whether a step hashes the bytes of strings, or the digits of integers."""
    return reads_bytes(step.verb, (program.steps[operand].type for operand in step.operands))


def _leaves_gpu(program: Program, step: Step) -> bool:
    if hashes_on_host(program, step):
        return True
    takes_list = any(program.steps[operand].type.is_list for operand in step.operands)
    return takes_list or (step.type.is_list and step.verb != "gather")
