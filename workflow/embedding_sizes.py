"""The sizes of the embedding tables that a workflow's ids need."""

from __future__ import annotations

import math
from collections.abc import Callable

from .errors import WorkflowError
from .graph.node import Node
from .schema.python_number import python_number
from .schema.schema import ColumnSchema, Schema
from .workflow import Workflow

Sizes = dict[str, tuple[int, int]]


def embedding_dimension(cardinality: int) -> int:
    """The width of an embedding by the default rule: 1.6 n^0.56, at least 16 and at most 512.

    Above some 30,000 rows it is always 512, which is more than most models need: pass your own rule
    to `get_embedding_sizes` for large tables.

    Source: the rule of fast.ai's tabular models, with the limits that NVTabular set.

    Example:
        >>> [embedding_dimension(rows) for rows in (21, 1000, 10**6)]
        [16, 77, 512]
    """
    return min(512, max(16, round(1.6 * math.pow(cardinality, 0.56))))


def get_embedding_sizes(
    source: Workflow | Node | Schema, rule: Callable[[int], int] = embedding_dimension
) -> Sizes | tuple[Sizes, Sizes]:
    """Rows and width of the embedding table of each column of ids.

    The columns of ids are those with the property `cardinality`, which Categorify, HashBucket,
    HashedCross and Bucketize set, even if they were renamed; other columns have no embedding.
    Columns that share a table (`Categorify(single_table=True)`, or one `domain` name) each have its
    size.

    Args:
        source: a fitted workflow, a node of its graph, or a schema.
        rule: from a table's rows to its width; a column's property `embedding_size` takes
            precedence.

    Returns:
        `{column: (cardinality, dimension)}`; if there are list columns a pair of these
        dictionaries: first the single-hot columns, then the multi-hot ones. Code for both, also for a
        type checker: `single, lists = sizes if isinstance(sizes, tuple) else (sizes, {})`.

    Raises:
        WorkflowError: a cardinality or a width is not a positive whole number.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> get_embedding_sizes(workflow)
        {'userId': (5, 16)}
        >>> get_embedding_sizes(workflow, rule=lambda rows: min(64, rows // 2))
        {'userId': (5, 2)}
    """
    schema = source if isinstance(source, Schema) else source.output_schema
    single: Sizes = {}
    multi: Sizes = {}
    for column in schema.columns:
        if (rows := python_number(column.properties.get("cardinality"))) is not None:
            _expect_size(column, "cardinality", rows)
            width = column.properties.get("embedding_size")
            width = python_number(rule(rows) if width is None else width)
            _expect_size(column, "width of the embedding", width)
            (multi if column.is_list else single)[column.name] = (rows, width)
    return (single, multi) if multi else single


def _expect_size(column: ColumnSchema, what: str, size: object) -> None:
    if type(size) is not int or size < 1:
        raise WorkflowError(
            f"Expected the {what} of column {column.name!r} as a positive whole number. "
            f"Received: {size!r:.100}."
        )
