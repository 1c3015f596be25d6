"""Gaps of cuDF's engine for Polars, and what is done instead: the one list of them.

As of cudf-polars 26.10. All else that the Polars interpreter writes runs there as it is; what does
not is an error, since every query is sent with `raise_on_fail`.
"""

from __future__ import annotations

from collections.abc import Mapping

from workflow.expressions.polars.buckets import bucketize_by_search
from workflow.expressions.polars.interpreter import VERBS, Compile
from workflow.expressions.program.program import Program, Step

from .verbs import divide, gather, log1p, lookup, modulo

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

# Done on the host, between two queries that run on the GPU.
ON_HOST: Mapping[str, str] = {
    "source": "Lists of the data are read on the GPU and taken apart into elements and lengths.",
    "gather": "Lists taken from a table, where a program does more than hand them on.",
    "hash": "Distinct strings are hashed; which row has which is found on the GPU.",
    "list_length": "The lengths are kept when lists are taken apart.",
    "list_slice": "Lists are put together, cut, and taken apart again.",
    "list_pad": "Lists are put together, padded, and taken apart again.",
}


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
