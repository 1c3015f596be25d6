"""A network of any kind as an ONNX model."""

from __future__ import annotations

from typing import cast

from exporter.errors import ExportError
from exporter.write.onnx.adapt_network import adapt_network
from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.nearest_items import with_nearest_items
from exporter.write.onnx.quotients import with_safe_quotients
from exporter.write.onnx.reductions import with_axes_from_the_front
from exporter.write.onnx.without_rows import with_a_row
from training.network.nearest_items import NearestNetwork
from training.network.network import Network, TensorFlowNetwork
from training.network.onnx_network import OnnxNetwork
from workflow.schema.names import listed


def network_to_onnx(network: Network) -> OnnxModel:
    """A network in inference mode, its inputs and outputs named as in its signature.

    Raises:
        ExportError: it cannot be converted, or an input and an output have one name.
    """
    model = _converted(network)
    graph = model.proto.graph
    twice = sorted({own.name for own in graph.input} & {made.name for made in graph.output})
    if twice:
        raise ExportError(
            "Expected outputs of the network with other names than its columns, since tensors of ONNX "
            f"have one name each. Received: the output and the column {listed(map(repr, twice))}. "
            "Rename one of them, such as the column by `ops.Rename`, and the network's input with it."
        )
    return model


def _converted(network: Network) -> OnnxModel:
    if isinstance(network, NearestNetwork):
        return with_nearest_items(network_to_onnx(network.tower), network)
    if isinstance(network, OnnxNetwork):
        return _answering(adapt_network(network))
    from exporter.write.onnx.from_tensorflow.network import convert_network  # noqa: PLC0415

    return _answering(convert_network(cast("TensorFlowNetwork", network)))


def _answering(model: OnnxModel) -> OnnxModel:
    """An equal model without what onnxruntime refuses, or ends the server for."""
    return with_a_row(with_axes_from_the_front(with_safe_quotients(model)))
