"""A copy of a model's layers that computes faster and borrows the model's variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.private import functions_of, layers_of, node_of
from training.split.faster_dense import faster_dense

POLICIES = {"float32": None, "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def policy_of(precision: str) -> str | None:
    """The Keras dtype policy of a precision; None for the layers' own policies.

    Raises:
        TrainingError: an unknown precision.
    """
    if precision not in POLICIES:
        raise TrainingError(
            f"Expected a precision among {', '.join(POLICIES)}. Received: {precision!r}."
        )
    return POLICIES[precision]


def faster(tower: keras.Model, policy: str | None, xla: bool) -> keras.Model:
    """Layers that compute in place of a tower's, with their own variables.

    Layers that compute in float32 get the policy. The layers that make the outputs keep float32,
    back to the last ones with weights, since a loss in 16 bits does not distinguish close
    predictions.

    Args:
        tower: a functional or sequential model.
        policy: the dtype policy; None for the policy of each layer.
        xla: whether XLA compiles them.

    Returns:
        A copy, which shares the layers that would compute alike; or the tower itself, if nothing can
        be gained, or if only dense layers could gain and one cannot be recreated.

    Raises:
        TrainingError: a layer with weights cannot be recreated from its config.
    """
    if policy is not None:
        return _copied(tower, policy, xla, frozenset())
    if not any(faster_dense(layer, xla) for layer in layers_of(tower)):
        return tower
    try:
        return _copied(tower, None, xla, frozenset())
    except TrainingError:
        return tower


def _copied(
    tower: keras.Model, policy: str | None, xla: bool, shared: frozenset[str]
) -> keras.Model:
    last_layers, copies = _last_layers(tower), []

    def clone(layer: Any) -> Any:
        # A function of keras.ops has no policy: it computes in its inputs' dtype.
        layer_policy = getattr(layer, "dtype_policy", None)
        is_rounded = (
            policy
            and layer.name not in last_layers
            and layer_policy is not None
            and layer_policy.name == "float32"
        )
        is_rounded = is_rounded and not _has_statistics(layer)
        kind = faster_dense(layer, xla)
        if layer.name in shared or (not is_rounded and kind is None):
            # A config does not have all: neither the statistics of a Normalization that was adapted
            # nor attributes that were set later.
            return layer
        try:
            config = layer.get_config()
            if is_rounded:
                config["dtype"] = policy
            again = (kind or type(layer)).from_config(config)
        except (TypeError, ValueError, NotImplementedError) as error:
            # Keras recreates no Lambda; a layer without weights has little to gain.
            if layer.weights:
                raise _not_recreated(layer, error, policy) from error
            return layer
        # The comparison at the end finds this too, but a layer with another function may fail when called.
        if functions_of(layer) != functions_of(again):
            return layer
        copies.append((layer, again))
        return again

    try:
        copy = keras.models.clone_model(tower, clone_function=clone, recursive=True)
    except TrainingError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        raise _not_recreated(tower, error, policy) from error
    if unlike := {layer.name for layer, other in copies if not _is_alike(layer, other)}:
        return _copied(tower, policy, xla, shared | unlike)
    _freeze_alike(copies)
    _check_same(tower, copy)
    return copy


def _not_recreated(layer: Any, error: Exception, policy: str | None) -> TrainingError:
    # Keras shows the whole config first, and the code of a lambda last.
    reason = " ".join(str(error).rpartition("Exception encountered: ")[2].split())
    return TrainingError(
        "Expected layers that can be recreated from their get_config, for another precision. Received: "
        f"{layer.name!r} of {type(layer).__name__}: {reason:.100}. Write a function of your own, such as an "
        "activation, with def and @keras.saving.register_keras_serializable(); or set a dtype policy for "
        f"the model: keras.config.set_dtype_policy({policy!r}) before it is built."
    )


def _freeze_alike(copies: Sequence[tuple[Any, Any]]) -> None:
    """Freeze the variables of copies as the layers' own: a config does not say which ones alone are frozen."""
    for layer, other in copies:
        for original, copied in zip(layer.variables, other.variables, strict=False):
            copied.trainable = original.trainable


def _is_alike(layer: Any, copy: Any) -> bool:
    """Whether a layer that was made from another's config has its attributes, too, in all parts."""
    pairs = zip(layers_of(layer), layers_of(copy), strict=False)
    return all(_attributes(part).items() <= _attributes(other).items() for part, other in pairs)


def _attributes(layer: Any) -> dict[str, Any]:
    """The attributes that a user may set, of types that are compared by their values; functions."""
    values = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
    values = {n: v for n, v in values.items() if isinstance(v, bool | int | float | str)}
    return values | functions_of(layer)


def _has_statistics(layer: Any) -> bool:
    """Whether a layer, or one inside it, derives constants from variables, as Normalization does."""
    return any(
        type(part).load_own_variables is not keras.Layer.load_own_variables
        and not part.trainable_variables
        for part in layers_of(layer)
    )


def _last_layers(tower: keras.Model) -> set[str]:
    """Names of the operations from the outputs back to the last layers with weights, in models inside it too."""
    names: set[str] = set()
    waiting = list(tower.outputs)
    while waiting:
        node = node_of(waiting.pop())
        if node.operation.name not in names:
            names.add(node.operation.name)
            if getattr(node.operation, "outputs", None):
                names |= _last_layers(node.operation)
            if not getattr(node.operation, "weights", None):
                waiting.extend(node.input_tensors)
    return names


def _check_same(tower: keras.Model, copy: keras.Model) -> None:
    shapes = [
        [
            tuple(variable.shape)
            for variable in (*part.trainable_variables, *part.non_trainable_variables)
        ]
        for part in (tower, copy)
    ]
    if shapes[0] != shapes[1]:
        raise TrainingError(
            "Expected layers whose get_config gives the same variables again. "
            f"Received: shapes {shapes[1]} for {shapes[0]}. Use precision='float32'."
        )
