"""A program's steps as nodes, between inputs and outputs of either interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.program import Program

from .graph import Graph, Tensor
from .verbs import EMIT


def emit(graph: Graph, program: Program, sources: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add a program to a graph.

    Args:
        graph: the graph to extend.
        program: the program.
        sources: the tensors of its inputs.

    Returns:
        The tensors of its outputs, each with all rows.

    Raises:
        ExpressionError: ONNX has no operators for a step of the program.
    """
    made: list[Tensor] = []
    for number, step in enumerate(program.steps):
        if step.verb == "source":
            made.append(sources[step.parameters["name"]])
        elif step.verb == "constant":
            value = step.parameters["value"]
            name = graph.constant(value, step.type.dtype)
            limits = (value, value) if type(value) is int else None
            made.append(Tensor(name, constant=True, limits=limits))
        else:
            types = [program.steps[o].type for o in step.operands]
            made.append(_emit(graph, program, number, types, [made[o] for o in step.operands]))
    shape = _scalar_shape(graph, sources)
    return {column.name: _spread(graph, made[step], shape) for column, step in program.outputs}


def _emit(
    graph: Graph, program: Program, number: int, types: Sequence[Type], operands: Sequence[Tensor]
) -> Tensor:
    step = program.steps[number]
    try:
        return EMIT[step.verb](graph, step, types, operands)
    except ExpressionError as error:
        names = ", ".join(map(repr, sorted(program.sources_of_steps([number]))))
        raise ExpressionError(f"Column {names}: {error}") from error


def _scalar_shape(graph: Graph, sources: Mapping[str, Tensor]) -> str:
    for source in sources.values():
        return graph.add("Shape", source.lengths or source.values)
    return graph.vector(0, 1)


def _spread(graph: Graph, made: Tensor, shape: str) -> Tensor:
    """A constant output as a column of all rows."""
    if not made.constant:
        return made
    valid = None if made.valid is None else graph.add("Expand", made.valid, shape)
    return replace(made, values=graph.add("Expand", made.values, shape), valid=valid)
