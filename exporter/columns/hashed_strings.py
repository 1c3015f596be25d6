"""Hashes of strings, which ONNX cannot compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exporter.errors import ExportError
from workflow import Workflow
from workflow.errors import listed
from workflow.expressions.language.tree import Expression
from workflow.expressions.program.program import Program


def expect_no_hashed_strings(workflow: Workflow, program: Program, others: str) -> None:
    """Check that ONNX can compute a program's hashes.

    Args:
        workflow: where the program comes from.
        program: the part of it that is served.
        others: the runtimes that hash strings, as advice; "" if none.

    Raises:
        ExportError: a string is hashed; names the operator, its columns and the remedy.
    """
    steps = program.steps
    hashing = [
        number
        for number, step in enumerate(steps)
        if step.verb == "hash" and steps[step.operands[0]].type.kind == "string"
    ]
    if not hashing:
        return
    columns = listed(map(repr, sorted(program.sources_of_steps(hashing))))
    raise ExportError(
        f"Expected no hashes of strings with a runtime of ONNX, which has no operator for the bytes of a "
        f"string. Received: {listed(_hashing(workflow, program))}, of {columns}. Pass the strings to Categorify "
        f"without num_buckets first{others and f', or use {others}'}."
    )


def _hashing(workflow: Workflow, program: Program) -> list[str]:
    """The operators that make the hashes of strings in a part of a workflow, each as its label."""
    outputs = workflow.outputs()
    left = {id(e) for e in _hashes(outputs[c.name].expression for c, _ in program.outputs)}
    labels: dict[str, None] = {}
    for node, columns in workflow.features().items():
        made = left & {id(e) for e in _hashes(feature.expression for feature in columns.values())}
        if made:
            labels[node.label] = None
        left -= made
    return list(labels)


def _hashes(expressions: Iterable[Expression]) -> Iterator[Expression]:
    """The hashes of strings in some expressions."""
    todo, seen = list(expressions), set()
    while todo:
        expression = todo.pop()
        # Operands are shared, so there are far more paths than expressions.
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        todo += expression.operands
        if expression.verb == "hash" and expression.operands[0].type.kind == "string":
            yield expression
