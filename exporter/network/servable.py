"""Whether a network does in TensorFlow what its signature says, outside of this process too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.framework import types_pb2

from exporter.errors import ExportError, in_a_line
from training.saved_model import concrete_function
from training.signature import ModelSignature

# They call a function of the process that made them, which no server has.
_OF_THIS_PROCESS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def traced(function: Callable[..., Any], signature: ModelSignature) -> Any:
    """A network's function as a graph, whose outputs are those of the signature.

    Keras believes what a layer says of its outputs (`Lambda(output_shape=...)`,
    `compute_output_spec`); the graph knows.

    Raises:
        ExportError: it cannot be traced, is not servable, or an output is another one.
    """
    try:
        made = concrete_function(function, signature)
    except Exception as error:  # a layer of the user's raises whatever it likes
        raise ExportError(
            "Expected a network that TensorFlow can trace for any number of rows, in inference mode. "
            f"Received: {type(error).__name__}: {in_a_line(error)} Try tf.function(model)(inputs)."
        ) from error
    for output in signature.outputs:
        have = made.structured_outputs[output.name]
        fits = have.dtype.name == output.dtype and have.shape.is_compatible_with(output.shape)
        if not fits or (have.shape.rank and have.shape[0] is not None):
            raise ExportError(
                f"Expected the output {output}, as Keras has it. Received: {have.dtype.name} "
                f"{have.shape} from TensorFlow. Mend the output_shape or dtype of the layer that makes it."
            )
    expect_servable(made)
    return made


def expect_servable(function: Any) -> None:
    """Check that a graph holds nothing that only the process can run which made it.

    Raises:
        ExportError: it calls Python.
    """
    if found := sorted(
        _OF_THIS_PROCESS.intersection(node.op for node in _nodes(function.graph.as_graph_def()))
    ):
        raise ExportError(
            "Expected a network of TensorFlow's operations. "
            f"Received: {', '.join(found)}, which calls Python, where the server has none of your "
            "code. Write tf.numpy_function and tf.py_function in TensorFlow or keras.ops."
        )


def is_half(function: Any) -> bool:
    """Whether a graph computes with floats of two bytes, as mixed precision does."""
    return any(
        attribute.type in (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16)
        for node in _nodes(function.graph.as_graph_def())
        for attribute in node.attr.values()
    )


def _nodes(graph: Any) -> Iterator[Any]:
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        yield from nodes
