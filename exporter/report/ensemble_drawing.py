"""A served model as a picture: its steps, and the tensors between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonclient.grpc import model_config_pb2

from exporter.errors import ExportError
from exporter.plan.config_pbtxt import config_text, parse_config, read_config
from exporter.plan.model_spec import shape_text
from exporter.repository.manifest import config_of
from workflow.picture import Arrow, Box, Diagram, Drawn, Item
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import time_name
from workflow.wire.format import parse_columns
from workflow.wire.request_rules import is_list_values, parse_limits

if TYPE_CHECKING:
    # Imports TensorFlow.
    from exporter.plan.plan import Plan
    from serving import EnsembleClient

_DTYPES = {info.triton_config: info.name for info in DTYPES.values()}


@dataclass(frozen=True)
class EnsembleDrawing(Drawn):
    """A drawing of a model of a repository.

    Attributes:
        config: the model's config.
        steps: the configs of its steps, if it is an ensemble.

    Example:
        >>> EnsembleDrawing.read("models", "movielens").show()  # doctest: +SKIP
    """

    config: Any
    steps: tuple[Any, ...]

    @classmethod
    def read(cls, repository: str | Path, name: str) -> EnsembleDrawing:
        """The drawing of a repository's model.

        Raises:
            ExportError: the repository has no such model, or a config that cannot be read.
        """
        root = Path(repository)
        config = read_config(config_of(root, name))
        steps = [step.model_name for step in config.ensemble_scheduling.step]
        return cls(config, tuple(read_config(config_of(root, step)) for step in steps))

    @classmethod
    def of_client(cls, client: EnsembleClient) -> EnsembleDrawing:
        """The drawing of the model that a client asks.

        Raises:
            ClientError: the server does not answer.
        """
        config = client.config()
        steps = (client.config(step.model_name) for step in config.ensemble_scheduling.step)
        return cls(config, tuple(steps))

    @classmethod
    def of_plan(cls, plan: Plan) -> EnsembleDrawing:
        """The drawing of a plan's models."""
        published, *steps = (
            parse_config(config_text(model)) for model in (plan.published, *plan.steps)
        )
        return cls(published, tuple(steps))

    def diagram(self) -> Diagram:
        """The request, the steps, and the answer.

        Raises:
            ExportError: configs that do not fit together.
        """
        try:
            return self._diagram()
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ExportError(
                f"Expected the configs of {self.config.name} and its steps to fit together. "
                f"Received: {error} in only one of them. Export the model again."
            ) from error

    def _diagram(self) -> Diagram:
        request, answer = (
            _items(self.config, tensors, _notes(self.config, kind))
            for kind, tensors in (("inputs", self.config.input), ("outputs", self.config.output))
        )
        boxes = [Box("request", _rows(self.config), kind="input")]
        arrows = []
        if self.steps:
            boxes += [Box(step.name, _backend(step)) for step in self.steps]
            arrows = self._arrows({item.name: (0, item) for item in request}, answer)
        else:
            boxes.append(Box(self.config.name, _backend(self.config)))
            arrows = [Arrow(0, 1, request), Arrow(1, 2, answer)]
        boxes.append(Box("answer", items=answer, kind="output"))
        return Diagram(self.config.name, boxes, arrows, noun="tensors")

    def _arrows(self, makers: dict[str, tuple[int, Item]], answer: Iterable[Item]) -> list[Arrow]:
        """Arrows from the maker to the takers of each of the ensemble's tensors."""
        arrows = []
        for number, step in enumerate(self.config.ensemble_scheduling.step, 1):
            arrows += _carried(makers, step.input_map.values(), number)
            model = self.steps[number - 1]
            # In the step's order, since a map in a config has no order.
            for tensor, item in zip(model.output, _items(model, model.output, {}), strict=True):
                makers[step.output_map[tensor.name]] = number, item
        return arrows + _carried(makers, (item.name for item in answer), len(self.steps) + 1)


def _carried(makers: Mapping[str, tuple[int, Item]], names: Iterable[str], end: int) -> list[Arrow]:
    """One arrow from each box that makes some of the tensors."""
    by_start: dict[int, list[Item]] = {}
    places = {name: place for place, name in enumerate(makers)}
    for name in sorted(names, key=places.__getitem__):
        start, item = makers[name]
        by_start.setdefault(start, []).append(item)
    return [Arrow(start, end, items) for start, items in by_start.items()]


def _items(config: Any, tensors: Sequence[Any], notes: Mapping[str, str]) -> list[Item]:
    """A model's inputs or outputs as text."""
    names = {tensor.name for tensor in tensors}
    items = []
    for tensor in tensors:
        dtype = model_config_pb2.DataType.Name(tensor.data_type)
        dims = [-1, *tensor.dims] if config.max_batch_size else tensor.dims
        shape = shape_text(dims, elements=is_list_values(tensor.name, names))
        text = f"{_DTYPES.get(dtype, dtype.lower())} {shape}"
        items.append(Item(tensor.name, text, notes.get(tensor.name, "")))
    return items


def _notes(config: Any, kind: str) -> dict[str, str]:
    """Properties of tensors in the exporter's parameters, beyond dtype and shape."""
    text = config.parameters[kind].string_value if kind in config.parameters else "[]"
    return {
        column.values_name: "; ".join(
            filter(None, [time_name(column.time), "may be null" if column.nullable else ""])
        )
        for column in parse_columns(text)
    }


def _rows(config: Any) -> str:
    text = config.parameters["limits"].string_value if "limits" in config.parameters else "{}"
    limits = (config.max_batch_size, parse_limits(text).get("max_rows"))
    most = min(filter(None, limits), default=0)
    return f"up to {most:,} rows" if most else "any number of rows"


def _backend(config: Any) -> str:
    return str(config.platform or config.backend)
