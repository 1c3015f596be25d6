"""Errors of a GPU and of cuDF: too little memory, one that is busy, lost or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import kernels
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from damage_pages import break_pages

from loader import KerasSequenceLoader, LoaderError
from loader.errors import DamagedError
from loader.files.skipped import Skipped
from loader.gpu.cuda import gpu_lives, is_busy, prepare_memory, tell_gpu_errors, use_device
from loader.read.damaged import SkippingReader

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.environ.get("TEST_DEVICE") == "cpu", reason="needs an NVIDIA GPU"),
]


TRANSFORMATIONS = {
    "enumerate": tf.data.Dataset.enumerate,
    "zip": lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(9))),
    "filter": lambda data: data.filter(lambda _, y: tf.reduce_sum(y) > 0),
    "shuffle": lambda data: data.shuffle(2),
    "cache": lambda data: data.cache(),
    "concatenate": lambda data: data.concatenate(data),
    "map of tf.data": lambda data: tf.data.Dataset.map(data, lambda x, _: x),
}
SUMS = [45, 145, 245, 345]
# Each with the sums of its batches.
FACES = {
    "loader": lambda loader: (loader, SUMS),
    "as_dataset": lambda loader: (loader.as_dataset(), SUMS),
    "map": lambda loader: (loader.map(lambda x, y: (x, y)), SUMS),
    "repeat": lambda loader: (loader.repeat(1), SUMS),
    "take": lambda loader: (loader.take(3), SUMS[:3]),
    "skip": lambda loader: (loader.skip(1), SUMS[1:]),
    "prefetch": lambda loader: (loader.prefetch(1), SUMS),
    "map, take, repeat": lambda loader: (loader.map(lambda x, y: (x, y)).take(2).repeat(2), 2 * SUMS[:2]),
    "take, map": lambda loader: (loader.take(3).map(lambda x, y: ({"item": x["item"] + 1}, y)), [55, 155, 255]),
}  # fmt: skip


@pytest.fixture
def opened(tmp_path):
    """A decoder, row groups 0 and 1 of a.parquet and of b.parquet, and their pieces."""
    prepare_memory(0)
    return kernels.open_files(tmp_path)


def test_a_damaged_row_group_is_found_and_skipped(opened):
    decoder, row_groups, pieces = opened
    break_pages(Path(pieces[2].path), 0)
    with pytest.raises(DamagedError, match=r"b\.parquet, row group 0"):
        decoder.read(pieces)
    skipped = Skipped()
    assert SkippingReader(decoder, row_groups, skipped).read(pieces).num_rows() == 40
    assert list(skipped.reasons) == [(pieces[2].path, 0)]


def test_a_lost_gpu_is_told_and_not_skipped(tmp_path, environment):
    program = [sys.executable, kernels.__file__, tmp_path]
    done = subprocess.run(
        program, env=environment, check=False, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *of_reads, of_next = json.loads(done.stdout)
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for of_read in of_reads:  # of a kernel, and of memory
        assert of_read.startswith("LoaderError: ")
        assert f"in {a}, row groups 0, 1; {b}, row groups 0, 1. " in of_read
        assert "only in a new process" in of_read
    assert of_next.startswith("LoaderError: Expected GPU 0 to work.")
    assert "lost it" in of_next
    assert "only in a new process" in of_next


def test_too_little_memory(opened):
    import rmm

    decoder, _, pieces = opened
    before = rmm.mr.get_current_device_resource()
    limited = rmm.mr.LimitingResourceAdaptor(before, allocation_limit=256)
    rmm.mr.set_current_device_resource(limited)
    try:
        with pytest.raises(
            LoaderError, match=r"(?s)GPU memory for 40 rows.*Lower buffer_size"
        ) as caught:
            decoder.read(pieces)
    finally:
        rmm.mr.set_current_device_resource(before)
    assert not isinstance(caught.value, DamagedError)
    assert decoder.read(pieces).num_rows() == 40


def test_a_gpu_at_work_is_busy_and_takes_another_loader(opened):
    decoder, *_ = opened
    assert not is_busy(decoder.stream)
    _, handle = decoder.stream.__cuda_stream__()
    kernels.launch(b"spin", handle)
    kernels.launch(b"spin")  # on the stream that a new loader asks
    assert is_busy(decoder.stream)
    assert prepare_memory(0) > 0
    assert gpu_lives()  # waits
    assert not is_busy(decoder.stream)


def test_uint32_of_old_files_is_refused(tmp_path, device):
    """As pyarrow before version 6 wrote it: as int64, which cuDF does not turn into uint32."""
    pq.write_table(
        pa.table({"id": pa.array([1, 2], pa.uint32()), "label": [0, 1]}),
        tmp_path / "old.parquet",
        version="1.0",
    )
    given = {"cat_names": ["id"], "label_names": ["label"], "shuffle": False}
    with pytest.raises(LoaderError, match=r"uint32 that parquet's version 1\.0 stores as int64"):
        KerasSequenceLoader(tmp_path, 2, device=device, **given)
    ((x, _),) = KerasSequenceLoader(tmp_path, 2, **given)
    assert x["id"].numpy().tolist() == [[1], [2]]


def test_no_such_gpu():
    with pytest.raises(LoaderError, match=r"a GPU with the number 99\. Received: cudaErrorInvalid"):
        use_device(99)


def test_an_error_of_a_living_gpu_names_the_rows(opened):
    *_, pieces = opened
    told = r"a\.parquet, row group 0\. Received: overflow"
    with pytest.raises(LoaderError, match=told) as caught, tell_gpu_errors(pieces[:1]):
        raise OverflowError("overflow")
    assert "new process" not in str(caught.value)


@pytest.fixture
def loader(tmp_path):
    frame = pl.DataFrame({"item": list(range(40)), "label": [0, 1] * 20})
    frame.write_parquet(tmp_path / "rows.parquet")
    return KerasSequenceLoader(
        tmp_path, 10, ["label"], cat_names=["item"], shuffle=False, device="gpu:0"
    )


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("face", FACES)
def test_a_transformation_on_the_host_is_refused(loader, face, name):
    data, sums = FACES[face](loader)
    with pytest.raises(LoaderError, match=r'map, repeat, take.* device="cpu"'):
        TRANSFORMATIONS[name](data)
    assert len(data) == len(sums)
    assert [int(tf.reduce_sum(x["item"])) for x, _ in data] == sums


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("face", FACES)
def test_a_compiled_step_takes_its_batches(loader, face, steps):
    """As Keras' `fit`, whose function takes the iterator; several steps a call are a loop in it."""
    data, sums = FACES[face](loader)

    @tf.function
    def taken(iterator):
        found = tf.TensorArray(tf.int64, steps)
        for step in tf.range(steps):
            x, _ = next(iterator)
            found = found.write(step, tf.cast(tf.reduce_sum(x["item"]), tf.int64))
        return found.stack()

    for _ in range(2):
        iterator = iter(data)
        calls = len(sums) // steps
        found = [taken(iterator) for _ in range(calls)]
        assert [int(n) for call in found for n in call] == sums[: calls * steps]


@pytest.mark.parametrize("face", FACES)
def test_fit_takes_its_batches(loader, face):
    data, sums = FACES[face](loader)
    item = keras.Input((1,), name="item", dtype="int64")
    same = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Model({"item": item}, same(keras.ops.cast(item, "float32")))
    model.compile(keras.optimizers.SGD(0.0), lambda _, output: output)
    fitted = model.fit(data, verbose=0, shuffle=False).history["loss"]
    assert [*fitted, model.evaluate(data, verbose=0)] == pytest.approx(
        [sum(sums) / len(sums) / 10] * 2
    )
    assert model.predict(data, verbose=0).sum() == pytest.approx(sum(sums))
