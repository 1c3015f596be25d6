"""A model of the repository as data, before its config.pbtxt is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# A file in the place of the folder in which Python keeps byte code, which therefore writes none. A
# server loads a folder again that has changed, so that a step would be loaded with each request for
# its ensemble. No manifest has it, since tools that copy a repository may leave it out.
NO_BYTE_CODE = "__pycache__"


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model: its name, its dtype (of the dtype table) and its shape.

    -1 is a dimension that a request chooses; the first one is the rows. A ragged input may have a
    different width in each of the requests that the server joins. The time is the kind of dates or
    times that the values stand for, and `elements` whether the first dimension counts those of all
    lists rather than the rows; both are for display.
    """

    name: str
    dtype: str
    dims: tuple[int, ...] = (-1, 1)
    ragged: bool = False
    time: str = field(default="", compare=False)
    elements: bool = field(default=False, compare=False)

    @property
    def shape(self) -> str:
        """The readable shape: `[N, 1]`."""
        return shape_text(self.dims, elements=self.elements)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{self.shape}{self.time and f', {self.time}'}"


def shape_text(dims: Sequence[int], *, elements: bool) -> str:
    """The readable shape: N are the rows, L is a width that a request chooses, V all values.

    Example:
        >>> shape_text([-1, -1], elements=False), shape_text([-1, 1], elements=True)
        ('[N, L]', '[V, 1]')
    """
    first = "V" if elements else "N"
    words = ["L" if size < 0 else str(size) for size in dims]
    return f"[{', '.join([first, *words[1:]] if dims and dims[0] < 0 else words)}]"


@dataclass(frozen=True)
class EnsembleStep:
    """A model inside an ensemble.

    Attributes:
        model: the model's name.
        version: the version of the model that the ensemble uses.
        inputs: the ensemble's tensor for each input of the model.
        outputs: the ensemble's tensor for each output of the model.
    """

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Queue:
    """The queue in which requests wait to be joined.

    Attributes:
        delay_us: how long the first request waits for others, in microseconds.
        size: the most requests that may wait; 0 for no limit.
        timeout_us: how long a request may wait before it is refused; 0 for no limit.
    """

    delay_us: int = 0
    size: int = 0
    timeout_us: int = 0


@dataclass(frozen=True)
class WarmUpTensor:
    """A tensor of a request that the server sends to itself.

    Attributes:
        file: the file with its bytes, inside the model's folder `warmup`.
        dtype: a name in the dtype table.
        dims: its shape, without the rows if requests are joined.
        content: its bytes in Triton's format.
    """

    file: str
    dtype: str
    dims: tuple[int, ...]
    content: bytes


@dataclass(frozen=True)
class ModelSpec:
    """The complete content of a config.pbtxt.

    Attributes:
        name: the model's folder.
        version: the version that this export writes.
        inputs: the input tensors.
        outputs: the output tensors.
        backend: the Triton backend, or "" for an ensemble.
        platform: the Triton platform, or "".
        parameters: free text by name.
        instances: the number of instances; 0 for an ensemble, which has none.
        instance_kind: where they run.
        steps: the steps of an ensemble.
        max_batch_size: the most rows of joined requests; 0 if requests are not joined.
        queue: the queue for requests; None for an ensemble, whose steps have queues.
        widths: inputs that the server derives from a ragged input, with the width of each row: the
            ragged input by the name of the derived one.
        response_cache: whether the server caches answers.
        warm_up: the requests that the server makes before it reports the model as ready, each with
            all its tensors by name.
    """

    name: str
    version: int
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    backend: str = ""
    platform: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    instance_kind: str = "KIND_CPU"
    steps: tuple[EnsembleStep, ...] = ()
    max_batch_size: int = 0
    queue: Queue | None = None
    widths: Mapping[str, str] = field(default_factory=dict)
    response_cache: bool = False
    warm_up: tuple[Mapping[str, WarmUpTensor], ...] = ()
