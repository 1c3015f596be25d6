"""A fitted workflow on disk: `workflow.json` and the state file that it names.

Reading, auditing and constructing are three steps: files are parsed into plain values, every value
is checked, and only then is an operator made. Nothing in a file refers to code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from workflow.errors import CHECK_DISK, WorkflowError, WorkflowFormatError
from workflow.expressions.language.types import ExpressionError
from workflow.expressions.program.safetensors_file import (
    FormatError,
    column_to_arrays,
    columns_from_arrays,
)
from workflow.graph.fitted_graph import FittedGraph
from workflow.graph.node import ColumnSelector, ConcatNode, Node, Subgraph, SubsetNode
from workflow.graph.operator_node import OperatorNode
from workflow.graph.resolution import Resolution
from workflow.graph.row_set import Resolved
from workflow.graph.selection import Selection, to_nested
from workflow.operator.feature import State
from workflow.operator.operator import OPERATORS, Operator
from workflow.schema.column import Column
from workflow.schema.dtypes import SchemaError
from workflow.schema.schema import Schema
from workflow.schema.training_data import TrainingData

from .audit import FORMAT, audit, audit_format
from .saved_files import expect_saved, read_document, read_state, write_files

_Workflow = TypeVar("_Workflow", bound=FittedGraph)

# Loading retries this often if saves into the folder complete in between.
_TRIES = 8


def save_workflow(workflow: FittedGraph, folder: Path) -> None:
    """Write a fitted workflow into a folder; one rename replaces an earlier one.

    Raises:
        WorkflowError: the workflow is not fitted, the folder holds other files, or it cannot be
            written.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> save_workflow(workflow, Path("saved"))
        >>> sorted(file.name for file in Path("saved").iterdir())
        ['state-....safetensors', 'workflow.json']
    """
    workflow = copy.copy(workflow)  # which another thread may fit meanwhile
    try:
        folder = folder.resolve()
        write_files(folder, _describe(workflow), _state_arrays(workflow.states))
    except FormatError as error:
        raise WorkflowError(f"The workflow cannot be saved: {error}") from error
    except OSError as error:
        raise WorkflowError(
            f"The workflow cannot be saved into {str(folder)!r:.200}: {error.strerror or error}. "
            f"{CHECK_DISK}"
        ) from error


def _describe(workflow: FittedGraph) -> dict[str, Any]:
    numbers = {node: number for number, node in enumerate(workflow.nodes)}
    resolution = Resolution(workflow.input_schema)
    nodes = []
    for number, node in enumerate(workflow.nodes):
        outputs = resolution.resolve(node, workflow.states.get(number, {}))
        described = _describe_node(node, resolution.inputs(node), outputs)
        nodes.append({"parents": [numbers[p] for p in node.parents], **described})
    return {
        "format": FORMAT,
        "inputs": workflow.input_schema.to_json(),
        "nodes": nodes,
        "output_dtypes": workflow.output_dtypes.assigned,
        "training_data": workflow.training_data.to_json(),
    }


def _describe_node(node: Node, inputs: Sequence[Resolved], outputs: Resolved) -> dict[str, Any]:
    """A node after fitting: columns that a selector has found are listed by name."""
    if isinstance(node, OperatorNode):
        bound = node.bind(inputs)
        name, config = type(node.operator).__name__, bound.operator.to_config(bound.columns)
        return {"kind": "operator", "operator": name, "config": config}
    if isinstance(node, SubsetNode) and not node.keep:
        return {"kind": "drop", "names": [n for n in inputs[0].columns if n not in outputs.columns]}
    if isinstance(node, SubsetNode | ColumnSelector):
        if node.selection.if_there:
            return {"kind": "find", "names": [name for (name,) in node.selection.groups]}
        kind = "keep" if isinstance(node, SubsetNode) else "select"
        names = to_nested(node.selection.pick(inputs[0].tags, node.label))
        return {"kind": kind, "names": names}
    if isinstance(node, Subgraph):
        return {"kind": "subgraph", "name": node.name}
    return {"kind": "concat"}


def _state_arrays(states: Mapping[int, State]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for number, state in states.items():
        for name, column in state.items():
            arrays |= column_to_arrays(f"{number}.{name}", column)
    return arrays


def load_workflow(folder: Path, make: Callable[[Node], _Workflow]) -> _Workflow:
    """Read a workflow that `save_workflow` wrote.

    Args:
        folder: the folder that `save_workflow` wrote.
        make: the class `Workflow`, which is in a layer above this module.

    Raises:
        WorkflowFormatError: the files are missing, damaged, or not a workflow.

    Example:
        >>> from workflow import Workflow, ops
        >>> Workflow(["price"] >> ops.FillMissing(0)).fit({"price": [1.0, None]}).save("prices")
        >>> load_workflow(Path("prices"), Workflow).transform({"price": [None]}).collect().item()
        0.0
    """
    try:
        expect_saved(folder)
        document, states = _read(folder)
        audit(document, states)
        return _construct(document, states, make)
    except WorkflowFormatError:
        raise
    except OSError as error:
        raise WorkflowFormatError(
            f"{str(folder)!r:.200} cannot be read: {error.strerror or error}."
        ) from error
    except (FormatError, SchemaError, ExpressionError, WorkflowError) as error:
        raise WorkflowFormatError(
            f"{folder} is not a workflow of format {FORMAT}: {error}"
        ) from error


def _read(folder: Path, tries: int = _TRIES) -> tuple[dict[str, Any], dict[int, dict[str, Column]]]:
    """The document and the states, read again if a save has replaced both in between."""
    document = read_document(folder)
    audit_format(document)
    try:
        return document, _read_states(folder, document)
    except (FormatError, WorkflowFormatError, OSError):
        if tries == 1 or read_document(folder) == document:
            raise
    return _read(folder, tries - 1)


def _read_states(folder: Path, document: Mapping[str, Any]) -> dict[int, dict[str, Column]]:
    states: dict[int, dict[str, Column]] = {}
    arrays = read_state(folder, document)
    for name, column in columns_from_arrays(arrays, f"the state in {folder}").items():
        number, _, key = name.partition(".")
        if len(number) > 9 or not number.isdecimal() or str(int(number)) != number:
            raise FormatError(f"the state in {folder}: {name!r:.100} names no node.")
        states.setdefault(int(number), {})[key] = column
    return states


def _construct(
    document: Any, states: Mapping[int, State], make: Callable[[Node], _Workflow]
) -> _Workflow:
    nodes: list[Node] = []
    for number, entry in enumerate(document["nodes"]):
        parents = [nodes[p] for p in entry["parents"]]
        nodes.append(_construct_node(entry, parents, states.get(number, {})))
    workflow = make(nodes[-1])
    if workflow.nodes != nodes:
        raise FormatError(
            "the nodes are not in the order of one graph that ends in the last of them."
        )
    workflow.restore(
        Schema.from_json(document["inputs"]),
        dict(states),
        document["output_dtypes"],
        TrainingData.from_json(document["training_data"]),
    )
    # Building the steps checks that every column and state that they need exists.
    _ = workflow.output_schema
    return workflow


def _construct_node(entry: Any, parents: list[Node], state: State) -> Node:
    kind = entry["kind"]
    if kind == "concat":
        return ConcatNode(*parents)
    if kind == "subgraph":
        return Subgraph(entry["name"], parents[0])
    if kind == "operator":
        operator: Operator = OPERATORS[entry["operator"]].from_config(entry["config"], state)
        return OperatorNode(parents[0], operator, parents[1:])
    names = Selection.of_saved(entry["names"])
    if kind == "find":
        return ColumnSelector(replace(names, if_there=True))
    if kind == "select":
        return ColumnSelector(names)
    without = parents[1] if len(parents) > 1 else None
    return SubsetNode(parents[0], names, keep=kind == "keep", without=without)
