"""How a model is to be served, as far as the model itself does not decide."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.errors import ExportError

RUNTIMES = ("tensorflow",)
INSTANCE_KINDS = ("KIND_CPU", "KIND_GPU", "KIND_AUTO")


@dataclass(frozen=True)
class ServingOptions:
    """Options of an export.

    Attributes:
        runtime: what runs the network: "tensorflow" (a SavedModel for Triton's TensorFlow
            backend, native up to 25.02 and ours on any version since 23.10).
        network_instances: how many copies of the network serve at once.
        network_kind: where the network runs, "KIND_CPU", "KIND_GPU" or "KIND_AUTO", which is the
            GPU where the server has one.
        preprocess_instances: how many copies of the preprocessing serve at once; it runs on the
            CPU, one process each.

    Example:
        >>> ServingOptions(network_instances=2).runtime
        'tensorflow'
    """

    runtime: str = "tensorflow"
    network_instances: int = 1
    network_kind: str = "KIND_AUTO"
    preprocess_instances: int = 1

    def __post_init__(self) -> None:
        if self.runtime not in RUNTIMES:
            raise ExportError(
                f"Expected a runtime among {', '.join(RUNTIMES)}. Received: {self.runtime!r}."
            )
        if self.network_kind not in INSTANCE_KINDS:
            raise ExportError(
                f"Expected network_kind among {', '.join(INSTANCE_KINDS)}. Received: {self.network_kind!r}."
            )
        for name in ("network_instances", "preprocess_instances"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise ExportError(f"Expected {name} as a whole number from 1. Received: {count!r}.")
