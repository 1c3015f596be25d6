"""Options of serving a model, beyond what the model itself determines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from exporter.errors import ExportError
from exporter.plan.model_spec import Queue
from exporter.plan.runtime import AUTO, RUNTIMES, RuntimeKind
from exporter.plan.server_opsets import newest_opsets
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import make_fields_plain, whole_number
from workflow.wire.request_rules import LIMITS

PROOFS = ("process", "server", "auto")
INSTANCE_KINDS = ("KIND_CPU", "KIND_GPU", "KIND_AUTO")
_COUNTS = {
    1: ("network_instances", "preprocess_instances"),
    0: ("max_batch_size", "max_queue_delay_us", "max_queue_size", "queue_timeout_us"),
}
# Far beyond any request of a model for tables, and small enough that none takes all memory. Clients of
# ours send larger tables in parts.
DEFAULT_LIMITS = dict.fromkeys(LIMITS, 2**16)
_BATCHED = ("max_queue_delay_us", "max_queue_size", "queue_timeout_us")


@dataclass(frozen=True)
class ServingOptions(metaclass=OwnNames):
    """Options of an export.

    Attributes:
        runtime: the models that the server runs.
            "tensorflow": preprocessing in Python, the network as a SavedModel for Triton's
            TensorFlow backend, native up to 25.02 and ours on any version since 23.10.
            "onnx": preprocessing and network as two ONNX models for the stock onnxruntime
            backend.
            "fused_onnx": both in one ONNX model, the fastest.
            "fused_tensorflow": both in one SavedModel, which TensorFlow Serving and plain Python
            can run as well.
            "auto": "tensorflow", and for an ONNX network, which TensorFlow cannot run, "onnx".
        max_batch_size: the most rows of a call. From 1 on the server joins requests that arrive
            together, and lists are sent padded; 0 sends lists as values and row lengths, and
            handles each request alone.
        max_queue_delay_us: how many microseconds a request waits for others to join it. 0 is best at
            nearly every load, since requests join while the model is busy anyway.
        max_queue_size: the most requests that may wait at a step before more are refused; 0 for no
            limit.
        queue_timeout_us: how many microseconds a request may wait at a step before it is refused; 0
            for no limit.
        network_instances: how many instances of the network serve at once.
        network_kind: where the network runs, "KIND_CPU", "KIND_GPU" or "KIND_AUTO", which is the
            GPU if the server has one.
        preprocess_instances: how many instances of the preprocessing serve at once, on the CPU; in
            Python each is a process.
        columns: input of the network -> column of the workflow that feeds it, if their names differ
            or the input's name is invalid in a SavedModel (`name-cat`); for a list `{"tags":
            "genres"}` or each half separately. In the repository the input has the column's name.
            For an ONNX network's matrix `{"features": ["age", "price"]}`, the columns from which it
            is packed, in the order of the training; they may be left out if its file names them, in the
            metadata `feature_names`.
        pack: whether the columns between the two steps of "tensorflow" and "onnx" travel in few
            tensors, which is faster. Otherwise each has a tensor with its own name and dtype, so
            that either step can be replaced.
        response_cache: whether the server caches answers to equal requests; it has to be started
            with a cache (`TritonServer(..., response_cache_bytes=64 * 2**20)`, or another Triton
            with `--cache-config=local,size=...`). For "tensorflow" and "onnx" only: of a model that
            is no ensemble, Triton also caches failed answers, and repeats them as empty successes.
            The cached answer has only the outputs that the first of equal requests asked for, so all
            clients have to ask for all outputs, as ours does.
        warm_up: whether the server sends some rows to each model before it reports the model as
            ready, so that the first request is not slow.
        golden_rows: raw rows for the warm-up, as a Polars or pandas frame, a dict of columns or
            parquet paths. The first 8 are used; anyone who can read the repository can read them. The
            default is one row of zeros, empty strings and lists of one such value. The export proves
            the written models with these rows as well as with its own.
        keep_versions: how many published versions stay on disk for `rollback`, including the new one;
            older ones are removed. None keeps all. The server keeps the steps of every version loaded,
            with a process for each Python step.
        prove: where the written models answer golden rows before they are published. "process" is
            the process of the export, in about a second. "server" also loads them in a server that
            is started for it, in some seconds more, so that a model that this server cannot load is
            not published. "auto" does so if a server can be started here.
        max_rows: the most rows of a request. None for `max_batch_size`; without that for 65,536, or
            with `NearestItems` for as many rows as have their scores in 1 GiB, if these are fewer.
        max_list_length: the most values in a row of a list; None for 65,536.
        max_string_bytes: the most bytes of a string; None for 65,536. Our client and our Python
            models check these three limits before any work; Triton's own backends check
            `max_batch_size`.
        onnxruntime: the server's version of onnxruntime, such as "1.23", if it is older than the one
            here; 1.17 or newer. For "onnx" and "fused_onnx": an export whose opset that server would
            not load is refused.
        server_memory_gb: the memory that the server has for these models, in GB of 1e9 bytes. An export
            that needs more, by the estimate in `report.memory`, is refused before anything is
            written. Each instance counts once for each of `keep_versions`, and once more for a new
            version that loads beside them. None for no limit.
        other_fit: whether to export a network that was trained on the features of another fit, which is
            right only if the ids and numbers of both fits mean the same. Also whether to export a
            tower with items' vectors from another training.
        progress: whether an export that takes more than a second shows its steps on standard error, as
            `Workflow.fit` does.

    Raises:
        ExportError: an invalid value, or two that contradict each other.

    Example:
        >>> ServingOptions(runtime="fused_onnx", max_batch_size=1024).runtime
        'fused_onnx'
    """

    runtime: str = AUTO
    max_batch_size: int = 0
    max_queue_delay_us: int = 0
    max_queue_size: int = 0
    queue_timeout_us: int = 0
    network_instances: int = 1
    network_kind: str = "KIND_AUTO"
    preprocess_instances: int = 1
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    pack: bool = True
    response_cache: bool = False
    warm_up: bool = True
    golden_rows: Any = field(default=None, repr=False, compare=False)
    keep_versions: int | None = 2
    prove: str = "process"
    max_rows: int | None = None
    max_list_length: int | None = None
    max_string_bytes: int | None = None
    onnxruntime: str | None = None
    server_memory_gb: float | None = None
    other_fit: bool = False
    progress: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        make_fields_plain(self)
        for name, choices in (
            ("runtime", (*RUNTIMES, AUTO)),
            ("network_kind", INSTANCE_KINDS),
            ("prove", PROOFS),
        ):
            if getattr(self, name) not in choices:
                raise ExportError(
                    f"Expected {name} among {', '.join(choices)}. Received: {getattr(self, name)!r}."
                )
        _expect_flags({f.name: getattr(self, f.name) for f in fields(self) if f.type == "bool"})
        for smallest, names in _COUNTS.items():
            for name in names:
                whole_number(name, getattr(self, name), smallest, ExportError)
        for name in ("keep_versions", *LIMITS):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1, ExportError)
        newest_opsets(self.onnxruntime)
        _expect_memory(self.server_memory_gb)
        if not isinstance(self.columns, Mapping) or not all(
            isinstance(name, str) and _is_of_names(column) for name, column in self.columns.items()
        ):
            raise ExportError(
                "Expected columns as a dictionary of input of the network -> column of the workflow, "
                f"or a list of the columns of a matrix. Received: {self.columns!r}."
            )
        for contradiction in _contradictions(self):
            raise ExportError(contradiction)

    @property
    def queue(self) -> Queue:
        """The queue in which requests wait."""
        return Queue(self.max_queue_delay_us, self.max_queue_size, self.queue_timeout_us)

    @property
    def applicable(self) -> tuple[str, ...]:
        """The names of the options that have an effect, given the others."""
        idle = {
            "preprocess_instances": self.is_fused,
            "pack": self.is_fused,
            "response_cache": self.is_fused,
            "golden_rows": not self.warm_up,
            "onnxruntime": self.onnxruntime is None,
            "server_memory_gb": self.server_memory_gb is None,
            "other_fit": not self.other_fit,
            # It has no effect on what is served.
            "progress": True,
            **dict.fromkeys(_BATCHED, not self.max_batch_size),
        }
        return tuple(option.name for option in fields(self) if not idle.get(option.name))

    @property
    def is_fused(self) -> bool:
        """Whether preprocessing and network are one model."""
        return self._kind.is_fused

    @property
    def in_tensorflow(self) -> bool:
        """Whether TensorFlow runs the network in the server; not known of "auto"."""
        return self._kind.in_tensorflow

    @property
    def ends_at_nul(self) -> bool:
        """Whether the server reads a string up to a NUL, see `WireColumn`."""
        return self._kind.ends_at_nul

    @property
    def _kind(self) -> RuntimeKind:
        """The properties of the runtime; "auto" is none of the fused ones."""
        return RUNTIMES.get(self.runtime, RuntimeKind())

    @property
    def limits(self) -> dict[str, int]:
        """The limits of a request, by name; `max_batch_size` is one of Triton's own."""
        limits = {name: getattr(self, name) or usual for name, usual in DEFAULT_LIMITS.items()}
        if self.max_batch_size and self.max_rows is None:
            del limits["max_rows"]
        return limits


def _contradictions(options: ServingOptions) -> Iterator[str]:
    """Contradictions between options."""
    rows = options.max_batch_size
    needless = [name for name in _BATCHED if getattr(options, name)]
    if needless and not rows:
        yield (
            f"{', '.join(needless)} has an effect only if the server joins requests. "
            "Set max_batch_size as well, for example 1024."
        )
    if rows and (options.max_rows or 0) > rows:
        yield (
            f"Expected max_rows up to max_batch_size, which is {rows}: the server refuses more. "
            f"Received: {options.max_rows}."
        )
    if 0 < options.queue_timeout_us <= options.max_queue_delay_us:
        yield (
            "Expected queue_timeout_us above max_queue_delay_us, or requests that wait for "
            f"others are refused. Received: {options.queue_timeout_us} and "
            f"{options.max_queue_delay_us}."
        )
    if options.is_fused and options.preprocess_instances > 1:
        yield (
            f'Expected no preprocess_instances: runtime="{options.runtime}" is one model. '
            f"Received: {options.preprocess_instances}. Use network_instances."
        )
    if options.is_fused and not options.pack:
        yield f'Expected no pack=False: runtime="{options.runtime}" is one model, without steps.'
    if options.is_fused and options.response_cache:
        yield (
            f'Expected no response_cache: runtime="{options.runtime}" is one model, and Triton caches '
            "the failed answers of such a model as empty successes. "
            'Use runtime="onnx" or runtime="tensorflow", which are ensembles, or no cache.'
        )
    if options.onnxruntime is not None and options.in_tensorflow:
        yield (
            f'Expected no onnxruntime: with runtime="{options.runtime}" the server runs none. '
            f'Received: {options.onnxruntime!r}. Use runtime="onnx" or "fused_onnx", or omit it.'
        )
    if options.server_memory_gb is not None and options.keep_versions is None:
        yield (
            "Expected a number for keep_versions beside server_memory_gb, since the server holds every "
            "version that is kept. Received: None."
        )
    if options.golden_rows is not None and not options.warm_up:
        yield "golden_rows are for the server's warm-up. Leave warm_up=True, or omit them."


def _expect_flags(flags: Mapping[str, Any]) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ExportError(f"Expected {name} as True or False. Received: {value!r}.")


def _expect_memory(gigabytes: Any) -> None:
    is_number = isinstance(gigabytes, int | float) and not isinstance(gigabytes, bool)
    if gigabytes is None or (is_number and gigabytes > 0):
        return
    raise ExportError(
        f"Expected server_memory_gb as a number of GB above 0, or None. Received: {gigabytes!r}."
    )


def _is_of_names(column: object) -> bool:
    """Whether it is a name, or a list of some."""
    names = column if isinstance(column, list | tuple) else [column]
    return bool(names) and all(isinstance(name, str) for name in names)
