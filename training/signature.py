"""Signature of a network: its inputs and outputs as the server will name them."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from training.errors import TrainingError
from workflow.schema.own_names import OwnNames

# TensorFlow silently renames inputs of a SavedModel with other names.
_INPUT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OUTPUT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class TensorSpec(metaclass=OwnNames):
    """One tensor of a signature.

    Attributes:
        name: the tensor's name, with the user's capitalisation.
        dtype: a name of the dtype table in `workflow.schema.dtypes`.
        shape: (None, k): any number of rows, a fixed number of columns.

    Example:
        >>> TensorSpec("userId", "int32", (None, 1))
        TensorSpec(name='userId', dtype='int32', shape=(None, 1))
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        """Readable form: `userId int32 [N, 1]`."""
        dims = ", ".join("N" if size is None else str(size) for size in self.shape)
        return f"{self.name} {self.dtype} [{dims}]"


@dataclass(frozen=True)
class ModelSignature(metaclass=OwnNames):
    """The named inputs and outputs of a model.

    Attributes:
        inputs: in the order of `model.inputs`.
        outputs: in the order of `model.outputs`.

    Raises:
        TrainingError: an output without columns, which Triton's config cannot have.

    Example:
        >>> user = TensorSpec("userId", "int32", (None, 1))
        >>> print(ModelSignature((user,), (TensorSpec("output", "float32", (None, 1)),)))
        userId int32 [N, 1] -> output float32 [N, 1]
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        for spec in self.outputs:
            if 0 in spec.shape:
                raise TrainingError(
                    "Expected outputs of the network of one column or more, since Triton serves no "
                    f"others. Received: {spec}. Leave it out of the network's outputs."
                )

    def __str__(self) -> str:
        """Inputs and outputs on one line."""
        inputs, outputs = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"{inputs} -> {outputs}"


def check_name(side: str, name: str, own: str | None = None) -> None:
    """Check that an input or an output can be served under its name.

    Args:
        side: "input" or "output".
        name: its name.
        own: the network's own name of it, if another one.

    Raises:
        TrainingError: TensorFlow or Triton would refuse or change it.
    """
    pattern = _INPUT_NAME if side == "input" else _OUTPUT_NAME
    if pattern.fullmatch(name) and not (side == "input" and keyword.iskeyword(name)):
        return
    allowed = "letters, digits and _, a letter first, not a keyword of Python"
    remedy = (
        "Rename it in the model; or export with ServingOptions(columns="
        f"{{{name!r}: <column of the workflow>}}), to which ops.Rename can give such a name."
    )
    if side == "output":
        allowed, remedy = "letters, digits, _, - and .", "Rename it in the model."
    elif own not in (None, name):
        remedy = f"Give the column that feeds {own!r} such a name with ops.Rename."
    raise TrainingError(
        f"Expected the name of an {side} of {allowed}, since TensorFlow or Triton would refuse "
        f"or change another. Received: {name!r}. {remedy}"
    )
