"""Versions of operations: one graph has one version of each set."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from exporter.errors import ExportError
from exporter.plan.server_opsets import newest_opsets
from workflow.errors import in_a_line

# Operations whose newer versions only extend the older ones.
_COMPATIBLE = {
    "TreeEnsembleClassifier": (1, 3),
    "TreeEnsembleRegressor": (1, 3),
    "LabelEncoder": (2, 4),
}


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each set of operations, by its domain; "" is ONNX's own."""
    versions: dict[str, int] = {}
    for opset in model.opset_import:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        versions[domain] = max(opset.version, versions.get(domain, 0))
    return versions


def with_opsets(model: onnx.ModelProto, least: Mapping[str, int]) -> onnx.ModelProto:
    """The model with operations of some versions, or of its own if these are newer.

    Raises:
        ExportError: an operation has another meaning in the newer version.
    """
    old = opsets_of(model)
    new = old | {domain: max(n, old.get(domain, 0)) for domain, n in least.items()}
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    _stamp(proto, old)
    if "" in old and old[""] < new.get("", 0) and any(not n.domain for n in model.graph.node):
        proto = _converted(proto, old[""], new[""])
    for domain, version in new.items():
        if domain and old.get(domain, version) < version:
            _expect_same(proto.graph, domain, old[domain], version)
    _stamp(proto, new)
    return proto


def expect_opsets(name: str, model: onnx.ModelProto, server: str | None) -> None:
    """Check that a server's onnxruntime has the operations of a model; None is the one here.

    Raises:
        ExportError: a newer opset.
    """
    newest = newest_opsets(server)
    for domain, version in opsets_of(model).items():
        if version > newest.get(domain, version):
            raise ExportError(
                f"Expected operations of {name} up to opset {newest[domain]} of {domain or 'ai.onnx'}, "
                f"the newest of the server's onnxruntime {server}. Received: opset {version}. Export "
                "the network for an older one, as with torch.onnx.export(..., opset_version=18), or "
                "serve it with a newer onnxruntime."
            )


def _stamp(model: onnx.ModelProto, opsets: Mapping[str, int]) -> None:
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*opset) for opset in opsets.items())


def _converted(model: onnx.ModelProto, have: int, want: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, want)
    except Exception as error:  # it raises errors of several types
        raise ExportError(
            f"Expected a network of opset {want} or a newer one, or one that onnx can raise to it. "
            f"Received: opset {have}, and {in_a_line(error)} Export it for opset {want}, as with "
            f"torch.onnx.export(..., opset_version={want})."
        ) from error


def _expect_same(graph: onnx.GraphProto, domain: str, have: int, want: int) -> None:
    for name in sorted({node.op_type for node in graph.node if node.domain == domain}):
        since = tuple(_since(name, version, domain) for version in (have, want))
        low, high = _COMPATIBLE.get(name, (0, 0))
        if since[0] != since[1] and not low <= since[0] <= since[1] <= high:
            raise ExportError(
                f"Expected operations of {domain} that mean the same in its versions {have}, the "
                f"network's, and {want}, the preprocessing's, which one graph has to share. Received: "
                f'{name}. Export the network for version {want}, or use runtime="onnx".'
            )


def _since(name: str, version: int, domain: str) -> int:
    """The version in which an operation got its meaning; 0 for one that onnx does not know."""
    if not onnx.defs.has(name, version, domain):
        return 0
    return int(onnx.defs.get_schema(name, version, domain).since_version)
