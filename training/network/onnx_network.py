"""An ONNX model as a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from training.column_facts.recorded_fits import fits_in
from training.errors import TrainingError
from training.network.feature_names import KEY, feature_names
from training.network.named_inputs import expect_distinct, expect_known, name_inputs
from training.network.network import Columns
from training.network.onnx_file import OnnxFile
from training.network.onnx_session import call_session
from training.signature import ModelSignature, TensorSpec, check_names
from workflow.errors import in_a_line
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES
from workflow.schema.names import listed
from workflow.wire.request_rules import NNZS

# The tree of each node, the column that it asks for: of all sorts of tree ensembles.
_FEATURES_OF_TREES = "nodes_featureids"
_IMPUTED = ("imputed_value_floats", "imputed_value_int64s")
_LINEAR = ("LinearClassifier", "LinearRegressor")
# Operations whose result has the columns of their operand, each as that one's.
_BY_COLUMN = {"Binarizer", "Cast", "Clip", "Identity", "Imputer", "Normalizer", "Scaler"}


class OnnxModelFile:
    """An ONNX model by its own names, as a proof of parity needs it.

    Args:
        model: the path of an `.onnx` file, or a `ModelProto`.

    Attributes:
        file: the model.
        inputs: its inputs; a matrix has as many columns as it says, or None.
        feature_names: input -> the columns of which the file says that it consists.
        flat: the names of the inputs of shape (N).
        in_tensorflow: as in `Network`.

    Raises:
        TrainingError: it cannot be served.
    """

    in_tensorflow = False

    def __init__(self, model: Any) -> None:
        self.file = OnnxFile(model if isinstance(model, onnx.ModelProto) else Path(model))
        graph = self.file.proto.graph
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [info for info in graph.input if info.name not in weights]
        self.inputs = tuple(map(_input, inputs))
        self.feature_names = feature_names(self.file.proto, self.inputs)
        self.flat = frozenset(i.name for i in inputs if len(i.type.tensor_type.shape.dim) == 1)
        for info in graph.output:
            _expect_output(info)
        self.outputs = [info.name for info in graph.output]
        if twice := [name for name, count in Counter(self.outputs).items() if count > 1]:
            raise TrainingError(
                "Expected each output of the network once. Received: "
                f"{listed(map(repr, twice))} several times. Leave the others out: "
                "del network.graph.output[...]."
            )

    @cached_property
    def input(self) -> dict[str, TensorSpec]:
        """The input structure of `predict_on_batch`."""
        return {spec.name: spec for spec in self.inputs}

    def run(self, tensors: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs for arrays (N, k), in their own shapes, by name."""
        arrays = {
            name: np.asarray(tensors[name]).astype(DTYPES[spec.dtype].numpy)
            for name, spec in self.input.items()
        }
        fed = {n: array.reshape(-1) if n in self.flat else array for n, array in arrays.items()}
        return call_session(self.file.session, self.outputs, fed)

    def predict_on_batch(self, tensors: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs for arrays (N, k), by name; one number a row is (N, 1)."""
        return {name: array.reshape(len(array), -1) for name, array in self.run(tensors).items()}

    def renamed(self, columns: Mapping[str, str | Sequence[str]]) -> OnnxNetwork:
        """The network with inputs that have the names of the workflow's columns."""
        return OnnxNetwork(self, columns)


class OnnxNetwork:
    """An ONNX model whose inputs are columns of a workflow.

    Args:
        model: the model.
        columns: input -> the column that feeds it, or the columns of a matrix, in order; by default
            those that the file says.

    Attributes:
        columns: own name -> the new name, or the columns of the matrix.
        columnar: the names of the outputs of shape (N), which are served as (N, 1).

    Raises:
        TrainingError: columns that do not fit the inputs, or outputs that are not rows.
    """

    in_tensorflow = False

    def __init__(self, model: OnnxModelFile, columns: Mapping[str, str | Sequence[str]]) -> None:
        self.model = model
        names = [spec.name for spec in model.inputs]
        expect_known(names, columns)
        columns = {**model.feature_names, **columns}
        single = {name: column for name, column in columns.items() if isinstance(column, str)}
        matrices = {n: tuple(c) for n, c in columns.items() if not isinstance(c, str)}
        renamed = name_inputs([name for name in names if name not in matrices], single)
        self.columns: Columns = {**renamed, **matrices}
        for spec in model.inputs:
            self._expect_columns(spec)
        self._expect_order()
        expect_distinct(column for name in names for column in self.columns_of(name))
        inputs = [
            TensorSpec(column, spec.dtype, (None, 1 if spec.name in matrices else spec.shape[1]))
            for spec in model.inputs
            for column in self.columns_of(spec.name)
        ]
        shapes = self._shapes()
        self.columnar = frozenset(name for name, (shape, _) in shapes.items() if not shape)
        outputs = [TensorSpec(n, d, (None, *(shape or (1,)))) for n, (shape, d) in shapes.items()]
        self.signature = ModelSignature(tuple(inputs), tuple(outputs))

    @property
    def is_half(self) -> bool:
        """Whether it computes in 16-bit floats."""
        return self.model.file.is_half

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights."""
        return self.model.file.weight_bytes

    def columns_of(self, own: str) -> tuple[str, ...]:
        """The columns that feed an input."""
        column = self.columns.get(own, own)
        return (column,) if isinstance(column, str) else column

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return self.model.predict_on_batch(self._own(tensors))

    def tables(self) -> tuple[()]:
        """None: a graph does not say which of its inputs are positions in a table."""
        return ()

    def fits(self) -> dict[str, str]:
        """The digests that the file's metadata says."""
        return fits_in(self.model.file.proto.metadata_props)

    def _own(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Tensors by column as tensors by input."""
        return {
            name: np.concatenate([tensors[column] for column in self.columns_of(name)], axis=1)
            for name in self.model.input
        }

    def _expect_columns(self, spec: TensorSpec) -> None:
        """Check that a matrix has its columns named, and as many as it takes."""
        width, columns = spec.shape[1], self.columns.get(spec.name)
        if not isinstance(columns, tuple):
            if width is None:
                raise TrainingError(
                    f"Expected columns for the input {spec.name!r} of the network, which takes any "
                    "number of them. Received: none. Name them in the order of the training: "
                    f'ServingOptions(columns={{{spec.name!r}: ["<column>", ...]}}).'
                )
            return
        graph, shown = self.model.file.proto.graph, str(spec)
        if width is None:
            width, shown = _values_imputed(graph, spec.name), "whose imputer has a value for each"
        if width is not None and len(columns) != width:
            raise TrainingError(
                f"Expected {width} columns for the input {spec.name!r} of the network, "
                f"{shown}. Received: {len(columns)}, {listed(columns)}. "
                "Name those of the training, in its order."
            )
        asked = _features_asked(graph, spec.name)
        if asked > len(columns):
            raise TrainingError(
                f"Expected {asked} columns or more for the input {spec.name!r} of the network, which "
                f"asks for column {asked - 1}, counted from 0. Received: {len(columns)}, "
                f"{listed(columns)}. Name those of the training, in its order."
            )

    def _expect_order(self) -> None:
        """Check that columns are those that the file says, in its order."""
        for name, said in self.model.feature_names.items():
            if (columns := self.columns_of(name)) != said:
                pairs = enumerate(zip(said, columns, strict=False))
                first = next((n for n, (a, b) in pairs if a != b), min(len(said), len(columns)))
                raise TrainingError(
                    f"Expected the columns of the input {name!r} of the network in the order in which "
                    f"its file has them, in the metadata {KEY!r}: {listed(said)}. "
                    f"Received: {listed(columns)}. They differ from column {first} on, counted from 0. "
                    "Leave them out of columns={...}, name them as the file does, or correct the file "
                    "with onnx.helper.set_model_props."
                )

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Each output's shape without its rows, and its dtype.

        A converter may declare others (LightGBM's label of one row), so the network is asked.
        """
        asked = {rows: self._asked(rows) for rows in (2, 3)}
        specs = {}
        for name in self.model.outputs:
            arrays = {rows: outputs[name] for rows, outputs in asked.items()}
            shapes = {array.shape[1:] for array in arrays.values()}
            dtype = "string" if arrays[2].dtype == object else arrays[2].dtype.name
            in_rows = all(array.shape[:1] == (rows,) for rows, array in arrays.items())
            if len(shapes) > 1 or not in_rows or arrays[2].ndim > 2 or dtype not in DTYPES:
                raise TrainingError(
                    f"Expected the output {name!r} of the network of shape (N, k) or (N), a row for "
                    f"each row of its inputs, of a dtype among {', '.join(DTYPES)}. Received: {dtype} "
                    + " and ".join(f"{a.shape} for {rows} rows" for rows, a in arrays.items())
                    + ". Reshape or cast it in the network."
                )
            specs[name] = (arrays[2].shape[1:], dtype)
        return specs

    def _asked(self, rows: int) -> dict[str, Array]:
        """The outputs for rows of zeros, in which each list has one element."""
        try:
            return self.model.run({s.name: self._zeros(s, rows) for s in self.model.inputs})
        except Exception as error:  # onnxruntime raises errors of several types
            inputs = ", ".join(map(self._shown, self.model.inputs))
            remedy = (
                "Name as many columns as it was trained on, and export it with a dynamic first dimension, "
                "as torch.onnx.export does with dynamic_shapes."
            )
            if "Unknown Category" in str(error):
                remedy = (
                    "Train it with an encoder that takes unknown values too, as scikit-learn's "
                    "OneHotEncoder(handle_unknown='ignore')."
                )
            raise TrainingError(
                f"Expected a network that answers any number of rows, such as {rows} of zeros, with the "
                f"inputs {inputs}. Received: {in_a_line(error)} {remedy}"
            ) from error

    def _shown(self, spec: TensorSpec) -> str:
        """An input, and the columns of a matrix."""
        columns = self.columns_of(spec.name)
        if spec.shape[1] is not None:
            return str(spec)
        return f"{spec.name} {spec.dtype} [N, {len(columns)}] of {listed(columns)}"

    def _zeros(self, spec: TensorSpec, rows: int) -> Array:
        value: Any = b"" if spec.dtype == "string" else int(spec.name.endswith(NNZS))
        width = spec.shape[1] or len(self.columns_of(spec.name))
        return np.full((rows, width), value, DTYPES[spec.dtype].numpy)


def _input(info: onnx.ValueInfoProto) -> TensorSpec:
    if (sort := info.type.WhichOneof("value")) not in ("tensor_type", None):
        raise TrainingError(
            f"Expected the input {info.name!r} of the network as a tensor. Received: a "
            f"{str(sort).removesuffix('_type')}. Export the network with an input for each tensor."
        )
    kind = info.type.tensor_type
    dtype = _dtype_name(kind.elem_type)
    sizes = [size.dim_value or None for size in kind.shape.dim]
    if len(sizes) not in (1, 2) or sizes[0] is not None:
        shown = f"[{', '.join(_size(s) for s in kind.shape.dim)}]"
        raise TrainingError(
            f"Expected the input {info.name!r} of the network of shape [N, k] or [N]: any number of "
            f"rows, k columns. Received: {shown if kind.HasField('shape') else 'any shape'}. "
            "Export it with a dynamic first dimension and no other, as torch.onnx.export does with "
            "dynamic_shapes, and skl2onnx with FloatTensorType([None, k])."
        )
    if dtype not in DTYPES:
        raise TrainingError(
            f"Expected the input {info.name!r} of the network of a dtype among {', '.join(DTYPES)}. "
            f"Received: {dtype}. Export it with a float32 input, and cast it in the network."
        )
    return TensorSpec(info.name, dtype, (None, sizes[1] if len(sizes) > 1 else 1))


def _expect_output(info: onnx.ValueInfoProto) -> None:
    kind = info.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        element = info.type.sequence_type.elem_type.WhichOneof("value")
        if element == "map_type":
            received = "a sequence of dictionaries"
            remedy = (
                "Convert it without ZipMap: skl2onnx.to_onnx(..., options={'zipmap': False}), "
                "onnxmltools.convert_lightgbm(..., zipmap=False). CatBoost has no such option: take it out "
                "by zipmap = network.graph.node.pop(); network.graph.output[1].CopyFrom("
                "onnx.helper.make_tensor_value_info(zipmap.input[0], onnx.TensorProto.FLOAT, ['N', None]))."
            )
        else:
            received = "a sequence of tensors" if element else kind
            remedy = (
                "Join it by Concat in the network, or leave it out: del network.graph.output[...]."
            )
        raise TrainingError(
            f"Expected the output {info.name!r} of the network as a tensor. Received: {received}. {remedy}"
        )
    check_names("output", {info.name: info.name})
    dtype = _dtype_name(info.type.tensor_type.elem_type)
    if kind is not None and dtype not in (*DTYPES, "undefined"):
        raise TrainingError(
            f"Expected the output {info.name!r} of the network of a dtype among {', '.join(DTYPES)}. "
            f"Received: {dtype}. Cast it in the network, to float32 for example."
        )


def _dtype_name(number: int) -> str:
    name = onnx.TensorProto.DataType.Name(number)
    dtypes = {info.onnx: info.name for info in DTYPES.values()}
    return dtypes.get(name, name.lower())


def _size(size: Any) -> str:
    return str(size.dim_value) if size.HasField("dim_value") else size.dim_param or "?"


def _takers(graph: onnx.GraphProto, name: str) -> Iterator[onnx.NodeProto]:
    """The operations that take an input, as it is or behind others that keep its columns."""
    matrices = {name}
    for node in graph.node:  # each behind those whose results it takes
        if matrices.intersection(node.input):
            yield node
            if node.op_type in _BY_COLUMN:
                matrices.update(node.output)


def _features_asked(graph: onnx.GraphProto, name: str) -> int:
    """The number of columns of an input for which trees and linear models ask; 0 without these.

    onnxruntime takes a narrower matrix, and reads other rows or other coefficients for the rest.
    """
    return max(map(_features_of, _takers(graph, name)), default=0)


def _features_of(node: onnx.NodeProto) -> int:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in _LINEAR:
        vectors = attributes.get("targets") or len(attributes.get("intercepts", [])) or 1
        return len(attributes.get("coefficients", [])) // vectors
    return max(attributes.get(_FEATURES_OF_TREES, []), default=-1) + 1


def _values_imputed(graph: onnx.GraphProto, name: str) -> int | None:
    """The number of columns of an input for which an imputer has a value each.

    onnxruntime takes its first value for all columns of a narrower or wider matrix.
    """
    attributes = (a for node in _takers(graph, name) for a in node.attribute if a.name in _IMPUTED)
    counts = (len(helper.get_attribute_value(attribute)) for attribute in attributes)
    return next((count for count in counts if count > 1), None)
