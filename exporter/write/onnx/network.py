"""A network of any kind as an ONNX model."""

from __future__ import annotations

from typing import cast

from exporter.write.onnx.adapt_network import adapt_network
from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.nearest_items import with_nearest_items
from training.network.nearest_items import NearestNetwork
from training.network.network import Network, TensorFlowNetwork
from training.network.onnx_network import OnnxNetwork


def network_to_onnx(network: Network) -> OnnxModel:
    """A network in inference mode, its inputs and outputs named as in its signature.

    Raises:
        ExportError: it cannot be converted.
    """
    if isinstance(network, NearestNetwork):
        return with_nearest_items(network_to_onnx(network.tower), network)
    if isinstance(network, OnnxNetwork):
        return adapt_network(network)
    from exporter.write.onnx.from_tensorflow.network import convert_network  # noqa: PLC0415

    return convert_network(cast("TensorFlowNetwork", network))
