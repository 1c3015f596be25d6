"""ONNX models whose large tables stay outside until they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.errors import ExportError
from exporter.plan.plan import Writer
from exporter.plan.runtime import EMBEDDED_BYTES, TABLES_FILE
from exporter.write.onnx.opsets import expect_opsets, opsets_of, with_opsets
from workflow.expressions.onnx import OUTPUT_SUFFIX, expect_fits, save_onnx
from workflow.schema.dtypes import SchemaError

FILE = "model.onnx"
# Servers map such a file into memory by pages.
_PAGE = 4096


@dataclass(frozen=True)
class Table:
    """An initializer that is read when it is written.

    Attributes:
        shape: its shape.
        read: returns the array.
    """

    shape: tuple[int, ...]
    read: Callable[[], Any]


@dataclass(frozen=True)
class OnnxModel:
    """A model, and the initializers that have not been put into it yet.

    Attributes:
        proto: the model.
        tables: the further initializers, by name.
    """

    proto: onnx.ModelProto
    tables: Mapping[str, Table] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write `model.onnx`, and `tables.data` if the tables are large.

        Raises:
            ExportError: vocabularies too large for the format.
        """
        try:
            self._write(folder)
        except SchemaError as error:
            raise ExportError(str(error)) from error

    def _write(self, folder: Path) -> None:
        expect_fits(self.proto)  # before large tables are written
        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        arrays = {name: table.read() for name, table in self.tables.items()}
        if sum(array.nbytes for array in arrays.values()) > EMBEDDED_BYTES:
            model.graph.initializer.extend(write_tables(folder / TABLES_FILE, arrays))
        else:
            model.graph.initializer.extend(
                numpy_helper.from_array(array, name) for name, array in arrays.items()
            )
        save_onnx(model, folder / FILE)


def writers(models: Mapping[str, OnnxModel], server: str | None) -> dict[str, Writer]:
    """The writers of models by name.

    Args:
        models: the models of an export.
        server: the version of the onnxruntime that serves them; None is the one here.

    Raises:
        ExportError: the server does not have their operations.
    """
    for name, model in models.items():
        expect_opsets(name, model.proto, server)
    return {name: model.write for name, model in models.items()}


def write_tables(path: Path, arrays: Mapping[str, Any]) -> Iterable[TensorProto]:
    """Write arrays in sequence; returns the initializers that refer to them."""
    tensors = []
    with path.open("wb") as file:
        for name, array in arrays.items():
            file.seek(-(-file.tell() // _PAGE) * _PAGE)
            tensor = TensorProto(
                name=name,
                dims=array.shape,
                data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                data_location=TensorProto.EXTERNAL,
            )
            content = _content(array)
            place = {"location": path.name, "offset": file.tell(), "length": content.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            content.tofile(file)
            tensors.append(tensor)
    return tensors


def _content(array: Any) -> Any:
    """The numbers as a file has them; of those that numpy itself lacks, some are half a byte."""
    if array.dtype.isbuiltin == 1:
        return np.ascontiguousarray(array)
    return np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)


def fuse(first: onnx.ModelProto, second: OnnxModel) -> OnnxModel:
    """Join two models: the second takes outputs `<input>__out` of the first, by name.

    Outputs of the first that the second does not take are dropped; inputs of the second that the
    first does not make remain inputs. Operations of the older model are raised to the versions of
    the newer one.

    Raises:
        ExportError: an operation has another meaning in the newer version.
    """
    versions = opsets_of(first) | opsets_of(second.proto)
    first = with_opsets(first, versions)
    second = OnnxModel(with_opsets(second.proto, opsets_of(first)), second.tables)
    results = {output.name for output in first.graph.output}
    outputs = {output.name for output in second.proto.graph.output}
    inputs = [i for i in second.proto.graph.input if i.name + OUTPUT_SUFFIX not in results]
    interface = outputs | {tensor.name for tensor in inputs}

    def renamed(name: str) -> str:
        if name in interface or not name:
            return name
        return name + OUTPUT_SUFFIX if name + OUTPUT_SUFFIX in results else f"network/{name}"

    fused = onnx.ModelProto()
    fused.CopyFrom(first)
    del fused.graph.output[:]
    graph = rename(second.proto.graph, renamed)
    fused.graph.node.extend(graph.node)
    fused.graph.initializer.extend(graph.initializer)
    fused.graph.input.extend(inputs)
    fused.graph.output.extend(graph.output)
    fused.ir_version = max(first.ir_version, second.proto.ir_version)
    return OnnxModel(fused, {renamed(name): table for name, table in second.tables.items()})


def prune(model: OnnxModel) -> OnnxModel:
    """The model with the operations and constants that its outputs depend on."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    names, nodes = {tensor.name for tensor in proto.graph.output}, []
    for node in reversed(model.proto.graph.node):
        if not names.isdisjoint(node.output):
            names.update(node.input, taken_inside([node]))
            nodes.append(node)
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(reversed(nodes))
    proto.graph.initializer.extend(t for t in model.proto.graph.initializer if t.name in names)
    tables = {name: table for name, table in model.tables.items() if name in names}
    return OnnxModel(proto, tables)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside an operation, such as a loop's body, by the names of its attributes."""
    for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g


def taken_inside(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The tensors that the subgraphs of operations take, their own among them."""
    return {
        name
        for node in nodes
        for inner in subgraphs(node)
        for name in (
            *(name for part in inner.node for name in part.input),
            *(value.name for value in inner.output),
            *taken_inside(inner.node),
        )
    }


def rename(graph: onnx.GraphProto, renamed: Callable[[str], str]) -> onnx.GraphProto:
    """A copy of a graph with renamed tensors, including those of subgraphs."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    for value in (*copy.input, *copy.output, *copy.initializer, *copy.value_info):
        value.name = renamed(value.name)
    for node in copy.node:
        node.name = renamed(node.name)
        for names in (node.input, node.output):
            names[:] = [renamed(name) for name in names]
        for inner in subgraphs(node):
            inner.CopyFrom(rename(inner, renamed))
    return copy
