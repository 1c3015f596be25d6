"""Implementations of the runtimes, by name."""

from __future__ import annotations

from exporter.plan.plan import Runtime


def runtime_of(name: str, *, finds_items: bool = False) -> Runtime:
    """Look up a runtime by name; imports its libraries only, since others may be missing.

    Args:
        name: a key of `exporter.plan.runtime.RUNTIMES`.
        finds_items: whether the network is a `NearestNetwork`.

    Raises:
        NotImplementedError: the name is in `RUNTIMES`, but not here.
    """
    match name:
        case "tensorflow":
            from exporter.runtimes.tensorflow import RUNTIME  # noqa: PLC0415
        case "onnx":
            from exporter.runtimes.onnx import RUNTIME  # noqa: PLC0415
        case "fused_onnx":
            from exporter.runtimes.fused_onnx import RUNTIME  # noqa: PLC0415
        case "fused_tensorflow":
            from exporter.runtimes.fused_tensorflow import RUNTIME  # noqa: PLC0415
        case _:
            raise NotImplementedError(f"exporter/runtimes/registry.py has no runtime {name!r}.")
    if not finds_items:
        return RUNTIME
    from exporter.runtimes.nearest_items import with_nearest_items  # noqa: PLC0415

    return with_nearest_items(RUNTIME)
