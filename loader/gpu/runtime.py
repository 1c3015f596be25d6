"""The GPU as cuDF sees it: whose turn it is, and its memory."""

from __future__ import annotations

from loader.errors import LoaderError


def use_device(number: int) -> None:
    """Make a GPU the calling thread's.

    Raises:
        LoaderError: there is no such GPU.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaSetDevice(number)
    if status != runtime.cudaError_t.cudaSuccess:
        raise LoaderError(f"Expected a GPU with the number {number}. Received: {status.name}.")


def prepare_memory() -> int:
    """Let cuDF allocate from a pool that works along CUDA streams, unless one is set already.

    Returns:
        the GPU's memory in bytes.
    """
    import rmm  # noqa: PLC0415 - it needs a GPU to be imported

    if type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    return int(rmm.mr.available_device_memory()[1])


def cudf_version() -> str:
    """The version of cuDF, whose sort and hash draw the order of rows."""
    from pylibcudf import _version  # noqa: PLC0415 - it needs a GPU to be imported

    return str(_version.__version__)
