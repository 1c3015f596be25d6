"""A model of the repository as data, before it becomes a config.pbtxt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workflow.wire.request_rules import VALUES


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model: its name, its dtype (of the dtype table) and its shape.

    -1 is a dimension that a request chooses; the first one is the rows. Ragged is an input that
    may have another width in each of the requests that the server joins. The time is what the
    values stand for where they are dates or times, for people.
    """

    name: str
    dtype: str
    dims: tuple[int, ...] = (-1, 1)
    ragged: bool = False
    time: str = field(default="", compare=False)

    @property
    def shape(self) -> str:
        """For people: `[N, 1]`."""
        return shape_text(self.name, self.dims)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{self.shape}{self.time and f', {self.time}'}"


def shape_text(name: str, dims: Sequence[int]) -> str:
    """A shape for people: N are the rows, L is a width that a request chooses, V all values.

    Example:
        >>> shape_text("genres", [-1, -1]), shape_text("genres__values", [-1, 1])
        ('[N, L]', '[V, 1]')
    """
    first = "V" if name.endswith(VALUES) else "N"
    words = ["L" if size < 0 else str(size) for size in dims]
    return f"[{', '.join([first, *words[1:]] if dims and dims[0] < 0 else words)}]"


@dataclass(frozen=True)
class EnsembleStep:
    """A model inside an ensemble.

    Attributes:
        model: the model's name.
        version: the one version of it that the ensemble uses.
        inputs: from the model's input to the ensemble's tensor that it takes.
        outputs: from the model's output to the ensemble's tensor that it makes.
    """

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Queue:
    """The queue in which requests wait to be joined.

    Attributes:
        delay_us: how long the first one waits for others, in microseconds.
        size: how many may wait; 0 for any number.
        timeout_us: how long one may wait before it is refused; 0 for any time.
    """

    delay_us: int = 0
    size: int = 0
    timeout_us: int = 0


@dataclass(frozen=True)
class WarmUpTensor:
    """A tensor of a request that the server makes by itself.

    Attributes:
        file: where its bytes lie, below the model's folder `warmup`.
        dtype: of the dtype table.
        dims: its shape, without the rows where requests are joined.
        content: its bytes, as Triton reads them.
    """

    file: str
    dtype: str
    dims: tuple[int, ...]
    content: bytes


@dataclass(frozen=True)
class ModelSpec:
    """Everything that a config.pbtxt says.

    Attributes:
        name: the model's folder.
        version: the version that this export writes.
        inputs: the tensors that it takes.
        outputs: the tensors that it makes.
        backend: the Triton backend, or "" for an ensemble.
        platform: the Triton platform, or "".
        parameters: free text by name.
        instances: how many copies serve; 0 for an ensemble, which has none.
        instance_kind: where they run.
        steps: the steps of an ensemble.
        max_batch_size: the rows of a joint call at most; 0 where requests are not joined.
        queue: how requests wait; None for an ensemble, whose steps have queues.
        widths: inputs that the server itself makes of a ragged one, the width of each row:
            the ragged input by the name of the made one.
        response_cache: whether the server keeps answers.
        warm_up: the requests that the server makes before it calls the model ready, each with
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
