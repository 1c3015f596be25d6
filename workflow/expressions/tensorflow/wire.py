"""The serving interface: input and output tensors in wire form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import tensorflow as tf

from workflow.expressions.program.program import Program
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.names import listed
from workflow.wire.format import WireColumn, wire_inputs, wire_outputs
from workflow.wire.request_rules import NNZS

from .column import TensorColumn
from .interpreter import TensorFlowInterpreter
from .lanes import masks_of
from .verbs import tensor_dtype

# Python's definition of UTF-8: RE2 reads bytes as UTF-8, but its own "." accepts surrogates.
_UTF8 = r"[\x{0}-\x{D7FF}\x{E000}-\x{10FFFF}]*"


class WireInterpreter(tf.Module):  # type: ignore[misc]
    """A program from wire tensors to wire tensors, as one TensorFlow graph.

    Refuses the same requests as the numpy preprocessing, with InvalidArgumentError: row lengths of
    a flat list that do not add up, columns of different numbers of rows, NaN in a float column that
    takes no nulls, and strings that are not UTF-8. Requests with padded lists are joined by the
    server: lengths beyond the row count as its whole width, and negative ones as 0.

    Args:
        program: the program to run.
        inputs: the wire form of the program's inputs; by default derived from their schema.
        outputs: the wire form of its outputs, likewise.

    Raises:
        SchemaError: a wire form that does not fit its column.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> module = WireInterpreter(workflow.program)
        >>> serve = tf.function(module, input_signature=[module.signature])
        >>> tf.saved_model.save(module, "preprocess", signatures=serve)
    """

    def __init__(
        self,
        program: Program,
        inputs: Iterable[WireColumn] | None = None,
        outputs: Iterable[WireColumn] | None = None,
    ) -> None:
        super().__init__()
        self.interpreter = TensorFlowInterpreter(program)
        self._inputs = wire_inputs(program.inputs, inputs)
        self._outputs = wire_outputs(program.output_schema, outputs)

    @property
    def signature(self) -> dict[str, Any]:
        """A `tf.TensorSpec` for each input tensor, by name."""
        return {
            name: tf.TensorSpec(_shape(column, name), tensor_dtype(dtype), name=name)
            for column in self._inputs.values()
            for name, dtype in column.tensors.items()
        }

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The output tensors.

        Args:
            tensors: each tensor in `signature`; others are ignored.

        Returns:
            Each output's tensors, with the shapes that `workflow.wire.format` gives its layout.

        Raises:
            SchemaError: a tensor is missing.
            tf.errors.InvalidArgumentError: the tensors do not fit together.
        """
        missing = [name for name in self.signature if name not in tensors]
        if missing:
            raise SchemaError(f"Expected the tensors {listed(missing)}. Received: none of them.")
        columns = {name: _decode(column, tensors) for name, column in self._inputs.items()}
        # Columns of several lengths cannot be joined, and this error says so.
        with tf.control_dependencies(_check_rows(columns)):
            columns = _with_masks(self._inputs, columns)
            outputs: dict[str, Any] = {}
            for name, column in self.interpreter(columns).items():
                outputs |= _encode(self._outputs[name], column)
        return outputs


def _shape(column: WireColumn, tensor: str) -> list[int | None]:
    return [None if size < 0 else size for size in column.shapes[tensor]]


def _decode(column: WireColumn, tensors: Mapping[str, Any]) -> TensorColumn:
    values, lengths = tensors[column.values_name], None
    if column.is_list:
        lengths = tf.cast(tf.reshape(tensors[column.name + NNZS], [-1]), tf.int64)
    if column.layout == "padded":
        values, lengths = _flatten(values, lengths)
    values = tf.reshape(values, [-1])
    if column.layout == "flat":
        _check_lengths(column, values, lengths)
    return TensorColumn(values, None, lengths)


def _with_masks(
    inputs: Mapping[str, WireColumn], columns: Mapping[str, TensorColumn]
) -> dict[str, TensorColumn]:
    """The columns with masks of their nulls, after checks of their values."""
    masked_columns = dict(columns)
    coded: dict[tuple[str, Any], list[str]] = defaultdict(list)
    for name, column in inputs.items():
        if DTYPES[column.dtype].kind != "float":
            if column.nullable:
                coded[column.dtype, column.null_code].append(name)
        elif not column.nullable:
            # The interpreter treats NaN as null where null is allowed; elsewhere NaN is refused.
            _refuse_nan(column, columns[name].values)
    for (_, code), names in coded.items():
        masks = masks_of([columns[name] for name in names], partial(_differ, code))
        for name, mask in zip(names, masks, strict=True):
            masked_columns[name] = replace(columns[name], valid=mask)
    for name, column in inputs.items():
        if DTYPES[column.dtype].kind == "string":
            _refuse_no_text(column, masked_columns[name].values, masked_columns[name].valid)
    return masked_columns


def _differ(code: Any, values: Any) -> Any:
    return tf.not_equal(values, tf.constant(code, values.dtype))


def _encode(column: WireColumn, output: TensorColumn) -> dict[str, Any]:
    values = output.values
    if output.valid is not None:
        values = tf.where(output.valid, values, tf.constant(column.null_code, values.dtype))
    if column.layout in ("padded", "fixed"):
        rows = tf.RaggedTensor.from_row_lengths(values, output.lengths, validate=False)
        values = rows.to_tensor(shape=[None, column.width])
    else:
        values = tf.reshape(values, [-1, 1])
    tensors = {column.values_name: values}
    if column.layout in ("flat", "padded"):
        lengths = output.lengths
        if column.width is not None:
            lengths = tf.minimum(lengths, column.width)
        lengths = tf.cast(lengths, column.nnzs_dtype)
        tensors[column.name + NNZS] = tf.reshape(lengths, [-1, 1])
    return tensors


def _require(condition: Any, text: str) -> Any:
    # The plain operation: tf.debugging.Assert adds a branch, which costs more.
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(text)])


def _check_rows(columns: Mapping[str, TensorColumn]) -> list[Any]:
    """The operation that fails if columns differ in their number of rows, if there are several."""
    counted = [c.values if c.lengths is None else c.lengths for c in columns.values()]
    rows: list[Any] = []
    for dtype in dict.fromkeys(tensor.dtype for tensor in counted):
        # One operation for each dtype, since one for each column would take noticeable time.
        rows += tf.shape_n([tensor for tensor in counted if tensor.dtype == dtype])
    if len(rows) < 2:
        return []
    same = tf.reduce_all(tf.equal(tf.stack(rows), rows[0]))
    check = _require(same, "The columns differ in their number of rows.")
    return [] if check is None else [check]  # None outside of a graph


def _flatten(rows: Any, lengths: Any) -> tuple[Any, Any]:
    """The values of padded rows in sequence, and the lengths, each from 0 to the rows' width.

    A failure would be that of all requests that the server has joined.
    """
    width = tf.shape(rows, tf.int64)[1]
    lengths = tf.clip_by_value(lengths, 0, width)
    # Equivalent to tf.boolean_mask and tf.sequence_mask, with twelve operations fewer.
    return tf.gather_nd(rows, tf.where(tf.range(width) < lengths[:, tf.newaxis])), lengths


def _check_lengths(column: WireColumn, values: Any, lengths: Any) -> None:
    count = tf.size(values, tf.int64)
    # A sum could overflow to the right total, so each length is compared with the total first.
    inside = tf.logical_and(tf.greater_equal(lengths, 0), tf.less_equal(lengths, count))
    fits: Sequence[Any] = (tf.reduce_all(inside), tf.equal(tf.reduce_sum(lengths), count))
    text = f"The row lengths of {column.name} do not add up to its values."
    _require(reduce(tf.logical_and, fits), text)


def _refuse_nan(column: WireColumn, values: Any) -> None:
    absent = tf.reduce_any(tf.math.is_nan(values))
    _require(tf.logical_not(absent), f"Column {column.name} holds NaN and takes no nulls.")


def _refuse_no_text(column: WireColumn, values: Any, valid: Any) -> None:
    is_text = tf.strings.regex_full_match(values, _UTF8)
    if valid is not None:
        is_text = tf.logical_or(is_text, tf.logical_not(valid))
    _require(tf.reduce_all(is_text), f"Column {column.name} holds bytes that are not UTF-8.")
