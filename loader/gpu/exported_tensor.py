"""TensorFlow's tensors as other frameworks take them."""

from __future__ import annotations

from typing import Any


class ExportedTensor:
    """An eager tensor of TensorFlow for PyTorch, JAX and CuPy, which take it by DLPack without a copy.

    On a GPU they pass the stream that will use the memory, which TensorFlow refuses. The stream is
    not needed: TensorFlow waits for the work that is queued for its GPU before it exports a tensor.

    Args:
        tensor: an eager tensor.

    Example:
        >>> torch.from_dlpack(ExportedTensor(tensor))  # doctest: +SKIP
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        """A capsule of the memory, which keeps it alive; the consumer's wishes are ignored."""
        return self._tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device."""
        device: tuple[int, int] = self._tensor.__dlpack_device__()
        return device
