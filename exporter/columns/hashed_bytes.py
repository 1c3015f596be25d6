"""Hashes of bytes, which ONNX cannot compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exporter.errors import ExportError
from workflow import Workflow
from workflow.expressions.language.tree import Expression
from workflow.expressions.language.verbs import reads_bytes
from workflow.expressions.program.program import Program
from workflow.schema.names import listed


def expect_no_hashed_bytes(workflow: Workflow, program: Program, others: str) -> None:
    """Check that ONNX can compute a program's hashes.

    Args:
        workflow: where the program comes from.
        program: the part of it that is served.
        others: the runtimes that hash strings, as advice; "" if none.

    Raises:
        ExportError: a string is hashed, or TensorFlow's fingerprint made; names the operator, its
            columns and the remedy.
    """
    steps = program.steps
    hashing = [
        number
        for number, step in enumerate(steps)
        if reads_bytes(step.verb, [steps[operand].type for operand in step.operands])
    ]
    if not hashing:
        return
    columns = listed(map(repr, sorted(program.sources_of_steps(hashing))))
    raise ExportError(
        "Expected no hashes of strings, and none of TensorFlow's fingerprints, with a runtime of ONNX, which "
        "has no operator for the bytes of a string or the digits of an integer. "
        f"Received: {listed(_hashing(workflow, program))}, of {columns}. Use Categorify without num_buckets "
        f"before them or in their place{others and f', or use {others}'}."
    )


def _hashing(workflow: Workflow, program: Program) -> list[str]:
    """The operators that make such hashes in a part of a workflow, each as its label."""
    outputs = workflow.outputs()
    ids = {id(e) for e in _hashes(outputs[c.name].expression for c, _ in program.outputs)}
    labels: dict[str, None] = {}
    for node, columns in workflow.features().items():
        hits = ids & {id(e) for e in _hashes(feature.expression for feature in columns.values())}
        if hits:
            labels[node.label] = None
        ids -= hits
    return list(labels)


def _hashes(expressions: Iterable[Expression]) -> Iterator[Expression]:
    """The hashes of bytes in some expressions."""
    todo, seen = list(expressions), set()
    while todo:
        expression = todo.pop()
        # Operands are shared, so there are far more paths than expressions.
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        todo += expression.operands
        if reads_bytes(expression.verb, [operand.type for operand in expression.operands]):
            yield expression
