"""Proof that a network's TensorFlow graph matches its signature and runs in another process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from training.canonical import nodes_of
from training.errors import TrainingError
from training.saved_model import concrete_function, with_strings
from training.signature import ModelSignature
from workflow.errors import in_a_line
from workflow.schema.column import Array

# These call a function of the process that made them, which no server has.
_OF_THIS_PROCESS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}

# These draw other numbers in each call, without a seed among their inputs.
_DRAWS = {
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "RngReadAndSkip",
    "TruncatedNormal",
}
# Types of operations that change a variable begin so.
_CHANGES = ("Assign", "ResourceScatter")

# Numbers of a table that are looked at together.
_BLOCK = 16_000_000


def traced(function: Callable[..., Any], signature: ModelSignature) -> tuple[Any, ModelSignature]:
    """A network's function as a graph, and the signature, which the graph's outputs match.

    Keras trusts a layer's declaration of its outputs (`Lambda(output_shape=...)`,
    `compute_output_spec`), but the graph has the true ones. Strings that Keras has as numbers, as
    those of `StringLookup(invert=True)`, are strings in the signature that is returned.

    Raises:
        TrainingError: it cannot be traced, cannot be served, a weight is not finite, or an output
            differs.
    """
    try:
        graph = concrete_function(function, signature)
    except TrainingError:
        raise
    except Exception as error:  # a user's layer may raise any type
        raise TrainingError(
            "Expected a network that TensorFlow can trace for any number of rows, in inference mode. "
            f"Received: {type(error).__name__}: {in_a_line(error)} Try tf.function(model)(inputs)."
        ) from error
    signature = with_strings(signature, graph)
    for output in signature.outputs:
        have = graph.structured_outputs[output.name]
        fits = have.dtype.name == output.dtype and have.shape.is_compatible_with(output.shape)
        if not fits or (have.shape.rank and have.shape[0] is not None):
            # Keras itself has the ones of IntegerLookup(output_mode="one_hot") as floats.
            numbers = output.dtype != "string"
            cast = f", or put keras.ops.cast(output, {output.dtype!r}) behind it" * numbers
            raise TrainingError(
                f"Expected the output {output}, as Keras has it. Received: {have.dtype.name} "
                f"{have.shape} from TensorFlow. Fix the output_shape or dtype of the layer that "
                f"makes it{cast}."
            )
    expect_servable(graph)
    return graph, signature


def _expect_finite(variables: Iterable[Any]) -> None:
    """Refuse a network that a NaN has reached in training: it answers every row with NaN."""
    for variable in variables:
        if variable.dtype.is_floating and not all(map(_is_finite, _blocks(variable))):
            raise TrainingError(
                f"Expected finite weights. Received: NaN or infinity in {variable.name!r}. Look for "
                "NaN in the training data, or lower the learning rate, and train again."
            )


def _is_finite(values: Any) -> bool:
    return bool(tf.reduce_all(tf.math.is_finite(values)))


def _blocks(variable: Any) -> Iterator[Any]:
    """The values; a large table in blocks of rows, so that no copy of it is made."""
    if not variable.shape.rank:
        yield variable
        return
    rows = max(1, _BLOCK // max(1, math.prod(variable.shape[1:])))
    for start in range(0, variable.shape[0], rows):
        yield variable[start : start + rows]


def expect_servable(function: Any) -> None:
    """Check that a graph runs outside of the process that made it, and has been trained to numbers.

    Raises:
        TrainingError: it calls Python, its answers are others in each call, or a weight is NaN or
            infinite.
    """
    if operations := sorted(
        _OF_THIS_PROCESS.intersection(node.op for node in nodes_of(function.graph.as_graph_def()))
    ):
        raise TrainingError(
            "Expected a network of TensorFlow's operations. "
            f"Received: {', '.join(operations)}, which calls Python, but the server does not have your "
            "code. Write tf.numpy_function and tf.py_function in TensorFlow or keras.ops."
        )
    needed = _ancestry(function.outputs)
    inputs = {tensor.ref() for operation in needed for tensor in operation.inputs}
    handles = {id(outer): inner.ref() for outer, inner in function.graph.captures}
    # Others are only changed, such as those of a metric within a layer.
    variables = [v for v in function.variables if handles.get(id(v.handle)) in inputs]
    changed = {
        operation.inputs[0].ref()
        for operation in function.graph.get_operations()
        if operation.type.startswith(_CHANGES)
    }
    _expect_repeatable(
        [v.name for v in variables if handles[id(v.handle)] in changed],
        sorted({operation.type for operation in needed} & _DRAWS),
    )
    _expect_finite(variables)


def _expect_repeatable(changed: Iterable[str], draws: Iterable[str]) -> None:
    """Refuse a network that answers the same rows otherwise in each call.

    Args:
        changed: names of the variables that it both reads and changes.
        draws: types of its operations that draw random numbers.
    """
    causes = [
        *(f"the variable {name.removesuffix(':0')}, which each call changes" for name in changed),
        *(f"{kind}, which draws random numbers" for kind in draws),
    ]
    if causes:
        raise TrainingError(
            "Expected a network that answers the same rows alike in each call. "
            f"Received: {'; '.join(causes)}. Leave out counters, the state of an RNN, and random "
            "numbers and their seeds, where a layer is called with training=False."
        )


def _ancestry(tensors: Iterable[Any]) -> set[Any]:
    """The operations of a graph on which some tensors depend."""
    operations: set[Any] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting.extend(tensor.op for tensor in operation.inputs)
    return operations


def call_on_cpu(function: Callable[..., Any], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """A network's answer to arrays: on a GPU products differ, and an id beyond a table is no error."""
    with tf.device("/CPU:0"):
        outputs = function(**{name: tf.constant(array) for name, array in tensors.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}


def is_half(function: Any) -> bool:
    """Whether a graph computes in 16-bit floats, as mixed precision does."""
    return any(
        attribute.type in (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16)
        for node in nodes_of(function.graph.as_graph_def())
        for attribute in node.attr.values()
    )


def weight_bytes(function: Any) -> int:
    """The bytes of a graph's variables."""
    return sum(math.prod(v.shape) * v.dtype.size for v in function.variables)
