"""Preprocessing that is defined once, fitted to data, and served exactly as trained.

Example:
    >>> from workflow import Workflow, ops
    >>> workflow = Workflow(["userId"] >> ops.Categorify())
"""

from typing import TYPE_CHECKING

from workflow.errors import WorkflowError, WorkflowFormatError
from workflow.first_use import at_first_use

if TYPE_CHECKING:
    from workflow import ops
    from workflow.embedding_sizes import embedding_dimension, get_embedding_sizes
    from workflow.expressions.language.tree import where
    from workflow.graph.node import ColumnSelector, Subgraph
    from workflow.inspection.generate_dataset import generate_dataset
    from workflow.inspection.inspect_dataset import inspect_dataset
    from workflow.inspection.inspection import Inspection
    from workflow.schema.dtypes import SchemaError
    from workflow.schema.schema import ColumnSchema, Schema, Tags
    from workflow.workflow import Workflow

__all__ = [
    "ColumnSchema",
    "ColumnSelector",
    "Inspection",
    "Schema",
    "SchemaError",
    "Subgraph",
    "Tags",
    "Workflow",
    "WorkflowError",
    "WorkflowFormatError",
    "embedding_dimension",
    "generate_dataset",
    "get_embedding_sizes",
    "inspect_dataset",
    "ops",
    "where",
]
# Polars takes a fifth of a second to import; errors, and the help of the command line, do without it.
_MODULES = {
    "ColumnSchema": "workflow.schema.schema",
    "ColumnSelector": "workflow.graph.node",
    "Inspection": "workflow.inspection.inspection",
    "Schema": "workflow.schema.schema",
    "SchemaError": "workflow.schema.dtypes",
    "Subgraph": "workflow.graph.node",
    "Tags": "workflow.schema.schema",
    "Workflow": "workflow.workflow",
    "embedding_dimension": "workflow.embedding_sizes",
    "generate_dataset": "workflow.inspection.generate_dataset",
    "get_embedding_sizes": "workflow.embedding_sizes",
    "inspect_dataset": "workflow.inspection.inspect_dataset",
    "ops": "workflow.ops",
    "where": "workflow.expressions.language.tree",
}


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("workflow", _MODULES)
