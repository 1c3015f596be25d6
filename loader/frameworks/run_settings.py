"""Settings that make a run what it is, as values of JSON that another run can be compared with."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras

# Parts of a layer's config by which a trained model computes nothing else. `fits` is compared by itself.
_WITHOUT_EFFECT = {"name", "module", "registered_name", "trainable", "seed", "fits", "shard"}
_WITHOUT_EFFECT |= {"validate_ids", "build_config", "build_input_shape", "batch_shape"}
_WORDS = {"keras_history": "number of the layer before"}  # for errors
_LONG = 100  # values of a list, such as a vocabulary, of which a checksum is kept


def setting(given: Any) -> Any:
    """A setting without names, in which Keras counts the objects of a process.

    Example:
        >>> setting({0: keras.regularizers.L2(0.5)})["0"]["config"]
        {'l2': 0.5}
    """
    if isinstance(given, Mapping):
        return {str(key): setting(value) for key, value in given.items() if key != "name"}
    if isinstance(given, (list, tuple)):
        return [setting(value) for value in given]
    if inspect.isfunction(given):  # equal ones may have other bytes
        return given.__name__
    try:
        config = keras.saving.serialize_keras_object(given)
    except NotImplementedError:  # by a user's class, such as one of the learning rate
        return type(given).__name__
    return setting(config) if isinstance(config, Mapping) else config


def different(one: Any, two: Any) -> tuple[Any, Any]:
    """The first parts of two settings that differ.

    Example:
        >>> different({"loss": "mse", "steps": 1}, {"loss": "mse", "steps": 2})
        ('steps=1', 'steps=2')
    """
    if isinstance(one, Sequence) and isinstance(two, Sequence) and not isinstance(one, str):
        for a, b in zip(one, two, strict=False):
            if a != b:
                return different(a, b) if isinstance(a, Mapping) else (a, b)
        return f"{len(one):,} of them", f"{len(two):,}"
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for name in [*one, *two]:
            if one.get(name) != two.get(name):
                a, b = different(one.get(name), two.get(name))
                # Of what lies within each other the last name says most.
                named = isinstance(a, str) and "=" in a
                return (a, b) if named else (f"{name}={a}", f"{name}={b}")
    return one, two


def settings_of_model(model: keras.Model) -> Any:
    """Layers and connections of a model, without weights, names and what sets the first weights.

    Two models of equal settings and weights compute the same, but for functions of a user's own, which
    are known by their names.

    Example:
        >>> relu, tanh = (
        ...     keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name)])
        ...     for name in ("relu", "tanh")
        ... )
        >>> different(settings_of_model(relu), settings_of_model(tanh))
        ('activation=relu', 'activation=tanh')
    """
    config = _config_of(model)
    if "layers" not in config:  # a class of the user's own
        parts = [{"class_name": type(p).__name__, "config": _config_of(p)} for p in model.layers]
        config = {**config, "layers": parts}
    return _as_json(_lasting(config, {}))


def settings_of_loss(loss: Any) -> Any:
    """A loss, or those of several outputs, in one form for all names that Keras has for it."""
    named = keras.tree.map_structure(
        lambda part: keras.losses.get(part) if isinstance(part, str) else part, loss
    )
    return _as_json(_lasting(setting(named), {}))


def _config_of(part: keras.Layer) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lambdas, which are only compared here
        try:
            return dict(part.get_config())
        except Exception:  # noqa: BLE001 - a user's class, whose model can be trained nevertheless
            return {}


def _lasting(value: Any, places: Mapping[str, int]) -> Any:
    """A config without parts that have no effect, and with layers by their places, not by their names."""
    if isinstance(value, Mapping):
        if value.get("class_name") == "__lambda__":  # its bytes name lines of a file
            return "a lambda"
        for place, layer in enumerate(_layers(value)):
            places = {**places, str(layer["config"].get("name")): place}
        return {
            _WORDS.get(key, str(key)): _lasting(part, places)
            for key, part in value.items()
            if key not in _WITHOUT_EFFECT and not str(key).endswith("initializer")
        }
    if isinstance(value, (list, tuple)):
        parts = [_lasting(part, places) for part in value]
        if len(parts) <= _LONG:
            return parts
        text = json.dumps(parts, default=_of_type).encode()
        return f"{len(parts):,} values, {hashlib.sha256(text).hexdigest()[:16]}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return places.get(value, value) if isinstance(value, str) else value


def _layers(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The layers in the config of a model; none in that of another part."""
    layers = config.get("layers")
    parts = layers if isinstance(layers, list) else []
    return [
        one for one in parts if isinstance(one, Mapping) and isinstance(one.get("config"), Mapping)
    ]


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_of_type))


def _of_type(value: Any) -> str:
    return type(value).__name__
