"""An ONNX graph under construction, and the few element types that its kernels share.

Most of onnxruntime's kernels lack small and unsigned integers, and a few lack booleans. So a value
is carried in one of five types only: bool, int64 for every integer (a uint64 by its 64 bits),
float32, float64 and string. It has its own dtype at the graph's inputs and outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workflow.expressions.onnx.float64 import keep_float64
from workflow.schema.column import Array, Strings
from workflow.schema.dtypes import DTYPES, SchemaError

OPSET, ML_OPSET, IR_VERSION = 18, 4, 9
_ML_DOMAIN = "ai.onnx.ml"


@dataclass(frozen=True)
class RepeatableLookup:
    """A lookup that can be made again with other results, cheaper than a choice afterwards.

    Attributes:
        limits: the smallest and the largest result of a key.
        missing: the result of other values.
        make: returns the int64 results, from the result of null and that of other values.
    """

    limits: tuple[int, int]
    missing: int
    make: Callable[[int, int], str]


@dataclass(frozen=True)
class Tensor:
    """A column inside the graph, by the names of its tensors.

    Attributes:
        values: shape [N, 1], for a list column [sum of lengths, 1], for a constant [1, 1].
        valid: bool, shaped as `values`, False at a null; None if nothing is null.
        lengths: int64 row lengths, [N, 1], of a list column; else None.
        constant: whether it is equal in every row.
        limits: the smallest and the largest number among the values, if they are known.
        null_code: the value in `values` at every null and nowhere else, if there is one; NaN for
            floats.
        lookup: the lookup that makes `values`, if they are not changed since.
    """

    values: str
    valid: str | None = None
    lengths: str | None = None
    constant: bool = False
    limits: tuple[float, float] | None = None
    null_code: Any = None
    lookup: RepeatableLookup | None = None


def carrier(dtype: str) -> str:
    """The dtype in which values of a dtype are carried.

    Example:
        >>> carrier("uint8"), carrier("float32")
        ('int64', 'float32')
    """
    return "int64" if DTYPES[dtype].is_integer else dtype


def onnx_type(dtype: str) -> int:
    """The number of a dtype in `TensorProto`."""
    return int(getattr(TensorProto, DTYPES[dtype].onnx))


@dataclass
class Graph:
    """Nodes and initializers, deduplicated, and the graph's inputs and outputs.

    Attributes:
        inputs: in the order of calls of `take`.
        outputs: in the order of calls of `give`.
        repeated: of tensors that repeat rows of another one, that one and the number of each row.

    Example:
        >>> graph = Graph()
        >>> doubled = graph.add("Add", "x", "x")
        >>> graph.add("Add", "x", "x") == doubled
        True
    """

    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    repeated: dict[str, tuple[str, str]] = field(default_factory=dict)
    _nodes: list[onnx.NodeProto] = field(default_factory=list)
    _tables: dict[str, onnx.TensorProto] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)
    _converted: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, dtype: str, *shape: str | int) -> str:
        """Add an input and return its carrier; a dimension is a number, or a name if it is dynamic."""
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(dtype), shape))
        return name if carrier(dtype) == dtype else self.cast(name, "int64")

    def give(self, name: str, tensor: str, dtype: str, *shape: str | int) -> None:
        """Add a tensor as an output, in its own dtype."""
        tensor = tensor if carrier(dtype) == dtype else self.cast(tensor, dtype)
        self._nodes.append(helper.make_node("Identity", [tensor], [name], f"/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, onnx_type(dtype), shape))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Apply an operator; returns the name of its output."""
        if operator == "Shape":
            # onnxruntime 1.31 refuses the shape of a converted tensor that is also an output.
            inputs = tuple(self._converted.get(name, name) for name in inputs)
        key = (operator, inputs, tuple(attributes.items()))
        plain = all(isinstance(value, int | str) for value in attributes.values())
        if plain and key in self._known:
            return self._known[key]
        output = f"/{operator}/{len(self._nodes)}"
        domain = _ML_DOMAIN if operator == "LabelEncoder" else ""
        self._nodes.append(
            helper.make_node(operator, inputs, [output], output, domain=domain, **attributes)
        )
        if plain:
            self._known[key] = output
        return output

    def concat(self, columns: Sequence[str]) -> str:
        """Columns side by side; single values of equal type become one constant."""
        tables = [self._tables.get(name) for name in columns]
        if all(table is not None and table.data_type != TensorProto.STRING for table in tables):
            arrays = [numpy_helper.to_array(table) for table in tables if table is not None]
            return self.table(np.concatenate(arrays, axis=1))
        return self.add("Concat", *columns, axis=1)

    def split(self, block: str, count: int) -> list[str]:
        """The columns of a block."""
        key = ("Split", block, count)
        if key not in self._known:
            name = f"/Split/{len(self._nodes)}"
            names = [f"{name}/{number}" for number in range(count)]
            self._nodes.append(
                helper.make_node("Split", [block], names, name, axis=1, num_outputs=count)
            )
            self._known[key] = name
        return [f"{self._known[key]}/{number}" for number in range(count)]

    def ranks(self, texts: str) -> str:
        """The rank of each string among all, which `Unique` computes by comparing bytes."""
        name = f"/Unique/{len(self._nodes)}"
        names = [f"{name}/texts", "", name]
        self._nodes.append(helper.make_node("Unique", [texts], names, name, sorted=1))
        return name

    def constant(self, value: Any, dtype: str) -> str:
        """A single value for use with columns, in the carrier of its dtype.

        Its shape is [1, 1]: with a shape of [1], onnxruntime takes 40 times as long against [N, 1].
        """
        if dtype == "string":
            return self.table(Strings.of([value]), [1, 1])
        with np.errstate(over="ignore"):  # values beyond float32 become infinite
            array = np.array([[value]]).astype(DTYPES[dtype].numpy)
        return self.table(array.astype(carrier(dtype), copy=False))

    def vector(self, *values: int) -> str:
        """Some int64 numbers as a tensor of shape [K]."""
        return self.table(np.array(values, np.int64))

    def table(self, array: Array | Strings, shape: Sequence[int] | None = None) -> str:
        """An array as an initializer; strings are one-dimensional if no shape is given."""
        key = None
        if not isinstance(array, Strings) and array.size <= 4:
            key = (array.dtype.name, array.shape, array.tobytes())
            if key in self._known:
                return self._known[key]
        name = f"/constant/{len(self._tables)}"
        self._tables[name] = tensor_proto(array, name, shape)
        if key is not None:
            self._known[key] = name
        return name

    def cast(self, name: str, dtype: str) -> str:
        """Convert as in C: integers wrap around, fractions are truncated."""
        made = self.add("Cast", name, to=onnx_type(dtype))
        self._converted[made] = self._converted.get(name, name)
        return made

    def every(self, *masks: str | None) -> str | None:
        """The conjunction of masks, where None is always true."""
        result: str | None = None
        for mask in masks:
            if mask is not None and mask != result:
                result = mask if result is None else self.add("And", result, mask)
        return result

    def select(self, condition: str, a: str, b: str, dtype: str) -> str:
        """`a` where the condition holds, else `b`; `dtype` is the dtype of both."""
        if dtype != "bool":
            return self.add("Where", condition, a, b)
        not_b = self.add("And", self.add("Not", condition), b)
        return self.add("Or", self.add("And", condition, a), not_b)

    def look_up(self, name: str, keys: Array | Strings, results: Array, missing: int) -> str:
        """The result for each value among the keys, int64, or `missing`."""
        if len(keys) == 0:
            return self.add("Expand", self.constant(missing, "int64"), self.add("Shape", name))
        return self.add(
            "LabelEncoder",
            name,
            keys_tensor=tensor_proto(keys, "keys"),
            values_tensor=tensor_proto(results, "values"),
            default_tensor=tensor_proto(np.array([missing], np.int64), "default"),
        )

    def model(self, name: str) -> onnx.ModelProto:
        """The model with the nodes that the outputs depend on.

        Raises:
            SchemaError: two inputs or outputs with one name.
        """
        names = [info.name for info in (*self.inputs, *self.outputs)]
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise SchemaError(f"Expected distinct tensor names. Received twice: {twice}.")
        needed_names, nodes = {info.name for info in self.outputs}, []
        for node in reversed(self._nodes):
            if not needed_names.isdisjoint(node.output):
                needed_names.update(node.input)
                nodes.append(node)
        tables = [tensor for key, tensor in self._tables.items() if key in needed_names]
        graph = helper.make_graph(nodes[::-1], name, self.inputs, self.outputs, tables)
        keep_float64(graph)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_ML_DOMAIN, ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def tensor_proto(
    array: Array | Strings, name: str, shape: Sequence[int] | None = None
) -> onnx.TensorProto:
    """An array, or many strings, as a tensor.

    Strings are stored as bytes, so that the null code, which is not UTF-8, can be stored too.
    """
    if not isinstance(array, Strings):
        return numpy_helper.from_array(np.ascontiguousarray(array), name)
    raw = array.data.tobytes()
    tensor = TensorProto(name=name, data_type=TensorProto.STRING, dims=shape or [len(array)])
    tensor.string_data.extend(raw[start:end] for start, end in pairwise(array.offsets.tolist()))
    return tensor
