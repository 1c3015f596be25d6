"""The ids of a column, which an embedding has to hold; without Keras, for networks of other libraries."""

from __future__ import annotations

from workflow.schema.schema import ColumnSchema
from workflow.schema.tags import facts_of


def id_count(column: ColumnSchema) -> int:
    """The number of ids of a column, which start from 0; 0 if it is no column of ids.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["user"] >> ops.Categorify()).fit({"user": [7, 9]})
        >>> id_count(workflow.output_schema["user"])  # with those for padding, null and unknown
        5
    """
    if not column.info.is_integer:
        return 0
    facts = facts_of(column)
    return int(facts["domain"]["max"] + 1 if "domain" in facts else facts.get("cardinality", 0))


def too_small(column: str, count: int, received: str) -> str:
    """The error text for a table that lacks rows for some of a column's ids.

    Args:
        column: the column of ids.
        count: the number of ids.
        received: a whole sentence.
    """
    return (
        f"Expected an embedding of {count} rows or more for {column!r}, whose ids are 0 to {count - 1}. "
        f"Received: {received} Take its input_dim from workflow.get_embedding_sizes, which "
        f"gives {count} for {column!r}, and train that model."
    )
