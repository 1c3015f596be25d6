"""Inputs of a program that may be null without any output becoming null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exporter.errors import ExportError
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program, Step, with_nullable_inputs
from workflow.schema.names import listed


def settle_nulls(program: Program) -> Program:
    """Allow null in the inputs for which the workflow defines a result.

    Raises:
        ExportError: an output that can be null whatever the inputs are.
    """
    never = with_nullable_inputs(program, dict.fromkeys(program.inputs.names, False))
    open_ = [column.name for column, _ in never.outputs if column.nullable]
    if open_:
        raise ExportError(
            f"Column {listed(map(repr, open_))} can be null, and a network takes no null. "
            "Put FillMissing or Categorify after the operator that makes it null; for trees, which take NaN, "
            'LambdaOp(lambda c: c.fill_null(float("nan"))).'
        )
    causes = _causes(never.steps)
    reaching = {name for _, step in never.outputs for name in causes[step]}
    return with_nullable_inputs(
        program,
        {
            column.name: column.info.kind != "bool" and column.name not in reaching
            for column in program.inputs.columns
        },
    )


def _causes(steps: Sequence[Step]) -> list[set[str]]:
    """The inputs of each step whose nulls make it null, if all others are not null.

    A step's verb is evaluated once for each combination of operands that one input makes nullable,
    so that the time is linear in the number of independent columns.
    """
    causes: list[set[str]] = []
    for step in steps:
        if step.verb == "source":
            causes.append({step.parameters["name"]})
            continue
        before = [causes[operand] for operand in step.operands]
        choices: dict[tuple[bool, ...], set[str]] = {}
        for name in set().union(*before):
            choices.setdefault(tuple(name in names for names in before), set()).add(name)
        step_causes: set[str] = set()
        for choice, names in choices.items():
            if _is_nullable(step, [steps[operand] for operand in step.operands], choice):
                step_causes |= names
        causes.append(step_causes)
    return causes


def _is_nullable(step: Step, operands: Sequence[Step], choice: Sequence[bool]) -> bool:
    types = [
        replace(operand.type, nullable=True) if also else operand.type
        for operand, also in zip(operands, choice, strict=True)
    ]
    return VERBS[step.verb].infer(types, step.parameters).nullable
