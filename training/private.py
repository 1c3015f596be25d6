"""All private names of Keras and TensorFlow that training uses.

Keras has no public way from a tensor of a functional model to its operation, from a tensor to its
mask, to nested layers, and to an optimizer's moments of a variable; TensorFlow has none to end
operations between processes. The exporter uses these functions too.

`tests/test_private_names.py` fails and names any of them that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isroutine
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context


def origin(function: object) -> str:
    """The package that defines a function or a method, "" for None."""
    # Of a method that a class inherits, it is the module of the base class.
    return str(getattr(function, "__module__", "")).split(".")[0] if function else ""


def compiled_with(model: keras.Model) -> dict[str, Any]:
    """The arguments of the last `compile` of a model, by name."""
    return dict(model._compile_config.config)  # noqa: SLF001


def forget_metrics(model: keras.Model) -> None:
    """Drop the metrics of the last `compile`, which Keras keeps if the next one names none."""
    model._compile_metrics = None  # noqa: SLF001


def loss_means(model: keras.Model) -> list[keras.metrics.Mean]:
    """The means that Keras shows of the loss, and of the loss of each of several outputs."""
    # A model without a `loss` has only the losses of its layers.
    return [model._loss_tracker, *getattr(model._compile_loss, "metrics", ())]  # noqa: SLF001


def layers_of(layer: keras.Layer) -> list[keras.Layer]:
    """A layer, or a model, and all layers inside it."""
    return list(layer._flatten_layers())  # noqa: SLF001


def functions_of(part: Any) -> dict[str, Any]:
    """The functions that are settings of a layer or metric, such as an activation, without its methods.

    A config has them by name, and Keras recreates its own function of that name.
    """
    values = vars(part).items()
    return {n: v for n, v in values if isroutine(v) and not hasattr(type(part), n)}


def node_of(tensor: Any) -> Any:
    """The call of an operation that makes a tensor of a functional model."""
    operation, number, _ = tensor._keras_history  # noqa: SLF001
    return nodes_of(operation)[number]


def nodes_of(operation: Any) -> list[Any]:
    """All calls of an operation in functional models."""
    return list(operation._inbound_nodes)  # noqa: SLF001


@contextmanager
def kept_histories(tensors: Sequence[Any]) -> Iterator[None]:
    """Restore the histories of tensors of another model after the block has made models from them."""
    histories = [tensor._keras_history for tensor in tensors]  # noqa: SLF001
    try:
        yield
    finally:
        for tensor, history in zip(tensors, histories, strict=True):
            tensor._keras_history = history  # noqa: SLF001


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """The mask that a layer of Keras has attached to its result, which other operations drop."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: tf.Tensor, mask: tf.Tensor | None) -> None:
    """Attach a mask to a tensor, for the layers of Keras that take it; None for none."""
    tensor._keras_mask = mask  # noqa: SLF001


def replace_build(model: keras.Model, batch_of: Callable[[Any], Any]) -> None:
    """Let Keras build a model from a batch that `batch_of` selects.

    Args:
        model: a model that is compiled for several replicas.
        batch_of: takes the iterator from which `fit` would build the model.
    """
    build = type(model)._maybe_symbolic_build  # noqa: SLF001

    def build_by(iterator: Any = None, data_batch: Any = None) -> None:
        build(model, data_batch=data_batch if iterator is None else batch_of(iterator))

    model._maybe_symbolic_build = build_by  # noqa: SLF001


def state_of(optimizer: keras.Optimizer, kind: str, variable: Any) -> tf.Variable:
    """An optimizer's state of a variable: of kind "momentums", "velocities" ..."""
    place = optimizer._get_variable_index(variable)  # noqa: SLF001
    return getattr(optimizer, kind)[place].value


def states_of(optimizer: keras.Optimizer, variable: keras.Variable) -> list[keras.Variable]:
    """All of an optimizer's state of a variable that has the variable's shape."""
    variables = optimizer._trainable_variables  # noqa: SLF001
    place = optimizer._get_variable_index(variable)  # noqa: SLF001
    lists = [
        values
        for values in vars(optimizer).values()
        if isinstance(values, list) and len(values) == len(variables) and values is not variables
    ]
    states = [values[place] for values in lists if isinstance(values[place], keras.Variable)]
    return [state for state in states if state is not variable and state.shape == variable.shape]


def unknown_to(
    optimizer: keras.Optimizer, variables: Sequence[keras.Variable]
) -> list[keras.Variable]:
    """The variables for which a built optimizer has no state."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
    if not inner.built:
        return []
    variable_ids = {id(variable) for variable in inner._trainable_variables}  # noqa: SLF001
    return [variable for variable in variables if id(variable) not in variable_ids]


@contextmanager
def replaced_value(variable: keras.Variable, value: tf.Variable) -> Iterator[None]:
    """Let a variable of Keras have another value, of any shape, during the block."""
    before = variable._value, variable._shape  # noqa: SLF001
    variable._value, variable._shape = value, tuple(value.shape)  # noqa: SLF001
    try:
        yield
    finally:
        variable._value, variable._shape = before  # noqa: SLF001


@contextmanager
def named_by_position(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Name variables by their positions, so that a SavedModel does not contain their names."""
    names = [variable._handle_name for variable in variables]  # noqa: SLF001
    try:
        for number, variable in enumerate(variables):
            variable._handle_name = f"variable_{number}:0"  # noqa: SLF001
        yield
    finally:
        for variable, name in zip(variables, names, strict=True):
            variable._handle_name = name  # noqa: SLF001


def embedding_settings(column: Any) -> SimpleNamespace:
    """The settings of a column of `tf.feature_column.shared_embeddings`, as of an `embedding_column`."""
    creator = column.shared_embedding_column_creator
    return SimpleNamespace(
        dimension=creator.dimension,
        initializer=creator._initializer,  # noqa: SLF001
        trainable=creator._trainable,  # noqa: SLF001
        ckpt_to_load_from=creator._ckpt_to_load_from,  # noqa: SLF001
        max_norm=column.max_norm,
    )


def as_one_operation(choice: tf.Operation) -> None:
    """Keep TensorFlow from making a switch for each tensor of a `tf.cond`."""
    choice._set_attr("_lower_using_switch_merge", tf.compat.v1.AttrValue(b=False))  # noqa: SLF001


def is_tensorflow_in_use() -> bool:
    """Whether this process has used TensorFlow's devices, and can no longer join others."""
    return context.context()._context_handle is not None  # noqa: SLF001


def limit_waiting(sizes: Mapping[str, int], seconds: float, silence: float) -> None:
    """Limit the times of `tf.distribute`, which are else an hour and ten seconds.

    Args:
        sizes: number of processes of each job, "chief" or "worker"; at least one job.
        seconds: to connect processes.
        silence: seconds without a heartbeat after which a process counts as lost.
    """
    leader = "chief" if "chief" in sizes else "worker"
    context.context().configure_coordination_service(
        "standalone",
        f"/job:{leader}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(1000 * seconds),
        heartbeat_timeout_in_ms=int(1000 * silence),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=job, num_tasks=size)
            for job, size in sizes.items()
        ],
    )


def abort_collectives(message: str) -> None:
    """End all operations between processes with an error, now and from now on."""
    context.context().abort_collective_ops(tf.errors.DEADLINE_EXCEEDED, message)


def expect_peer(job: str, task: int, seconds: float) -> None:
    """Ask another process that `tf.distribute` has connected whether it lives.

    Raises:
        tf.errors.OpError: no answer within so many seconds.
    """
    name = f"/job:{job}/replica:0/task:{task}"
    context.context().check_collective_ops_peer_health(name, timeout_in_ms=int(1000 * seconds))


def wait_for_all(name: str, seconds: float) -> None:
    """Wait until all processes that `tf.distribute` has connected wait under one name.

    Raises:
        tf.errors.OpError: one of them is lost, or does not wait within so many seconds.
    """
    context.context().wait_at_barrier(name, timeout_in_ms=int(1000 * seconds))
