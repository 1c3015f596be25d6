"""The GPU that cuDF uses: device selection, memory, and errors."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from loader.errors import LoaderError
from loader.order.epoch_plan import Piece

# Exceptions that pylibcudf raises for libcudf's, apart from out-of-memory.
CUDF_ERRORS = (RuntimeError, OSError, ValueError, TypeError, IndexError, ArithmeticError)
LOST = (
    "From then on the GPU works again only in a new process: restart the program. "
    'device="cpu" finds the damage, and reads data that on_bad_files="skip" cannot skip here.'
)
_NOT_READY = "cudaErrorNotReady"


def use_device(number: int) -> None:
    """Make a GPU the current device of the calling thread.

    Raises:
        LoaderError: there is no such GPU.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaSetDevice(number)
    if status != runtime.cudaError_t.cudaSuccess:
        raise LoaderError(f"Expected a GPU with the number {number}. Received: {status.name}.")


def prepare_memory(number: int) -> int:
    """Let cuDF allocate from a stream-ordered pool, unless a pool is set already.

    Args:
        number: the GPU's number. It becomes the thread's device, since each GPU has its own pool.

    Returns:
        The GPU's memory in bytes.

    Raises:
        LoaderError: there is no such GPU, or this process has lost it.
    """
    import rmm  # noqa: PLC0415 - it needs a GPU to be imported

    use_device(number)  # succeeds even with a lost GPU, if it was this thread's device before
    # Without waiting: a GPU that hangs would never answer.
    if _status(0) not in ("cudaSuccess", _NOT_READY):
        raise LoaderError(
            f"Expected GPU {number} to work. Received: an earlier error, by which this process "
            f"lost it. {LOST}"
        )
    if type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    return int(rmm.mr.available_device_memory()[1])


def gpu_lives() -> bool:
    """Whether this process can still use its GPU.

    A kernel that reads out of bounds destroys the process's CUDA context: every later call of the
    runtime fails with the same error.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaDeviceSynchronize()
    return bool(status == runtime.cudaError_t.cudaSuccess)


@contextlib.contextmanager
def tell_gpu_errors(pieces: Sequence[Piece]) -> Iterator[None]:
    """Turn cuDF's errors about pieces into errors of the loader.

    Raises:
        LoaderError: out of memory, or an error of cuDF, after which this process may have lost the
            GPU. Names files and row groups.
    """
    try:
        yield
    except LoaderError:
        raise
    except (MemoryError, *CUDF_ERRORS) as error:
        # Memory is also what the pool says that it lacks once the GPU is lost.
        lives = gpu_lives()
        if lives and isinstance(error, MemoryError):
            raise LoaderError(
                f"Expected GPU memory for {sum(p.rows for p in pieces)} rows at once. "
                f"Received: {error}. Lower buffer_size, or TensorFlow's share, with "
                "configure_tensorflow."
            ) from error
        after = 'device="cpu" gives details.' if lives else LOST
        raise LoaderError(
            f"Expected rows that cuDF can decode in {where(pieces)}. Received: {error}. {after}"
        ) from error


def cudf_version() -> str:
    """The version of cuDF, whose sort and hash determine the order of rows."""
    from pylibcudf import _version  # noqa: PLC0415 - it needs a GPU to be imported

    return str(_version.__version__)


def is_busy(stream: Any) -> bool:
    """Whether a CUDA stream has work left; does not wait.

    Args:
        stream: a stream object of cuDF.
    """
    _, handle = stream.__cuda_stream__()
    return _status(handle) == _NOT_READY


def _status(stream: int) -> str:
    """Status that the runtime reports for a stream, and through it for the GPU."""
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaStreamQuery(stream)
    # "Not ready" would remain this thread's last error, and mislead the next caller that asks.
    runtime.cudaGetLastError()
    return str(status.name)


def end_without_gpu() -> None:
    """Let this process end as soon as Python has ended, with the same exit status.

    CUDA's own shutdown waits for the GPU, and never returns if the GPU hangs.
    """
    libc = ctypes.CDLL(None)
    # Exit handlers run in reverse order of registration, with the status as first argument.
    libc.on_exit(libc._exit, None)  # noqa: SLF001 - that is its name


def where(pieces: Sequence[Piece]) -> str:
    """The files and row groups of pieces, for messages."""
    groups: dict[str, dict[int, None]] = {}
    for piece in pieces:
        groups.setdefault(piece.path, {})[piece.row_group] = None
    return "; ".join(
        f"{path}, row group{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        for path, numbers in groups.items()
    )
