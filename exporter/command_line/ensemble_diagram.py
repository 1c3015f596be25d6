"""A served model as a picture: its steps, and the tensors that go from one to the next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from exporter.command_line.guard import CommandError
from exporter.config import read_config
from workflow.picture import Arrow, Box, Diagram, Drawn, Item
from workflow.schema import DTYPES
from workflow.wire import VALUES

CONFIG = "config.pbtxt"
_DTYPES = {info.triton_config: info.name for info in DTYPES.values()}


@dataclass(frozen=True)
class EnsembleDrawing(Drawn):
    """A drawing of a model of a repository.

    Attributes:
        config: the model's config.
        steps: the configs of its steps, where it is an ensemble.

    Example:
        >>> EnsembleDrawing.read("models", "movielens").show()  # doctest: +SKIP
    """

    config: Any
    steps: tuple[Any, ...]

    @classmethod
    def read(cls, repository: str | Path, name: str) -> EnsembleDrawing:
        """The drawing of a repository's model.

        Raises:
            CommandError: the repository has no such model.
            ExportError: a config that cannot be read.
        """
        root = Path(repository)
        config = read_config(_config_path(root, name))
        steps = [step.model_name for step in config.ensemble_scheduling.step]
        return cls(config, tuple(read_config(_config_path(root, step)) for step in steps))

    def diagram(self) -> Diagram:
        """The request, the steps, and the answer."""
        request, answer = (
            [_item(self.config, tensor, _notes(self.config, kind)) for tensor in tensors]
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

    def _arrows(self, made: dict[str, tuple[int, Item]], answer: Iterable[Item]) -> list[Arrow]:
        """From what makes a tensor of the ensemble to what takes it.

        Args:
            made: the tensors that the request brings.
            answer: those that the answer takes.
        """
        arrows = []
        for number, step in enumerate(self.config.ensemble_scheduling.step, 1):
            arrows += _carried(made, step.input_map.values(), number)
            outputs = {tensor.name: tensor for tensor in self.steps[number - 1].output}
            for own, shared in step.output_map.items():
                made[shared] = number, _item(self.steps[number - 1], outputs[own], {})
        return arrows + _carried(made, (item.name for item in answer), len(self.steps) + 1)


def _carried(made: Mapping[str, tuple[int, Item]], names: Iterable[str], end: int) -> list[Arrow]:
    """One arrow from each box that makes some of the tensors."""
    by_start: dict[int, list[Item]] = {}
    for name in sorted(names, key=list(made).index):
        start, item = made[name]
        by_start.setdefault(start, []).append(item)
    return [Arrow(start, end, items) for start, items in by_start.items()]


def _config_path(repository: Path, name: str) -> Path:
    path = repository / name / CONFIG
    if path.is_file():
        return path
    found = sorted(file.parent.name for file in repository.glob(f"*/{CONFIG}"))
    raise CommandError(
        f"Expected a model among {', '.join(found) or 'none'} in {repository}. Received: {name!r}."
    )


def _item(config: Any, tensor: Any, notes: Mapping[str, str]) -> Item:
    dtype = model_config_pb2.DataType.Name(tensor.data_type)
    name = _DTYPES.get(dtype, dtype.lower())
    shape = ", ".join(_shape(tensor, config.max_batch_size > 0))
    return Item(tensor.name, f"{name} [{shape}]", notes.get(tensor.name, ""))


def _shape(tensor: Any, is_batched: bool) -> list[str]:
    """N are the rows, L is a width that a request chooses, V the values of all rows."""
    dims = list(tensor.dims)
    first = []
    if is_batched:
        first = ["N"]
    elif dims and dims[0] < 0:
        first = ["V" if tensor.name.endswith(VALUES) else "N"]
        dims = dims[1:]
    return first + ["L" if dim < 0 else str(dim) for dim in dims]


def _notes(config: Any, kind: str) -> dict[str, str]:
    """What the exporter's parameters say of tensors beyond dtype and shape."""
    text = config.parameters[kind].string_value if kind in config.parameters else "[]"
    return {column["name"]: "may be null" for column in json.loads(text) if column.get("nullable")}


def _rows(config: Any) -> str:
    most = config.max_batch_size
    return f"up to {most:,} rows" if most else "any number of rows"


def _backend(config: Any) -> str:
    return str(config.platform or config.backend)
