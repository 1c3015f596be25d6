"""The sizes of the embedding tables that a workflow's ids need."""

from __future__ import annotations

import math
from collections.abc import Callable

from .schema import Schema
from .workflow import Workflow

Sizes = dict[str, tuple[int, int]]


def embedding_dimension(cardinality: int) -> int:
    """The width of an embedding: 1.6 n^0.56, at least 16 and at most 512.

    Source: the rule of fast.ai's tabular models, with the limits that NVTabular set.

    Example:
        >>> embedding_dimension(21)
        16
    """
    return min(512, max(16, round(1.6 * math.pow(cardinality, 0.56))))


def get_embedding_sizes(
    source: Workflow | Schema, rule: Callable[[int], int] = embedding_dimension
) -> Sizes | tuple[Sizes, Sizes]:
    """Rows and width of the embedding table of each column of ids.

    Args:
        source: a fitted workflow, or the schema of its outputs.
        rule: from a table's rows to its width.

    Returns:
        `{column: (cardinality, dimension)}`; where there are list columns a pair of these, first
        the single-hot columns, then the multi-hot ones.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> get_embedding_sizes(workflow)
        {'userId': (5, 16)}
    """
    schema = source.output_schema if isinstance(source, Workflow) else source
    single: Sizes = {}
    multi: Sizes = {}
    for column in schema.columns:
        if (rows := column.properties.get("cardinality")) is not None:
            (multi if column.is_list else single)[column.name] = (rows, rule(rows))
    return (single, multi) if multi else single
