"""An ONNX model as a user hands it in, and what of it can be served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from training.errors import TrainingError
from training.network.onnx_session import open_session
from workflow.errors import in_a_line
from workflow.expressions.onnx import ROUNDING_OPTIMIZERS
from workflow.schema.names import listed

_CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_HALF = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


class OnnxFile:
    """An ONNX model, from any converter.

    Args:
        model: the path of an `.onnx` file, or a `ModelProto`.

    Attributes:
        proto: the model, without functions; weights in other files are not read.
        folder: where the other files lie; None for a `ModelProto`.
        session: runs the model as it was handed in, its numbers unrounded.

    Raises:
        TrainingError: it cannot be read, onnxruntime cannot run it, or it has parts that are not
            served.
    """

    def __init__(self, model: Path | onnx.ModelProto) -> None:
        self._where = f"{model}" if isinstance(model, Path) else "the ModelProto"
        self.folder = model.parent if isinstance(model, Path) else None
        proto = self._read(model) if isinstance(model, Path) else model
        self._expect_ends(proto.graph)
        self._expect_weights(proto)
        self.session = self._session(model, proto)
        self.proto = inliner.inline_local_functions(proto) if proto.functions else proto
        self._expect_plain(self.proto.graph)

    @property
    def is_half(self) -> bool:
        """Whether it computes in 16-bit floats."""
        graph = self.proto.graph
        casts = (a.i for n in graph.node if n.op_type == "Cast" for a in n.attribute if a.i)
        return not _HALF.isdisjoint([*casts, *(t.data_type for t in graph.initializer)])

    @property
    def weight_bytes(self) -> int:
        """The bytes of the model and of the files beside it with its weights."""
        beside = {*_other_files(self.proto.graph)} if self.folder else set()
        return int(self.proto.ByteSize()) + sum(
            (self.folder / name).stat().st_size for name in beside if self.folder
        )

    def _read(self, path: Path) -> onnx.ModelProto:
        try:
            model = onnx.load(path, load_external_data=False)
        except Exception as error:  # protobuf raises errors of any type for other files
            received = in_a_line(error) if path.is_file() else "no such file"
            raise TrainingError(
                f"Expected an ONNX model in {path}. Received: {received}"
            ) from error
        return model

    def _expect_ends(self, graph: onnx.GraphProto) -> None:
        """Check that there are outputs, and a name for each input."""
        # Of an empty file, and of many that are none.
        if not graph.output:
            raise TrainingError(
                f"Expected an ONNX model in {self._where}. Received: no graph with outputs."
            )
        names = [info.name for info in graph.input]
        if "" in names:
            raise TrainingError(
                f"Expected a name for each input of {self._where}. Received: {listed(map(repr, names))}. "
                "Name them where it is exported, as input_names=[...] of torch.onnx.export does."
            )

    def _expect_weights(self, proto: onnx.ModelProto) -> None:
        """Check that there are the files with weights that the model names."""
        for name in dict.fromkeys(_other_files(proto.graph)):
            if self.folder is None:
                raise TrainingError(
                    "Expected a ModelProto with its weights inside, or the path of its file, beside "
                    f"which the weights lie. Received: weights in {name!r}. Save it with onnx.save, "
                    "and give the path."
                )
            if not (self.folder / name).is_file():
                raise TrainingError(
                    f"Expected the weights of {self._where} in {self.folder / name}, which it names. "
                    "Received: no such file. Move both together."
                )
        for name, end in _ends_in_other_files(proto.graph):
            if self.folder and (size := (self.folder / name).stat().st_size) < end:
                raise TrainingError(
                    f"Expected {end:,} bytes or more of weights in {self.folder / name}, which "
                    f"{self._where} names. Received: {size:,} bytes. Copy both again."
                )

    def _session(self, model: Path | onnx.ModelProto, proto: onnx.ModelProto) -> Any:
        try:
            return open_session(
                model if isinstance(model, Path) else proto.SerializeToString(deterministic=True),
                ROUNDING_OPTIMIZERS,
            )
        except TrainingError:
            raise
        except Exception as error:  # onnxruntime raises errors of several types
            self._expect_known_opsets(proto)
            raise TrainingError(
                f"Expected an ONNX model that onnxruntime can load. Received: {self._where}, and "
                f"{in_a_line(error)}"
            ) from error

    def _expect_known_opsets(self, proto: onnx.ModelProto) -> None:
        """Check that onnxruntime knows the versions of the model's operations."""
        import onnxruntime  # noqa: PLC0415 - has been imported

        for opset in proto.opset_import:
            newest = next((n for n in range(opset.version, 0, -1) if _runs(opset.domain, n)), 0)
            if 0 < newest < opset.version:
                raise TrainingError(
                    f"Expected operations up to opset {newest} of {opset.domain or 'ai.onnx'}, the "
                    f"newest of onnxruntime {onnxruntime.__version__}, which serves them here. "
                    f"Received: opset {opset.version} in {self._where}. Export the network for opset "
                    f"{newest} or a lower one, as with torch.onnx.export(..., opset_version=18)."
                )

    def _expect_plain(self, graph: onnx.GraphProto) -> None:
        """Refuse results of random numbers, or of shapes that depend on values, and sparse weights."""
        for node in graph.node:
            if node.domain in ("", "ai.onnx") and _is_random(node, graph):
                raise TrainingError(
                    "Expected a network that gives a row always the same answer. Received: "
                    f"{node.op_type} {node.name!r} in {self._where}. Export it in evaluation mode, as "
                    "PyTorch's model.eval()."
                )
            if node.op_type in _CONTROL_FLOW and node.domain in ("", "ai.onnx"):
                raise TrainingError(
                    "Expected a network without control flow, whose operations are the same for "
                    f"every request. Received: {node.op_type} {node.name!r} in {self._where}. Export "
                    "it in evaluation mode and by tracing, or write it with Where; in place of PyTorch's "
                    "EmbeddingBag, which becomes a loop, sum an Embedding of padded lists; for scikit-learn's "
                    "nearest neighbors and Gaussian processes use skl2onnx.to_onnx(..., "
                    "options={KNeighborsClassifier: {'optim': 'cdist'}})."
                )
        if graph.sparse_initializer:
            raise TrainingError(
                "Expected a network of dense weights. Received: the sparse "
                f"{graph.sparse_initializer[0].values.name!r} in {self._where}."
            )


def _is_random(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Whether an operation draws numbers: also a dropout, unless its third operand is missing or False."""
    if node.op_type != "Dropout":
        return node.op_type in _RANDOM
    training = [name for name in node.input[2:] if name]
    constants = {n.output[0]: n.attribute for n in graph.node if n.op_type == "Constant"}
    inside = (a.t for name in training for a in constants.get(name, ()) if a.HasField("t"))
    tensors = (*(t for t in graph.initializer if t.name in training), *inside)
    return training != [] and next((bool(numpy_helper.to_array(t)) for t in tensors), True)


def _other_files(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the files in which weights lie."""
    return (name for name, _ in _ends_in_other_files(graph))


def _ends_in_other_files(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """Names of the files that hold tensors, with the byte at which each tensor ends."""
    inside = (a.t for node in graph.node for a in node.attribute if a.HasField("t"))
    for tensor in (*graph.initializer, *inside):
        if onnx.external_data_helper.uses_external_data(tensor):
            lies = onnx.external_data_helper.ExternalDataInfo(tensor)
            yield lies.location, (lies.offset or 0) + (lies.length or 0)


def _runs(domain: str, version: int) -> bool:
    """Whether onnxruntime runs a model with a version of operations."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = {"": 13, domain: version}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()], ir_version=8
    )
    try:
        open_session(model.SerializeToString())
    except Exception:  # noqa: BLE001 - onnxruntime raises errors of several types
        return False
    return True
