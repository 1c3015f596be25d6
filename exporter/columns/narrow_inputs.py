"""Inputs with the dtype that the network takes, so that no value changes in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workflow.expressions.language.tree import Expression
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program, Step
from workflow.operator.feature import Feature
from workflow.schema.dtypes import DTYPES
from workflow.schema.exact_dtypes import holds, holds_all
from workflow.schema.schema import Schema


def narrow_inputs(program: Program, dtypes: Mapping[str, str]) -> Program:
    """Give a column of integers that reaches the network unchanged the network's own dtype.

    If the input stayed int64 and were passed on as int32, its values would be saturated. As an int32
    input it cannot hold a larger value on any runtime: the client refuses the value and names its row.

    Args:
        program: the preprocessing.
        dtypes: the narrower dtype of each input that has one, by name.

    Returns:
        The same steps over narrower inputs, which are widened again for all other uses.

    Example:
        >>> from workflow.expressions.program.program import build
        >>> from workflow.graph.row_set import sources_of
        >>> from workflow.schema.schema import ColumnSchema
        >>> data = Schema([ColumnSchema("age", "int64", nullable=False)])
        >>> age = ColumnSchema("age", "int32", nullable=False)
        >>> program = narrow_inputs(build([(age, sources_of(data)["age"])], data), {"age": "int32"})
        >>> program.inputs, [step.verb for step in program.steps]
        (Schema(age: int32), ['source'])
    """
    narrowed = {
        number: dtypes[step.parameters["name"]]
        for number, step in enumerate(program.steps)
        if step.verb == "source" and step.parameters["name"] in dtypes
    }
    steps: list[Step] = []
    places: list[int] = []
    wide: dict[int, int] = {}

    def widened(operand: int) -> int:
        if operand not in narrowed:
            return places[operand]
        if operand not in wide:
            steps.append(_cast(places[operand], steps, program.steps[operand].type.dtype))
            wide[operand] = len(steps) - 1
        return wide[operand]

    for number, step in enumerate(program.steps):
        if number in narrowed:
            steps.append(replace(step, type=replace(step.type, dtype=narrowed[number])))
        elif step.verb == "cast" and narrowed.get(step.operands[0]) == step.type.dtype:
            places.append(places[step.operands[0]])
            continue
        else:
            operands = tuple(widened(operand) for operand in step.operands)
            steps.append(replace(step, operands=operands))
        places.append(len(steps) - 1)
    inputs = Schema(c.with_(dtype=dtypes.get(c.name, c.dtype)) for c in program.inputs.columns)
    return Program(inputs, tuple(steps), tuple((c, places[s]) for c, s in program.outputs))


def input_dtypes(
    outputs: Iterable[tuple[Feature, Sequence[str]]], inputs: Schema
) -> dict[str, str]:
    """The inputs that reach the network unchanged but narrower, with their narrowest dtype.

    Args:
        outputs: the workflow's columns for the network, each with the dtypes to which it is cast.
        inputs: the columns of the data.
    """
    narrowest: dict[str, str] = {}
    for feature, dtypes in outputs:
        for dtype in dtypes:
            name = handed_on(feature.expression, dtype, inputs)
            if name and is_narrower(narrowest.get(name, inputs[name].dtype), dtype):
                narrowest[name] = dtype
    return narrowest


def is_narrower(have: str, want: str) -> bool:
    """Whether an integer dtype lacks some values of another one."""
    source, target = DTYPES[have], DTYPES[want]
    return source.is_integer and target.is_integer and not holds_all(target, source)


def handed_on(expression: Expression, dtype: str, inputs: Schema) -> str:
    """The column whose own values an expression holds, apart from fillings, or "".

    Args:
        expression: an expression of a column that the workflow makes.
        dtype: a dtype that holds the fillings.
        inputs: the columns of the data.
    """
    while expression.verb in VERBS:
        first, *fillings = expression.operands
        if not (VERBS[expression.verb].hands_on and all(_is_of(f, dtype) for f in fillings)):
            return ""
        expression = first
    if expression.verb != "source":
        return ""
    column = inputs[expression.parameters["name"]]
    return "" if column.is_time else column.name


def _is_of(filling: Expression, dtype: str) -> bool:
    value = filling.type.value
    return type(value) is int and holds(DTYPES[dtype], value, value)


def _cast(operand: int, steps: list[Step], dtype: str) -> Step:
    type_ = VERBS["cast"].infer([steps[operand].type], {"dtype": dtype})
    return Step("cast", (operand,), {"dtype": dtype}, type_)
