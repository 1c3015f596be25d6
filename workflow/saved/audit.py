"""Audit of a saved workflow's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflow.expressions.program.safetensors_file import FormatError
from workflow.operator.feature import State
from workflow.operator.operator import OPERATORS
from workflow.operator.settings import check_config, fits

FORMAT = 2
# The number of parents of each kind of node, if not one; an operator's others are dependencies.
_PARENTS = {
    "select": (0, 0),
    "find": (0, 0),
    "concat": (1, 2**31),
    "operator": (1, 2**31),
    "drop": (1, 2),
}
_KINDS = {
    "select": {"names"},
    "find": {"names"},
    "operator": {"operator", "config"},
    "concat": set(),
    "keep": {"names"},
    "drop": {"names"},
    "subgraph": {"name"},
}


def audit(document: Any, states: Mapping[int, State]) -> None:
    """Check all of a document's statements about its graph, before any object is made from it.

    Args:
        document: the content of `workflow.json`.
        states: the content of the state file, by the number of the node.

    Raises:
        FormatError: a key is missing or unknown, a node, an operator or a setting is invalid, or a
            state belongs to no operator.

    Example:
        >>> audit({"format": 2, "nodes": []}, {})
        Traceback (most recent call last):
            ...
        workflow.expressions.program.safetensors_file.FormatError: expected format, inputs, nodes, ...
    """
    keys = {"format", "inputs", "nodes", "output_dtypes", "state", "training_data"}
    audit_format(document)
    if document.keys() != keys:
        raise FormatError(
            "expected format, inputs, nodes, output_dtypes, state and training_data and nothing else."
        )
    if not isinstance(document["nodes"], list) or not document["nodes"]:
        raise FormatError("expected a list of nodes.")
    if not fits(document["output_dtypes"], Mapping[str, str]):
        raise FormatError("expected output_dtypes as an object of strings.")
    for number, entry in enumerate(document["nodes"]):
        _audit_node(number, entry, states)
    operators = [n for n, entry in enumerate(document["nodes"]) if entry["kind"] == "operator"]
    if states.keys() - set(operators):
        raise FormatError("there is state for nodes that are not operators.")


def audit_format(document: Any) -> None:
    """Check the format of a document before anything else in it.

    Raises:
        FormatError: it is another one, newer or missing.
    """
    file_format = document.get("format") if isinstance(document, dict) else None
    if type(file_format) is int and file_format > FORMAT:
        raise FormatError(
            f"its format is {file_format}, which a newer version wrote; this one reads format {FORMAT}. "
            "Update the package, or save the workflow with the version that is installed here."
        )
    if type(file_format) is not int or file_format != FORMAT:
        raise FormatError(f"expected format {FORMAT}. Received: {file_format!r:.100}.")


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
