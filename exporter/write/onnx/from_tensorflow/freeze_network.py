"""A TensorFlow function as a graph without variables, whose large weights are inputs.

tf2onnx takes long to convert constants, and a graph holds at most 2 GB of them. So large weights
stay outside: each is replaced by a single zero while TensorFlow freezes the graph, and by an input
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Weights with more bytes stay outside.
LARGE = 100_000


@dataclass(frozen=True)
class FrozenGraph:
    """A graph without variables.

    Attributes:
        graph: the `GraphDef`.
        outputs: the names of its outputs.
        tables: the large variables, by the names of their inputs.
    """

    graph: Any
    outputs: list[str]
    tables: dict[str, Any]


def freeze(function: Any) -> FrozenGraph:
    """The graph of a concrete function, small variables as constants and large ones as inputs.

    Raises:
        ValueError: a use of variables that TensorFlow cannot freeze.
    """
    # TensorFlow's public function cannot leave values out; tf2onnx uses these parts as well.
    from tensorflow.python.framework import convert_to_constants  # noqa: PLC0415

    large = _large_variables(function)

    class Converter(convert_to_constants._FunctionConverterDataInEager):  # noqa: SLF001
        """A reader of the small variables alone."""

        def _eval(self, tensor: Any) -> Any:
            if any(tensor is variable for variable in large.values()):
                return np.zeros((1,) * len(tensor.shape), tensor.dtype.as_numpy_dtype)
            return super()._eval(tensor)

    data = Converter(function, lower_control_flow=False, aggressive_inlining=True)
    graph, _ = convert_to_constants._replace_variables_by_constants(data)  # noqa: SLF001
    for node in graph.node:
        if node.name in large:
            _make_input(node, large[node.name])
        elif node.op in ("While", "StatelessWhile"):
            _correct_shapes(node, large)
    outputs = [tensor.name for tensor in function.outputs]
    return FrozenGraph(graph, outputs, {f"{name}:0": v for name, v in large.items()})


def _large_variables(function: Any) -> dict[str, Any]:
    """The large variables, by the names of their nodes."""
    names = {
        id(outer): inner.op.name
        for outer, (_, inner) in zip(function.captured_inputs, function.graph.captures, strict=True)
    }
    return {
        names[id(variable.handle)]: variable
        for variable in function.graph.variables
        if np.prod(variable.shape) * variable.dtype.size > LARGE and id(variable.handle) in names
    }


def _correct_shapes(loop: Any, large: Mapping[str, Any]) -> None:
    """Give what a loop takes and returns the shape of the variable, where it has that of the zero."""
    for name, shape in zip(loop.input, loop.attr["output_shapes"].list.shape, strict=True):
        if name in large:
            shape.CopyFrom(large[name].shape.as_proto())


def _make_input(node: Any, variable: Any) -> None:
    """Turn the constant in place of a variable into an input."""
    node.op = "Placeholder"
    node.attr.clear()
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    shape = node.attr["shape"].shape
    shape.CopyFrom(variable.shape.as_proto())
    # TensorFlow's optimiser replaces every input of known shape by a tensor of zeros.
    shape.dim[0].size = -1
