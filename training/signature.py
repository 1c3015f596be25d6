"""Signature of a network: its inputs and outputs as the server will name them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass

from training.errors import TrainingError
from workflow.schema.names import listed
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


def check_names(side: str, names: Mapping[str, str]) -> None:
    """Check that inputs or outputs can be served under their names.

    Args:
        side: "input" or "output".
        names: the network's own name of each -> the name that it is served under.

    Raises:
        TrainingError: TensorFlow or Triton would refuse or change some of them.
    """
    is_input = side == "input"
    pattern = _INPUT_NAME if is_input else _OUTPUT_NAME
    refused = {
        own: name
        for own, name in names.items()
        if not pattern.fullmatch(name) or (is_input and (keyword.iskeyword(name) or name == "self"))
    }
    if not refused:
        return
    allowed = "letters, digits and _, a letter first, not a keyword of Python and not self"
    own, first = next(iter(refused.items()))
    which, it = (f"an {side}", "it") if len(refused) == 1 else (f"each {side}", "them")
    remedy = (
        f"Rename {it} in the model; or export with ServingOptions(columns="
        f"{{{first!r}: <column of the workflow>}}), to which ops.Rename can give such a name."
    )
    if not is_input:
        allowed, remedy = "letters, digits, _, - and .", f"Rename {it} in the model."
    elif own != first:
        remedy = f"Give the column that feeds {own!r} such a name with ops.Rename."
    raise TrainingError(
        f"Expected the name of {which} of {allowed}, since TensorFlow or Triton would refuse or change "
        f"another. Received: {listed(map(repr, refused.values()))}. {remedy}"
    )
