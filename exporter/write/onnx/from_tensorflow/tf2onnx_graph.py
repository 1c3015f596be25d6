"""Shorthands for the graph that tf2onnx converts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx


def replace(graph: Any, node: Any, operator: str, inputs: list[str], **attributes: Any) -> None:
    """Replace a node by another operation."""
    output = node.output[0]
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    graph.remove_node(node.name)
    graph.make_node(
        operator, inputs, attr=attributes, outputs=[output], shapes=[shape], dtypes=[dtype]
    )


def add(graph: Any, operator: str, *inputs: str, **attributes: Any) -> str:
    """Add an operation, and return the name of its result."""
    return str(graph.make_node(operator, list(inputs), attr=attributes).output[0])


def numpy_dtype(dtype: int) -> np.dtype[Any]:
    """The numpy dtype of one of ONNX."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def constant(graph: Any, name: str, value: Any, dtype: int) -> str:
    """Add a constant of a name that no other has, and return the name."""
    return str(graph.make_const(name, np.array(value, numpy_dtype(dtype))).output[0])


def is_whole(graph: Any, name: str) -> bool:
    """Whether a tensor holds integers."""
    return numpy_dtype(graph.get_dtype(name)).kind in "iu"


def is_known(graph: Any, name: str) -> bool:
    """Whether a tensor is a constant of the graph."""
    node = graph.get_node_by_output(name)
    return node is not None and node.is_const()


def known_numbers(graph: Any, name: str) -> list[Any]:
    """The numbers of a constant in a row; none of another tensor, which only a request knows."""
    if not is_known(graph, name):
        return []
    numbers: list[Any] = (
        graph.get_node_by_output(name).get_tensor_value(as_list=False).reshape(-1).tolist()
    )
    return numbers


def cast(graph: Any, name: str, dtype: int) -> str:
    """Convert a tensor to a dtype, where it has another."""
    if graph.get_dtype(name) == dtype:
        return name
    node = graph.make_node("Cast", [name], attr={"to": dtype}, dtypes=[dtype])
    return str(node.output[0])
