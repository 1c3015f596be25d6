"""The runtimes by name, and what each can serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Larger tables of ONNX models are in a file of their own: inside the model they would be copied three
# times. Servers map that file once for all instances.
TABLES_FILE, EMBEDDED_BYTES = "tables.data", 64_000_000
# So is the index of a search, which `triton_models.nearest_items.search` reads; it needs an extra.
INDEX_FILE = "items.faiss"
# The parameter in a config that marks the step that searches the index.
INDEX_STEP = "index"


@dataclass(frozen=True)
class RuntimeKind:
    """Properties of a runtime that are known without its libraries.

    Attributes:
        is_fused: whether it serves preprocessing and network as one model.
        is_served: whether the embedded server has its backend. The parity suite and docs/parity.md
            cover only these runtimes; others can be exported all the same.
        ends_at_nul: whether the server reads a string up to a NUL, as Triton's onnxruntime backend
            does, see `WireColumn`.
        in_tensorflow: whether TensorFlow runs the network in the server, so that it cannot be an ONNX model.
        finds_items: whether a search for the nearest items can follow the network.
    """

    is_fused: bool = False
    is_served: bool = True
    ends_at_nul: bool = False
    in_tensorflow: bool = False
    finds_items: bool = True


# exporter/runtimes/registry.py has the implementations.
RUNTIMES: Mapping[str, RuntimeKind] = {
    "tensorflow": RuntimeKind(in_tensorflow=True),
    "onnx": RuntimeKind(ends_at_nul=True),
    "fused_onnx": RuntimeKind(is_fused=True, ends_at_nul=True),
    "fused_tensorflow": RuntimeKind(is_fused=True, in_tensorflow=True, finds_items=False),
}
# Stands for the first runtime in the table that can serve the network.
AUTO = "auto"


def runtimes_for(
    *, in_tensorflow: bool, finds_items: bool = False, by_index: bool = False
) -> tuple[str, ...]:
    """The names of the runtimes that can serve a network.

    Args:
        in_tensorflow: whether TensorFlow can run the network.
        finds_items: whether a search for the nearest items follows it.
        by_index: whether that search is in an index, a step of its own.

    Example:
        >>> "tensorflow" in runtimes_for(in_tensorflow=False)
        False
    """
    return tuple(
        name
        for name, kind in RUNTIMES.items()
        if (in_tensorflow or not kind.in_tensorflow)
        and (kind.finds_items or not finds_items)
        and not (kind.is_fused and by_index)
    )
