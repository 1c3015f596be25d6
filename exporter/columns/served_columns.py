"""Columns of the workflow that the network takes: their casts, and the inputs that may be null."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.columns.computed_ranges import expect_ranges
from exporter.columns.list_widths import cut_widths, expect_widths
from exporter.columns.narrow_inputs import input_dtypes, narrow_inputs
from exporter.columns.nulls import settle_nulls
from exporter.errors import ExportError
from training.network.named_inputs import base_of
from training.signature import ModelSignature, TensorSpec
from workflow import Workflow
from workflow.expressions.program.program import Program, build
from workflow.schema.dtypes import DTYPES, dtype_of
from workflow.schema.exact_dtypes import inexact
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import ColumnSchema, Schema, Tags
from workflow.schema.tags import part_of
from workflow.schema.training_data import TrainingData
from workflow.wire.format import WireColumn, wire_column
from workflow.wire.request_rules import NNZS, VALUES


@dataclass(frozen=True)
class Cast:
    """A column whose dtype the network determines."""

    column: str
    made: str
    served: str

    def __str__(self) -> str:
        return f"{self.column}: {self.made} -> {self.served}"


@dataclass(frozen=True)
class ServedColumns:
    """The preprocessing: its program, and the wire form of its columns.

    Attributes:
        program: computes the network's columns, with the network's dtypes, and nothing else.
        inputs: the columns that a client sends.
        outputs: the columns that the network takes.
        casts: the columns whose dtypes in the network and the workflow differ.
        labels: the label columns.
        unused: the workflow's outputs that the network does not take.
        cuts: the widths beyond which a client's lists do not reach the network.
        training_data: facts about the client's columns in the training.
    """

    program: Program
    inputs: tuple[WireColumn, ...]
    outputs: tuple[WireColumn, ...]
    casts: tuple[Cast, ...]
    labels: tuple[str, ...]
    unused: tuple[str, ...]
    cuts: Mapping[str, int]
    training_data: TrainingData


def select_features(
    workflow: Workflow,
    signature: ModelSignature,
    label_columns: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None = None,
) -> ServedColumns:
    """Select the part of a workflow that a network needs.

    Args:
        workflow: a fitted workflow.
        signature: the network's inputs and outputs.
        label_columns: the labels; None for the columns tagged as target.
        sparse_max: the width of each list that the network takes as one input.

    Raises:
        ExportError: the network takes a label, or a column that the workflow does not make; a dtype
            does not hold a column's values; or a null cannot be served.
    """
    schema, inputs = workflow.output_schema, workflow.input_schema
    labels = _labels(workflow, label_columns)
    wires = _wanted_columns(signature, schema, sparse_max or {})
    expect_widths(wires, sparse_max or {})
    _expect_no_label(wires, labels)
    without = {*labels, *(wire.name for wire in wires)}
    columns, casts = [], []
    expressions = workflow.served(wire.name for wire in wires)
    for wire in wires:
        output = schema[wire.name]
        _check_column(output, wire)
        if output.dtype != wire.dtype:
            casts.append(Cast(wire.name, output.dtype, wire.dtype))
        # The dtype assigned to the output comes first, as in training.
        expression = expressions[wire.name].expression.cast(output.dtype).cast(wire.dtype)
        columns.append((output.with_(dtype=wire.dtype), expression))
    outputs = [(expressions[w.name], (schema[w.name].dtype, w.dtype)) for w in wires]
    expect_ranges(outputs, inputs)
    program = settle_nulls(build(columns, inputs))
    program = narrow_inputs(program, input_dtypes(outputs, inputs))
    _expect_no_label_input(program, labels)
    return ServedColumns(
        program=program,
        inputs=tuple(wire_column(column, column.nullable) for column in program.inputs.columns),
        outputs=tuple(wires),
        casts=tuple(casts),
        labels=labels,
        unused=tuple(name for name in schema if name not in without),
        cuts=cut_widths(program, wires) if sparse_max else {},
        training_data=workflow.training_data.keep(program.inputs),
    )


def expect_no_lists(produced: Schema, columns: Mapping[str, str | Sequence[str]]) -> None:
    """Check that matrices of a network are packed from single values.

    Args:
        produced: the workflow's columns.
        columns: input -> its column, or the columns of a matrix.

    Raises:
        ExportError: names the matrix and the list.
    """
    for matrix, names in columns.items():
        lists = [n for n in names if n in produced and produced[n].is_list]
        if not isinstance(names, str) and lists:
            raise ExportError(
                f"Expected single values for the input {matrix!r} of the network, a column each. "
                f"Received: the list {listed(map(repr, lists))}. Let the workflow make numbers of "
                "it (ops.ListSlice, ops.LambdaOp, ops.ValueCount), or give the network an input for it."
            )


def _labels(workflow: Workflow, label_columns: Sequence[str] | None) -> tuple[str, ...]:
    if label_columns is None:
        return tuple(workflow.output_schema.tagged(Tags.TARGET))
    outputs = workflow.output_schema
    for name in label_columns:
        if name not in outputs and name not in workflow.input_schema:
            raise ExportError(
                f"Label {name!r} is not a column of the workflow. Its outputs are {listed(outputs)}."
                f"{did_you_mean([name], [*outputs, *workflow.input_schema])} "
                "Labels are columns of the training data; outputs of the network keep their names."
            )
    return tuple(label_columns)


def _wanted_columns(
    signature: ModelSignature, produced: Schema, sparse_max: Mapping[str, int]
) -> list[WireColumn]:
    """The network's inputs as columns; `x__values` and `x__nnzs` are two halves of one column."""
    specs = {spec.name: spec for spec in signature.inputs}
    columns: dict[str, WireColumn] = {}
    missing = []
    for name, spec in specs.items():
        width = spec.shape[1]
        if (
            name in produced
            and produced[name].is_list
            and (width != 1 or sparse_max.get(name) == 1 or _is_of_one(produced[name]))
        ):
            columns[name] = WireColumn(name, spec.dtype, "fixed", width=width)
            continue
        if name in produced:
            columns[name] = WireColumn(name, spec.dtype)
        elif (column := base_of(name)) in produced:
            columns.setdefault(column, _pair(column, specs))
        else:
            missing.append(name)
        if spec.shape[1] != 1:
            raise ExportError(
                f"Input {name!r} of the network has {spec.shape[1]} columns; the workflow "
                f"{'has one of this name' if name in produced else 'has none of this name'}. "
                "Take a list as the pair of inputs <name>__values and <name>__nnzs, or as one of its width. "
                "The matrix of an ONNX network is packed from columns, in the order of the training: "
                "ServingOptions(columns={input: [column, ...]}). "
                f"The workflow makes {listed(produced)}."
            )
    if missing:
        raise ExportError(
            f"The network takes {listed(map(repr, missing))}, which the workflow does not make. "
            f"It makes {listed(produced)}.{did_you_mean(missing, produced)} "
            + (
                "Give the inputs names: keras.Input(..., name=...), torch.onnx.export(..., "
                "input_names=[...])."
                if _are_made_up(missing)
                else "Name the inputs after its columns, say which columns feed them, "
                "ServingOptions(columns={input: column}), or let it make them."
            )
        )
    return list(columns.values())


def _is_of_one(column: ColumnSchema) -> bool:
    """Whether lists have at most one value, so that an input of width one is intended."""
    return bool(part_of(column, "value_count", "max") == 1)


def _are_made_up(names: Iterable[str]) -> bool:
    """Whether Keras generated some of these names."""
    return any(re.fullmatch(r"(keras_tensor|input|onnx::\w+?)([_.]\d+)?", name) for name in names)


def _pair(column: str, specs: dict[str, TensorSpec]) -> WireColumn:
    halves = [specs.get(column + suffix) for suffix in (VALUES, NNZS)]
    if None in halves:
        raise ExportError(
            f"Expected the inputs {column}{VALUES} and {column}{NNZS} of the network, for the list column "
            f"{column!r}. Received: one of them. Give the network both, or one input of a fixed width."
        )
    values, nnzs = (half for half in halves if half)
    if not dtype_of(nnzs.dtype).is_integer:
        raise ExportError(f"Row lengths are whole numbers. Received: input {nnzs}.")
    return WireColumn(column, values.dtype, "flat", nnzs_dtype=nnzs.dtype)


def _expect_no_label(wires: Iterable[WireColumn], labels: Sequence[str]) -> None:
    for column in wires:
        if column.name in labels:
            raise ExportError(
                f"The network takes {column.name!r}, which is a label. Train without it, or leave it out of "
                "label_columns."
            )


def _expect_no_label_input(program: Program, labels: Sequence[str]) -> None:
    if program.inputs.keys().isdisjoint(labels):
        return
    for column, step in program.outputs:
        needed = program.sources_of_steps([step]) & set(labels)
        if needed:
            raise ExportError(
                "Expected features that do not need the label, which a request lacks. Received: "
                f"{column.name!r}, computed from the label {listed(sorted(needed))}. Train without it, or leave "
                "the label out of label_columns."
            )


def _check_column(output: ColumnSchema, wire: WireColumn) -> None:
    want = DTYPES[wire.dtype]
    if output.is_list != wire.is_list:
        name = output.name
        kind, other = "a list", "one value a row"
        advice = (
            f"the inputs {name}{VALUES} and {name}{NNZS} of one column, or {name} of the list's width "
            f"(for one of width 1 say so: sparse_max={{{name!r}: 1}})"
        )
        if not output.is_list:
            kind, other, advice = other, kind, f"one input {name} of one column"
        raise ExportError(
            f"Column {name!r} is {kind} in the workflow and {other} in the network. "
            f"Give the network {advice}, or change the workflow."
        )
    if reason := inexact(output, want):
        raise ExportError(
            f"Column {output.name!r} {reason}. Received: an input of the network of {want.name}. "
            "Change the workflow or the network's input, so that they agree."
        )
