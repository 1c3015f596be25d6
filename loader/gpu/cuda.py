"""The GPU as cuDF sees it: whose turn it is, its memory, and what to say when it fails."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from loader.errors import LoaderError
from loader.order.plan import Piece

# What pylibcudf makes of libcudf's exceptions, but for the one of too little memory.
CUDF_ERRORS = (RuntimeError, OSError, ValueError, TypeError, IndexError, ArithmeticError)
LOST = (
    "From then on the GPU works again only in a new process: start the program anew. "
    'device="cpu" finds what is damaged, and reads what on_bad_files="skip" cannot skip here.'
)
_NOT_READY = "cudaErrorNotReady"


def use_device(number: int) -> None:
    """Make a GPU the calling thread's.

    Raises:
        LoaderError: there is no such GPU.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaSetDevice(number)
    if status != runtime.cudaError_t.cudaSuccess:
        raise LoaderError(f"Expected a GPU with the number {number}. Received: {status.name}.")


def prepare_memory(number: int) -> int:
    """Let cuDF allocate from a pool that works along CUDA streams, unless one is set already.

    Args:
        number: the GPU's, which becomes the calling thread's: each has a pool of its own.

    Returns:
        the GPU's memory in bytes.

    Raises:
        LoaderError: there is no such GPU, or this process has lost it.
    """
    import rmm  # noqa: PLC0415 - it needs a GPU to be imported

    use_device(number)  # which succeeds with a lost GPU as well, if it was the thread's before
    # Without waiting: a GPU that hangs would never answer.
    if _status(0) not in ("cudaSuccess", _NOT_READY):
        raise LoaderError(
            f"Expected GPU {number} to work. Received: an error before, at which this process lost "
            f"it. {LOST}"
        )
    if type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    return int(rmm.mr.available_device_memory()[1])


def gpu_lives() -> bool:
    """Whether this process can still use its GPU.

    A kernel that reads outside of memory takes the process's whole CUDA context with it: all that
    the runtime is asked from then on fails with the same error.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaDeviceSynchronize()
    return bool(status == runtime.cudaError_t.cudaSuccess)


@contextlib.contextmanager
def tell_gpu_errors(pieces: Sequence[Piece]) -> Iterator[None]:
    """Tell what cuDF cannot do with pieces as what it is.

    Raises:
        LoaderError: too little memory, or an error of cuDF, which may have cost this process the
            GPU; with files and row groups.
    """
    try:
        yield
    except LoaderError:
        raise
    except MemoryError as error:
        raise LoaderError(
            f"Expected GPU memory for {sum(p.rows for p in pieces)} rows at once. "
            f"Received: {error}. Lower buffer_size, or what TensorFlow takes, with "
            "configure_tensorflow."
        ) from error
    except CUDF_ERRORS as error:
        after = 'device="cpu" tells more.' if gpu_lives() else LOST
        raise LoaderError(
            f"Expected rows that cuDF can decode in {where(pieces)}. Received: {error}. {after}"
        ) from error


def cudf_version() -> str:
    """The version of cuDF, whose sort and hash draw the order of rows."""
    from pylibcudf import _version  # noqa: PLC0415 - it needs a GPU to be imported

    return str(_version.__version__)


def is_busy(stream: Any) -> bool:
    """Whether a CUDA stream has work left, without waiting for it.

    Args:
        stream: as cuDF takes it.
    """
    _, handle = stream.__cuda_stream__()
    return _status(handle) == _NOT_READY


def _status(stream: int) -> str:
    """Status that the runtime reports for a stream, and through it for the GPU."""
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaStreamQuery(stream)
    # "Not ready" would stay as this thread's last error, and whoever asks for that next be misled.
    runtime.cudaGetLastError()
    return str(status.name)


def end_without_gpu() -> None:
    """Let this process end as soon as Python has, with the exit status that it has then.

    CUDA's own end of a process waits for the GPU, and for ever for one that hangs.
    """
    libc = ctypes.CDLL(None)
    # Of what is done at exit the newest comes first, and gets the status, as `_exit` takes it.
    libc.on_exit(libc._exit, None)  # noqa: SLF001 - that is its name


def where(pieces: Sequence[Piece]) -> str:
    """The files and row groups of pieces, for messages."""
    groups: dict[str, dict[int, None]] = {}
    for piece in pieces:
        groups.setdefault(piece.path, {})[piece.row_group] = None
    return "; ".join(
        f"{path}, row group{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
        for path, found in groups.items()
    )
