"""The subject of an export: the preprocessing, the network, and the serving options."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.columns.served_columns import ServedColumns
from exporter.plan.options import ServingOptions
from exporter.plan.runtime import RUNTIMES
from training.item_index import ItemIndex
from training.network.network import TOLERANCE
from training.signature import ModelSignature, TensorSpec
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Program, build
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import WireColumn


@dataclass(frozen=True)
class Pipeline:
    """The subject of an export, and its name.

    Attributes:
        name: the published model's name.
        version: the version folder of all models.
        features: the preprocessing.
        signature: the network's signature.
        options: the serving options, which name the runtime.
        runtimes: the runtimes that can serve the network.
        vector: the output of the network's tower, if a search for items follows, which makes the
            outputs of the signature.
        index: the index that it searches; None for an exact search.
        tolerance: the network's allowed rounding, as `check_parity` has it.
    """

    name: str
    version: int
    features: ServedColumns
    signature: ModelSignature
    options: ServingOptions
    runtimes: tuple[str, ...] = tuple(RUNTIMES)
    vector: TensorSpec | None = None
    index: ItemIndex | None = None
    tolerance: float = TOLERANCE

    @property
    def of_tower(self) -> Pipeline:
        """The same pipeline without the search for items."""
        outputs = () if self.vector is None else (self.vector,)
        return replace(self, signature=replace(self.signature, outputs=outputs), vector=None)

    @property
    def without_onnx(self) -> str:
        """The runtimes for the network that do not preprocess in ONNX, as advice; "" if none."""
        names = [name for name in self.runtimes if RUNTIMES[name].in_tensorflow]
        return " or ".join(f'runtime="{name}"' for name in names)

    @property
    def client_columns(self) -> tuple[WireColumn, ...]:
        """Columns that a client sends; lists are padded if the server joins requests."""
        return tuple(map(self._sent, self.features.inputs))

    def _sent(self, column: WireColumn) -> WireColumn:
        if self.options.ends_at_nul and column.dtype == "string":
            column = replace(column, ends_at_nul=True)
        if self.options.max_batch_size and column.is_list:
            return replace(column, layout="padded", width=self.features.cuts.get(column.name))
        return column

    @property
    def step_columns(self) -> tuple[WireColumn, ...]:
        """Columns that preprocessing passes to a network that is a separate model."""
        batched = self.options.max_batch_size > 0
        return tuple(
            replace(column, layout="padded") if batched and column.layout == "flat" else column
            for column in self.features.outputs
        )

    @property
    def unpadded(self) -> tuple[tuple[WireColumn, ...], tuple[WireColumn, ...]]:
        """The columns that travel in another layout than the network takes: as sent, and as taken."""
        pairs = zip(self.step_columns, self.features.outputs, strict=True)
        differing = [map(_with_nan, pair) for pair in pairs if pair[0] != pair[1]]
        travelling, taken = zip(*differing, strict=True) if differing else ((), ())
        return travelling, taken


def _with_nan(column: WireColumn) -> WireColumn:
    """The column with NaN allowed, which a relay must not refuse."""
    return replace(column, nullable=DTYPES[column.dtype].kind == "float")


def relay(columns: tuple[WireColumn, ...]) -> Program:
    """A program that returns its inputs: its interpreters convert between layouts."""
    schemas = [
        ColumnSchema(c.name, c.dtype, is_list=c.is_list, nullable=c.nullable) for c in columns
    ]
    sources = [source(s.name, Type(s.dtype, s.is_list, s.nullable)) for s in schemas]
    return build(list(zip(schemas, sources, strict=True)), Schema(schemas))
