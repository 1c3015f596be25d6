"""Weights of an earlier model as those with which a model of a newer fit begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from training.calls import Calls
from training.errors import TrainingError
from training.initial_weights.id_moves import Ids, id_move
from training.initial_weights.reads import Reads, reads_of
from training.layers import EmbeddingBag
from training.layers.records_fits import fits_of_model
from training.layers.sequence_embedding import SequenceEmbedding
from training.private import layers_of
from training.retrieval.frequency import StreamingFrequency
from training.retrieval.sampling import SampledItems
from training.sharding.layout import assign_rows, layout_of
from training.table_sizes import columns_of_inputs, inputs_of
from training.tables.shared_table import SharedTable
from workflow import Workflow
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames
from workflow.schema.tags import fits_of, other_fits

_BLOCK = 2**20  # values, 4 MB of float32


@dataclass(frozen=True)
class WarmStart(metaclass=OwnNames):
    """The result of `warm_start`; printed, it is a line for each column, and for what begins anew.

    Attributes:
        columns: column -> how many of its ids begin with an earlier vector, and how many it has. The
            ids of padding, null and values outside the vocabulary count too.
        weights: the number of other variables that begin with their earlier values.
        anew: table or variable -> why it begins as in a new model.
    """

    columns: Mapping[str, tuple[int, int]]
    weights: int
    anew: Mapping[str, str]

    def __str__(self) -> str:
        columns = [
            f"{column}: {count:,} of {rows:,} ids begin with their earlier vectors"
            for column, (count, rows) in self.columns.items()
        ]
        variables = f"{self.weights} other variables begin with their earlier values"
        anew = [f"{name} begins anew: {reason}" for name, reason in self.anew.items()]
        return "\n".join([*columns, variables, *anew])


def warm_start(
    model: keras.Model, workflow: Workflow, *, earlier: keras.Model, earlier_workflow: Workflow
) -> WarmStart:
    """Begin with the weights of an earlier model, although a newer fit gives the values other ids.

    Each value's vector goes to the id that the value has now, in tables of our layers and of
    `keras.layers.Embedding` that read a column of the data. Padding, null and values outside the
    vocabulary keep theirs too, and a new value has the vector that `model` was made with. Ids that
    are in the raw data keep theirs. All other weights are taken over in their order. Then `train`
    the model; its optimizer begins anew.

    Tables of `model` may be divided among workers (`shard=`), which all call it then; those of
    `earlier` are whole. An earlier model that was trained with `shard=` has whole tables in a process
    without `join_workers`: begin there, save `model`, and load it in the workers.

    Args:
        model: a model for the output of `workflow`, made by the code of the earlier one, such as one
            of `models`; it is changed. If it has other columns, other widths, or another order of
            its inputs, what has another shape begins anew, and so do layers that read the columns.
        workflow: the newer fit.
        earlier: the model that was trained.
        earlier_workflow: the fit that it was trained on.

    Returns:
        What was taken over, and what was not; print it.

    Raises:
        TrainingError: a model was made for another fit than that of its workflow, the two have other
            layers, tables are quantized or have LoRA, ids that have moved enter a layer without a table,
            such as `indicators` of `DenseFeatures`, or tables of `earlier` are divided. Nothing has
            changed then.

    Source: vectors move by value, as with TensorFlow's `tf.keras.utils.warmstart_embedding_matrix`.

    Example:
        >>> from training import models
        >>> from workflow import ops
        >>> monday, tuesday = (
        ...     Workflow(["item"] >> ops.Categorify()).fit({"item": items})
        ...     for items in (["a"], ["b", "b", "a"])
        ... )
        >>> earlier, model = (models.mlp(fit.output_schema, hidden=[4]) for fit in (monday, tuesday))
        >>> print(warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday))
        item: 4 of 5 ids begin with their earlier vectors
        4 other variables begin with their earlier values
    """
    _expect_own("model", model, "workflow", workflow)
    _expect_own("earlier", earlier, "earlier_workflow", earlier_workflow)
    parts, earlier_parts = _parts(model, workflow), _parts(earlier, earlier_workflow)
    _expect_alike(parts.others, earlier_parts.others)
    _expect_whole(earlier_parts.tables)
    moves = cache(lambda column: id_move(column, workflow, earlier_workflow))
    _expect_embedded(model, parts.embedded, moves)
    columns: dict[str, tuple[int, int]] = {}
    anew: dict[str, str] = {}
    for table, source in _pairs(parts.tables, earlier_parts.tables):
        move = _difference(table, source) or moves(table.column)
        if source is None or isinstance(move, str):
            anew[f"{table.column or 'a table'} in {table.variable.path}"] = str(move)
            continue
        new, old = move or [np.arange(table.rows)] * 2
        fits = (new < table.rows) & (old < source.rows)
        columns[table.column] = (int(fits.sum()), table.rows)
        _copy(table, new[fits], source, old[fits])
    count = 0
    reads = zip(_reads(model, parts), _reads(earlier, earlier_parts), strict=True)
    for variable, value, (now, then) in zip(parts.others, earlier_parts.others, reads, strict=True):
        if variable.shape != value.shape:
            anew[variable.path] = f"its shape is {variable.shape}, was {value.shape}"
        elif now.columns != then.columns and now.shapes == then.shapes:
            anew[variable.path] = f"its layer reads {_change(now.columns, then.columns)}"
        else:
            variable.assign(value)
            count += 1
    return WarmStart(columns, count, anew)


def _reads(model: keras.Model, parts: _Parts) -> list[Reads]:
    widths: dict[str, list[int]] = {}
    for table in parts.tables:
        widths.setdefault(table.column, []).extend(table.width)
    return reads_of(model, parts.others, widths)


def _change(now: Sequence[str], then: Sequence[str]) -> str:
    """The first difference of the columns that a layer reads."""
    pairs = zip_longest(now, then, fillvalue="no column")
    return "{} in the place of {}".format(*next(pair for pair in pairs if pair[0] != pair[1]))


@dataclass(frozen=True)
class _Table:
    """Rows of a variable, one for each id of a column.

    Attributes:
        column: the column, "" if it is unknown.
        variable: the variable, or this worker's part of it.
        start: the first row.
        rows: the number of ids.
        has_unknown: whether a row for unknown ids follows.
    """

    column: str
    variable: keras.Variable
    start: int
    rows: int
    has_unknown: bool = False

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of a row of the whole table."""
        layout = layout_of(self.variable)
        return tuple((self.variable.shape if layout is None else layout.whole)[1:])


class _Parts(NamedTuple):
    """The variables of a model.

    Attributes:
        tables: those with a row for each id.
        others: all others but those that its own data has made.
        embedded: the columns whose ids a table takes.
    """

    tables: list[_Table]
    others: list[keras.Variable]
    embedded: set[str]


def _parts(model: keras.Model, workflow: Workflow) -> _Parts:
    names, schema = columns_of_inputs(model), workflow.output_schema
    tables: list[_Table] = []
    column_of: dict[int, str] = {}
    skipped_ids: set[int] = set()
    embedded: set[str] = set()
    calls = Calls(model)
    for layer in layers_of(model):
        inputs = [names.get(name, name) for name in inputs_of(layer, calls)]
        column = next((name for name in inputs if name in schema), "")
        if isinstance(layer, EmbeddingBag | SequenceEmbedding):
            embedded |= set(inputs)
            for part in layers_of(layer):
                column_of.setdefault(id(part), column)
        elif isinstance(layer, SharedTable):
            for name, rows in layer.cardinalities.items():
                column = column_of.get(id(layer), names.get(name, name))
                tables.append(_Table(column, layer.embeddings, layer.offsets[name], rows, True))
                embedded.add(column)
        elif isinstance(layer, keras.layers.Embedding):
            if layer.lora_enabled or layer.quantization_mode:
                raise _no_plain_table(layer)
            embedded |= set(inputs)
            tables.append(_Table(column, layer.embeddings, 0, layer.input_dim))
        elif isinstance(layer, StreamingFrequency):
            tables += [
                _Table(column, each, 0, layer.cardinality) for each in (layer.last, layer.interval)
            ]
        elif isinstance(layer, SampledItems):
            skipped_ids |= {id(variable) for variable in layer.weights}
    skipped_ids |= {id(table.variable) for table in tables}
    return _Parts(tables, [v for v in model.weights if id(v) not in skipped_ids], embedded)


def _pairs(
    tables: Sequence[_Table], earlier: Sequence[_Table]
) -> Iterator[tuple[_Table, _Table | None]]:
    """Each table, and the earlier one of its column; of several of a column in their order."""
    queues: dict[str, list[_Table]] = {}
    for table in earlier:
        queues.setdefault(table.column, []).append(table)
    for table in tables:
        of_column = queues.get(table.column)
        yield table, of_column.pop(0) if of_column else None


def _difference(table: _Table, earlier: _Table | None) -> str:
    """The reason for which a table cannot begin with rows of another one, "" if it can."""
    if not table.column:
        return "its layer does not read the ids of a column as they are"
    if earlier is None:
        return "the earlier model has no such table"
    if table.width != earlier.width:
        return f"its vectors have the shape {table.width}, were {earlier.width}"
    return ""


def _copy(table: _Table, to: Ids, earlier: _Table, of: Ids) -> None:
    """Copy the rows of some ids of an earlier table, and its row for unknown ids."""
    if table.has_unknown and earlier.has_unknown:
        to, of = np.append(to, table.rows), np.append(of, earlier.rows)
    block = max(1, _BLOCK // (table.width or (1,))[0])
    for first in range(0, len(to), block):
        ids = slice(first, first + block)
        vectors = tf.gather(earlier.variable.value, earlier.start + of[ids])
        assign_rows(table.variable, table.start + to[ids], vectors)


def _no_plain_table(layer: keras.layers.Embedding) -> TrainingError:
    """The error of a table whose vectors are more than its rows: scales of each row, or a product."""
    has, advice = "LoRA", "warm_start, then enable_lora"
    if layer.quantization_mode:
        has, advice = layer.quantization_mode, "warm_start and train, then quantize"
    return TrainingError(
        f"Expected tables whose rows are the vectors. Received: {layer.name!r} with {has}. Begin with models "
        f"without it: {advice}."
    )


def _expect_own(name: str, model: keras.Model, argument: str, workflow: Workflow) -> None:
    """Refuse a model that is known to be made for another fit."""
    if differ := other_fits(fits_of_model(model), fits_of(workflow.output_schema.columns)):
        raise TrainingError(
            f"Expected in {argument} the fit that {name} was made for or trained on. Received: another, "
            f"by the columns {listed(differ)}."
        )


def _expect_alike(current: Sequence[keras.Variable], earlier: Sequence[keras.Variable]) -> None:
    """Refuse models whose variables, apart from tables, are not the same ones in the same order."""
    names, earlier_names = (
        [variable.name for variable in variables] for variables in (current, earlier)
    )
    if names != earlier_names:
        raise TrainingError(
            "Expected two models that the same code has made, so that the weights of one can be those of "
            f"the other. Received: beside tables {listed(names)} in model, {listed(earlier_names)} in earlier."
        )


def _expect_whole(tables: Sequence[_Table]) -> None:
    """Refuse tables of which this worker has a part."""
    if any(layout_of(table.variable) is not None for table in tables):
        raise TrainingError(
            "Expected earlier with whole tables. Received: one whose tables are divided among the "
            "workers. Call warm_start in one process without join_workers, where they are whole, save "
            "the model that it changes, and load it in the workers."
        )


def _expect_embedded(
    model: keras.Model, embedded: set[str], move: Callable[[str], tuple[Ids, Ids] | str | None]
) -> None:
    """Refuse ids that have moved and enter another layer than a table."""
    for column in dict.fromkeys(columns_of_inputs(model).values()):
        ids = None if column in embedded else move(column)
        if isinstance(ids, tuple) and not np.array_equal(*ids):
            raise TrainingError(
                f"Expected the ids of {column!r} in a table alone, whose rows move with the values. "
                "Received: a model in which they enter another layer, such as `indicators` of "
                "DenseFeatures. Keep the ids as they were: "
                f"Categorify(vocabs={{{column!r}: known_values_and_new_ones}})."
            )
