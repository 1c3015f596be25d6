"""What is said when a GPU fails, run where there is none: cuDF's part is played here."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf

from loader.device import gpu_number, gpus_of_tensorflow
from loader.errors import DamagedError, LoaderError
from loader.files.layout import BatchLayout
from loader.files.parquet_files import RowGroup, Skipped
from loader.gpu.cuda import is_busy, prepare_memory, tell_gpu_errors, use_device
from loader.gpu.decoder import Decoder
from loader.order.plan import split_row_groups
from loader.read.damaged import SkippingReader

FATAL = RuntimeError("Fatal CUDA error encountered at: error.hpp: 700 cudaErrorIllegalAddress")
STATUS = SimpleNamespace(
    cudaSuccess=SimpleNamespace(name="cudaSuccess"),
    cudaErrorInvalidDevice=SimpleNamespace(name="cudaErrorInvalidDevice"),
    cudaErrorIllegalAddress=SimpleNamespace(name="cudaErrorIllegalAddress"),
    cudaErrorNotReady=SimpleNamespace(name="cudaErrorNotReady"),
)


class Gpu:
    """Reads what `files` has; what an error ended stays ended."""

    def __init__(self) -> None:
        self.status = STATUS.cudaSuccess
        self.files: dict[str, list[int | Exception]] = {}
        self.at_synchronize: Exception | None = None
        self.reads = 0

    def fail(self, error: Exception) -> None:
        if error is FATAL:
            self.status = STATUS.cudaErrorIllegalAddress
        raise error

    def read_parquet(self, options, stream):
        del stream
        self.reads += 1
        rows = 0
        for path, groups in zip(options.paths, options.groups, strict=True):
            for group in groups:
                found = self.files[path][group]
                if isinstance(found, Exception):
                    self.fail(found)
                rows += found
        table = SimpleNamespace(num_rows=lambda: rows, num_columns=lambda: 0, columns=list)
        return SimpleNamespace(tbl=table)

    def synchronize(self) -> None:
        if self.at_synchronize is not None:
            self.fail(self.at_synchronize)


class Options:
    """What cuDF is to read; each row group has 10 rows here."""

    def __init__(self, paths):
        self.paths, self.groups = paths, None

    def column_names(self, names):
        assert names == []
        return self

    def build(self):
        return self

    def set_row_groups(self, groups):
        self.groups = groups

    def set_skip_rows(self, rows):
        self.groups = [[rows // 10]]

    def set_num_rows(self, rows):
        assert rows == 10


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    runtime = SimpleNamespace(
        cudaError_t=STATUS,
        # As the real one: what is the thread's GPU already is so again, lost or not.
        cudaSetDevice=lambda number: (
            STATUS.cudaSuccess if number == 0 else STATUS.cudaErrorInvalidDevice,
        ),
        cudaDeviceSynchronize=lambda: (gpu.status,),
        cudaStreamQuery=lambda _: (gpu.status,),
        cudaGetLastError=lambda: (STATUS.cudaSuccess,),
    )
    parquet = SimpleNamespace(
        ParquetReaderOptions=SimpleNamespace(builder=Options), read_parquet=gpu.read_parquet
    )
    cudf = SimpleNamespace(
        io=SimpleNamespace(parquet=parquet, types=SimpleNamespace(SourceInfo=list)),
        concatenate=SimpleNamespace(concatenate=lambda tables, stream: tables),  # noqa: ARG005
    )
    stream = SimpleNamespace(synchronize=gpu.synchronize, __cuda_stream__=lambda: (0, 1))
    modules = {
        "cuda": None,
        "cuda.bindings": SimpleNamespace(runtime=runtime),
        "pylibcudf": cudf,
        "rmm": SimpleNamespace(),
        "rmm.pylibrmm": None,
        "rmm.pylibrmm.stream": SimpleNamespace(Stream=lambda: stream),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module or SimpleNamespace())
    return gpu


@pytest.fixture
def open_files(gpu, tmp_path):
    """A decoder of two files of two row groups each, and the pieces."""

    def build(*groups):
        files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
        gpu.files = dict(zip(files, (list(groups[:2]), list(groups[2:])), strict=True))
        row_groups = [RowGroup(file, n, 10 * n, 10, 10) for file in files for n in (0, 1)]
        return Decoder(BatchLayout((), ()), row_groups, 0), row_groups

    return build


# What libcudf throws arrives as one of many Python exceptions.
@pytest.mark.parametrize("kind", [RuntimeError, OSError, ValueError, IndexError, OverflowError])
def test_a_damaged_row_group_is_found_and_skipped(open_files, kind):
    decoder, row_groups = open_files(10, 10, kind("CUDF failure"), 10)
    pieces = split_row_groups(row_groups, 100)
    with pytest.raises(DamagedError, match=r"b\.parquet, row group 0.*CUDF failure"):
        decoder.read(pieces)
    skipped = Skipped()
    reader = SkippingReader(decoder, row_groups, skipped)
    assert reader.read(pieces).num_rows() == 40
    assert list(skipped.reasons) == [(pieces[2].path, 0)]
    (reason,) = skipped.reasons.values()
    assert reason.__traceback__ is None, "it would keep what was read before it"
    assert reason.__cause__ is None


@pytest.mark.parametrize("at", ["read", "synchronize"])
def test_a_lost_gpu_is_told_and_not_skipped(gpu, open_files, at):
    decoder, row_groups = open_files(10, FATAL if at == "read" else 10, 10, 10)
    gpu.at_synchronize = FATAL if at == "synchronize" else None
    reader = SkippingReader(decoder, row_groups, Skipped())
    told = r"in .*a\.parquet, row groups 0, 1; .*b\.parquet, row groups 0, 1\. .*new process"
    with pytest.raises(LoaderError, match=told) as caught:
        reader.read(split_row_groups(row_groups, 100))
    assert not isinstance(caught.value, DamagedError)
    assert caught.value.__cause__ is FATAL
    assert gpu.reads == 1, "it asked a lost GPU again"
    with pytest.raises(LoaderError, match=r"GPU 0 to work.*lost it.*new process"):
        prepare_memory(0)  # the next loader


def test_one_damaged_row_group_that_costs_the_gpu_is_named(open_files):
    decoder, row_groups = open_files(10, 10, FATAL, 10)
    with pytest.raises(LoaderError, match=r"in [^ ]*b\.parquet, row group 0\. Received: Fatal"):
        decoder.read(split_row_groups([row_groups[2]], 100))


def test_too_little_memory(gpu, open_files):
    decoder, row_groups = open_files(10, 10, MemoryError("std::bad_alloc"), 10)
    with pytest.raises(LoaderError, match=r"GPU memory for 40 rows.*Lower buffer_size") as caught:
        decoder.read(split_row_groups(row_groups, 100))
    assert not isinstance(caught.value, DamagedError)
    assert gpu.reads == 1


def test_a_gpu_at_work_is_busy_and_takes_another_loader(gpu, open_files):
    decoder, _ = open_files(10, 10, 10, 10)
    assert not is_busy(decoder.stream)
    gpu.status = STATUS.cudaErrorNotReady
    assert is_busy(decoder.stream)
    with pytest.raises(AttributeError, match="mr"):  # it goes on to the memory, which is not here
        prepare_memory(0)


def test_no_such_gpu(gpu):
    del gpu
    with pytest.raises(LoaderError, match=r"a GPU with the number 3\. Received: cudaErrorInvalid"):
        use_device(3)


def test_an_error_of_a_living_gpu_names_the_rows(gpu, open_files):
    del gpu
    _, row_groups = open_files(10, 10, 10, 10)
    pieces = split_row_groups(row_groups[:1], 100)
    with (
        pytest.raises(LoaderError, match=r"a\.parquet, row group 0\. Received: overflow") as caught,
        tell_gpu_errors(pieces),
    ):
        raise OverflowError("overflow")
    assert "new process" not in str(caught.value)


@pytest.mark.parametrize(
    ("visible", "device", "number", "name"),
    [("012", None, 0, "/gpu:0"), ("12", None, 1, "/gpu:0"), ("12", "gpu:2", 2, "/gpu:1")],
)
def test_cudf_and_tensorflow_mean_the_same_gpu(monkeypatch, visible, device, number, name):
    """`configure_tensorflow(device=1)` makes GPU 1 the first that TensorFlow has."""
    gpus = [SimpleNamespace(number=each) for each in "012"]
    found = [gpu for gpu in gpus if gpu.number in visible]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)  # noqa: ARG005
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: found)  # noqa: ARG005
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # noqa: ARG005
    assert gpu_number(device) == number
    assert gpus_of_tensorflow()[number] == name
    if "0" not in visible:
        with pytest.raises(LoaderError, match=r"among \[1, 2\]\. Received: 0"):
            gpu_number(0)
