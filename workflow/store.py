"""A fitted workflow on disk: `workflow.json` and `state.safetensors`.

Reading, auditing and constructing are three steps: the files are parsed into plain values,
every value is checked, and only then is an operator made. Nothing in a file names code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .config import check_config, fits
from .errors import WorkflowError, WorkflowFormatError
from .expressions.arrays import (
    FormatError,
    column_to_arrays,
    columns_from_arrays,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from .expressions.column import Column
from .expressions.verbs import ExpressionError
from .graph import ColumnSelector, ConcatNode, Node, OperatorNode, Subgraph, SubsetNode
from .operator import OPERATORS, Operator, State
from .resolution import resolve_graph
from .rows import Resolved
from .schema import Schema, SchemaError
from .selection import Selection, to_nested
from .workflow import Workflow

FORMAT = 1
WORKFLOW_FILE, STATE_FILE = "workflow.json", "state.safetensors"
# How many parents a kind of node has, where that is not one; an operator's others are dependencies.
_PARENTS = {"select": (0, 0), "concat": (1, 2**31), "operator": (1, 2**31)}
_KINDS = {
    "select": {"names"},
    "operator": {"operator", "config"},
    "concat": set(),
    "keep": {"names"},
    "drop": {"names"},
    "subgraph": {"name"},
}


def save_workflow(workflow: Workflow, folder: Path) -> None:
    """Write a fitted workflow into a folder, which appears complete or not at all.

    Raises:
        WorkflowError: the workflow is not fitted, or the folder holds something else.
    """
    document, arrays = _describe(workflow), _state_arrays(workflow.states)
    folder = folder.resolve()
    if folder.exists() and _holds_more(folder):
        raise WorkflowError(
            f"{folder} holds other files. Save the workflow into a folder of its own."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        staging = Path(scratch) / "new"
        staging.mkdir()
        try:
            write_json(staging / WORKFLOW_FILE, document, indent=1)
            write_arrays(staging / STATE_FILE, arrays)
        except FormatError as error:
            raise WorkflowError(f"The workflow cannot be saved: {error}") from error
        if folder.exists():
            # A folder cannot be renamed over another, so the old one steps aside, whole.
            folder.rename(Path(scratch) / "old")
        staging.rename(folder)


def _holds_more(folder: Path) -> bool:
    if not folder.is_dir():
        return True
    return bool({entry.name for entry in folder.iterdir()} - {WORKFLOW_FILE, STATE_FILE})


def _describe(workflow: Workflow) -> dict[str, Any]:
    numbers = {node: number for number, node in enumerate(workflow.nodes)}
    made = resolve_graph(workflow.nodes, workflow.states, workflow.input_schema)
    nodes = [
        {"parents": [numbers[p] for p in node.parents], **_describe_node(node, made)}
        for node in workflow.nodes
    ]
    return {
        "format": FORMAT,
        "inputs": workflow.input_schema.to_json(),
        "nodes": nodes,
        "output_dtypes": workflow.output_dtypes.assigned,
    }


def _describe_node(node: Node, made: Mapping[Node, Resolved]) -> dict[str, Any]:
    """A node as it is fitted: the columns that a selector has found, by name."""
    if isinstance(node, OperatorNode):
        bound = node.bind([made[parent] for parent in node.parents])
        name, config = type(node.operator).__name__, bound.operator.to_config(bound.columns)
        return {"kind": "operator", "operator": name, "config": config}
    if isinstance(node, SubsetNode) and not node.keep:
        dropped = made[node.parents[0]].columns.keys() - made[node].columns.keys()
        return {"kind": "drop", "names": [n for n in made[node.parents[0]].columns if n in dropped]}
    if isinstance(node, SubsetNode | ColumnSelector):
        kind = "keep" if isinstance(node, SubsetNode) else "select"
        return {"kind": kind, "names": to_nested(made[node].groups)}
    if isinstance(node, Subgraph):
        return {"kind": "subgraph", "name": node.name}
    return {"kind": "concat"}


def _state_arrays(states: Mapping[int, State]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for number, state in states.items():
        for name, column in state.items():
            arrays |= column_to_arrays(f"{number}.{name}", column)
    return arrays


def load_workflow(folder: Path) -> Workflow:
    """Read a workflow that `save_workflow` wrote.

    Raises:
        WorkflowFormatError: the files are missing, damaged, or are not a workflow.
    """
    try:
        document = read_json(folder / WORKFLOW_FILE)
        states = _read_states(folder / STATE_FILE)
        _audit(document, states)
        return _construct(document, states)
    except (FormatError, SchemaError, ExpressionError, WorkflowError) as error:
        raise WorkflowFormatError(
            f"{folder} is not a workflow of format {FORMAT}: {error}"
        ) from error


def _read_states(path: Path) -> dict[int, dict[str, Column]]:
    states: dict[int, dict[str, Column]] = {}
    for name, column in columns_from_arrays(read_arrays(path), str(path)).items():
        number, _, key = name.partition(".")
        if len(number) > 9 or not number.isdecimal() or str(int(number)) != number:
            raise FormatError(f"{path}: {name!r:.100} names no node.")
        states.setdefault(int(number), {})[key] = column
    return states


def _audit(document: Any, states: Mapping[int, State]) -> None:
    if not isinstance(document, dict) or document.keys() != {
        "format",
        "inputs",
        "nodes",
        "output_dtypes",
    }:
        raise FormatError("expected format, inputs, nodes and output_dtypes and nothing else.")
    if document["format"] != FORMAT:
        raise FormatError(f"expected format {FORMAT}. Received: {document['format']!r}.")
    if not isinstance(document["nodes"], list) or not document["nodes"]:
        raise FormatError("expected a list of nodes.")
    if not fits(document["output_dtypes"], Mapping[str, str]):
        raise FormatError("expected output_dtypes as an object of strings.")
    for number, entry in enumerate(document["nodes"]):
        _audit_node(number, entry, states)
    operators = [n for n, entry in enumerate(document["nodes"]) if entry["kind"] == "operator"]
    if states.keys() - set(operators):
        raise FormatError("there is state for nodes that are no operators.")


def _audit_node(number: int, entry: Any, states: Mapping[int, State]) -> None:
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if (
        not isinstance(kind, str)
        or kind not in _KINDS
        or entry.keys() != _KINDS[kind] | {"kind", "parents"}
    ):
        raise FormatError(
            f"node {number} is not a node of a known kind with just the keys that it needs."
        )
    parents = entry["parents"]
    if not isinstance(parents, list) or any(
        type(p) is not int or not 0 <= p < number for p in parents
    ):
        raise FormatError(
            f"node {number} needs earlier nodes as its parents. Received: {parents!r:.200}."
        )
    least, most = _PARENTS.get(kind, (1, 1))
    if not least <= len(parents) <= most:
        raise FormatError(f"node {number} has {len(parents)} parents, which a {kind} node cannot.")
    _audit_names(number, kind, entry)
    if kind == "operator":
        _audit_operator(number, entry, states)


def _audit_names(number: int, kind: str, entry: Any) -> None:
    if not isinstance(entry.get("name", ""), str):
        raise FormatError(f"node {number} needs a name.")
    nested = str | Sequence[str] if kind in ("select", "keep") else str
    if not fits(entry.get("names", []), Sequence[nested]):  # type: ignore[valid-type]
        raise FormatError(f"node {number} needs a list of names.")
    if kind == "select" and not entry["names"]:
        raise FormatError(f"node {number} selects nothing.")


def _audit_operator(number: int, entry: Any, states: Mapping[int, State]) -> None:
    operator = OPERATORS.get(entry["operator"]) if isinstance(entry["operator"], str) else None
    if operator is None:
        raise FormatError(f"node {number}: unknown operator {entry['operator']!r:.200}.")
    try:
        check_config(operator, entry["config"])
    except FormatError as error:
        raise FormatError(f"node {number}: {error}") from None
    if operator.learns != (number in states):
        raise FormatError(
            f"node {number}: {operator.__name__} has "
            f"{'no state, and needs one' if operator.learns else 'state, and learns nothing'}."
        )


def _construct(document: Any, states: Mapping[int, State]) -> Workflow:
    nodes: list[Node] = []
    for number, entry in enumerate(document["nodes"]):
        parents = [nodes[p] for p in entry["parents"]]
        nodes.append(_construct_node(entry, parents, states.get(number, {})))
    workflow = Workflow(nodes[-1])
    if workflow.nodes != nodes:
        raise FormatError(
            "the nodes are not in the order of one graph that ends in the last of them."
        )
    workflow.restore(Schema.from_json(document["inputs"]), dict(states), document["output_dtypes"])
    # Building the program checks that every column and all state that it needs are there.
    _ = workflow.program
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
    if kind == "select":
        return ColumnSelector(names)
    return SubsetNode(parents[0], names, keep=kind == "keep")
