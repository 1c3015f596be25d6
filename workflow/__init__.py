"""Preprocessing that is defined once, fitted to data, and served exactly as trained.

Example:
    >>> from workflow import Workflow, ops
    >>> workflow = Workflow(["userId"] >> ops.Categorify())
"""

from . import ops
from .embedding_sizes import embedding_dimension, get_embedding_sizes
from .errors import WorkflowError, WorkflowFormatError
from .expressions.language.tree import where
from .graph.node import ColumnSelector, Subgraph
from .inspection.generate_dataset import generate_dataset
from .inspection.inspect_dataset import inspect_dataset
from .inspection.inspection import Inspection
from .schema.dtypes import SchemaError
from .schema.schema import ColumnSchema, Schema, Tags
from .workflow import Workflow

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
