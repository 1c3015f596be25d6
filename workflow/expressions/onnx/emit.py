"""A program's steps as nodes, between inputs and outputs of either interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workflow.expressions.language.types import ExpressionError
from workflow.expressions.numpy.joint_steps import Group, group_steps
from workflow.expressions.program.program import Program

from .graph import Graph, Tensor
from .lanes import apart, side_by_side
from .verbs import EMIT


def emit(graph: Graph, program: Program, sources: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add a program to a graph.

    Returns:
        The tensors of its outputs, each with all rows.

    Raises:
        ExpressionError: ONNX has no operators for a step of the program.
    """
    steps = program.steps
    results: dict[int, Tensor] = {}
    for number, step in enumerate(steps):
        if step.verb == "source":
            results[number] = sources[step.parameters["name"]]
        elif step.verb == "constant":
            value = step.parameters["value"]
            name = graph.constant(value, step.type.dtype)
            limits = (value, value) if type(value) is int else None
            results[number] = Tensor(name, constant=True, limits=limits)
    plan = group_steps(program)
    lanes = {entry.slot: entry.steps for entry in plan if isinstance(entry, Group)}
    for entry in plan:
        if isinstance(entry, Group):
            results |= _emit_lanes(graph, program, entry, lanes, results)
        else:
            operands = [results[o] for o in steps[entry].operands]
            results[entry] = _emit(graph, program, (entry,), operands)
    shape = _scalar_shape(graph, sources)
    return {column.name: _spread(graph, results[step], shape) for column, step in program.outputs}


def _emit_lanes(
    graph: Graph,
    program: Program,
    group: Group,
    lanes: Mapping[int, tuple[int, ...]],
    results: Mapping[int, Tensor],
) -> dict[int, Tensor]:
    """The results of equal steps over several columns, which are computed side by side."""
    if program.steps[group.steps[0]].verb == "lookup":
        return _emit_each(graph, program, group, lanes, results)  # each has its own encoder
    operands = []
    for operand in group.operands:
        if isinstance(operand, int) and operand in results:
            operands.append(results[operand])
            continue
        alone = lanes[operand] if isinstance(operand, int) else operand
        columns = [results[number] for number in alone]
        joint = side_by_side(graph, columns, program.steps[alone[0]].type.dtype)
        if joint is None:
            return _emit_each(graph, program, group, lanes, results)
        operands.append(joint)
    block = _emit(graph, program, group.steps, operands)
    columns = apart(graph, block, len(group.steps))
    return {group.slot: block} | {step: columns[lane] for lane, step in group.shown}


def _emit_each(
    graph: Graph,
    program: Program,
    group: Group,
    lanes: Mapping[int, tuple[int, ...]],
    results: Mapping[int, Tensor],
) -> dict[int, Tensor]:
    """The results of the steps of a group, computed one by one."""
    results = dict(results)
    for operand in group.operands:
        if isinstance(operand, int) and operand in lanes and operand in results:
            # Of columns side by side only those are apart that another step needs.
            columns = apart(graph, results[operand], len(lanes[operand]))
            results |= {n: results.get(n, c) for n, c in zip(lanes[operand], columns, strict=True)}
    operands = {number: program.steps[number].operands for number in group.steps}
    return {n: _emit(graph, program, (n,), [results[o] for o in operands[n]]) for n in group.steps}


def _emit(
    graph: Graph, program: Program, numbers: Sequence[int], operands: Sequence[Tensor]
) -> Tensor:
    """The result of a step, or of equal ones over columns side by side."""
    step = program.steps[numbers[0]]
    types = [program.steps[o].type for o in step.operands]
    try:
        return EMIT[step.verb](graph, step, types, operands)
    except ExpressionError as error:
        names = ", ".join(map(repr, sorted(program.sources_of_steps(numbers))))
        raise ExpressionError(f"Column {names}: {error}") from error


def _scalar_shape(graph: Graph, sources: Mapping[str, Tensor]) -> str:
    for source in sources.values():
        return graph.add("Shape", source.lengths or source.values)
    return graph.vector(0, 1)


def _spread(graph: Graph, output: Tensor, shape: str) -> Tensor:
    """A constant output as a column of all rows."""
    if not output.constant:
        return output
    valid = None if output.valid is None else graph.add("Expand", output.valid, shape)
    return replace(output, values=graph.add("Expand", output.values, shape), valid=valid)
