"""Columns of the data that reach a layer, in the order that its weights have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import keras

from training.calls import Calls
from training.private import layers_of
from training.table_sizes import columns_of_inputs


class Reads(NamedTuple):
    """Columns that reach the layer of a variable without another layer that has weights, but for tables.

    Attributes:
        columns: the columns in the order of the model's inputs, each with the width of its vectors.
        shapes: the shapes of the layer's variables without its tables.
    """

    columns: Sequence[str] = ()
    shapes: Sequence[tuple[int, ...]] = ()


def reads_of(
    model: keras.Model, variables: Sequence[keras.Variable], widths: Mapping[str, Sequence[int]]
) -> list[Reads]:
    """The columns that reach the layer of each variable; none in a model that is not functional.

    Args:
        model: the model.
        variables: its variables without tables.
        widths: column -> the widths of its vectors.

    Example:
        >>> columns = {name: keras.Input((1,), name=name) for name in ("b", "a")}
        >>> output = keras.layers.Dense(1)(keras.layers.Concatenate()([*columns.values()]))
        >>> model = keras.Model(columns, output)
        >>> reads_of(model, model.weights, {})[0].columns
        ["'b'", "'a'"]
    """
    names = columns_of_inputs(model)
    variable_ids = {id(variable) for variable in variables}
    calls = Calls(model)
    by_variable: dict[int, Reads] = {}
    for layer in layers_of(model):
        weights = [weight for weight in layer.weights if id(weight) in variable_ids]
        if layer is model or not weights or not calls.of(layer):
            continue
        reached = {names.get(name, "") for name in _inputs_of(layer, variable_ids, calls)}
        columns = [
            " x ".join([repr(column), *map(str, widths.get(column, ()))])
            for column in dict.fromkeys(names.values())
            if column in reached
        ]
        reads = Reads(columns, [tuple(weight.shape) for weight in weights])
        for weight in weights:
            by_variable.setdefault(id(weight), reads)
    return [by_variable.get(id(variable), Reads()) for variable in variables]


def _inputs_of(layer: keras.Layer, variable_ids: set[int], calls: Calls) -> Iterator[str]:
    """The inputs that reach a layer through tables and layers without weights only."""
    tensors = [tensor for use in calls.of(layer) for tensor in calls.given(use)]
    return calls.inputs(
        tensors,
        lambda part: variable_ids.isdisjoint(map(id, getattr(part, "weights", ()))),
    )
