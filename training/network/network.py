"""The network that is exported, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from training.signature import ModelSignature
from workflow.schema.column import Array

# Allowed rounding of a network: the difference as a share of the answer, or of 1 if larger.
TOLERANCE, _TOLERANCE_OF_HALF = 1e-5, 2e-2
# The columns that feed an input: one, or those of a matrix, in order.
Columns = Mapping[str, str | tuple[str, ...]]


class Network(Protocol):
    """A network, as required by an export.

    Attributes:
        signature: its named inputs and outputs; inputs have the names of the columns, and a matrix
            is one input for each of its columns.
        columns: its own name for each renamed input, and the new name or the columns of the matrix.
        in_tensorflow: whether TensorFlow runs it, so that it is a `TensorFlowNetwork` too.
    """

    signature: ModelSignature
    columns: Columns
    in_tensorflow: bool

    @property
    def is_half(self) -> bool:
        """Whether it computes in 16-bit floats."""

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights, tables among them."""

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, (N, k), for tensors of the signature, in this process on its CPU."""

    def tables(self) -> Iterable[tuple[str, str, int]]:
        """The layer, the input and the rows of each table of which these can be determined."""

    def fits(self) -> Mapping[str, str]:
        """Input -> digest of the fit that made its column in training, where that was recorded."""


def tolerance_of(network: Network) -> float:
    """The allowed rounding of a network's answers."""
    return _TOLERANCE_OF_HALF if network.is_half else TOLERANCE


class TensorFlowNetwork(Network, Protocol):
    """A network that TensorFlow runs.

    Attributes:
        function: a concrete function with its signature.
    """

    function: Any

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name, in inference mode. Can be traced."""

    def state(self) -> Any:
        """Objects that a SavedModel which calls the network must contain."""
