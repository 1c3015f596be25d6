"""Batches as numpy arrays are those of Keras, row for row, and need no TensorFlow."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from loader import ArrayLoader, KerasSequenceLoader, LoaderError

COLUMNS = {
    "batch_size": 64,
    "label_names": ["rating"],
    "cat_names": ["userId", "movieId", "genres"],
    "cont_names": ["price"],
    "seed": 7,
}


def flat(batch):
    """All arrays of a batch with their paths."""
    x, y = batch
    parts = {"y": y}
    for name, value in x.items():
        pair = value if isinstance(value, tuple) else (value,)
        parts |= {f"{name} {number}": part for number, part in enumerate(pair)}
    return {name: np.asarray(part) for name, part in parts.items()}


def assert_equal_batches(found, expected):
    found, expected = list(found), list(expected)
    assert len(found) == len(expected) > 0
    for one, other in zip(map(flat, found), map(flat, expected), strict=True):
        assert [*one] == [*other]
        for name, array in one.items():
            assert array.dtype == other[name].dtype
            np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False},
        {"parts_per_chunk": 3, "batch_size": 33, "drop_last": True},
        {"global_size": 3, "global_rank": 2},
        {"label_names": [], "cont_names": ["price", "rating"]},
        {"sparse_names": ["genres"], "sparse_max": {"genres": 5}},
    ],
    ids=["shuffled", "in order", "cut", "rank", "no labels", "padded"],
)
def test_batches_are_those_of_keras(folder, options):
    arguments = COLUMNS | options
    with (
        ArrayLoader(folder, **arguments) as loader,
        KerasSequenceLoader(folder, sparse_as_dense=True, device="cpu", **arguments) as keras,
    ):
        assert len(loader) == len(keras)
        assert loader.mixing() == keras.mixing()
        assert loader.input_schema == keras.input_schema
        for _ in range(2):  # Each epoch has its own order.
            batches, others = list(loader), list(keras)
            if not options.get("label_names", True):
                batches, others = [(x, 0) for x in batches], [(x, 0) for x in others]
            assert_equal_batches(batches, others)


def test_each_row_comes_once(folder, ratings):
    with ArrayLoader(folder, **COLUMNS) as loader:
        found = [int(user) for x, _ in loader for user in x["userId"][:, 0]]
    assert sorted(found) == ratings["userId"].to_list() != found


def test_arrays_are_the_readers_own_to_write(folder):
    """A batch that is written does not show in another."""
    with ArrayLoader(folder, **COLUMNS) as loader, ArrayLoader(folder, **COLUMNS) as other:
        for (x, _), (expected, _) in zip(loader, other, strict=True):
            np.testing.assert_array_equal(x["userId"], expected["userId"])
            x["userId"][:] = -1


def test_resumes_with_the_identical_batches(folder):
    with ArrayLoader(folder, **COLUMNS) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = json.loads(json.dumps(loader.get_state()))
        rest = list(batches)
    with ArrayLoader(folder, **COLUMNS) as again:
        again.set_state(state)
        assert_equal_batches(again, rest)
    with KerasSequenceLoader(folder, **COLUMNS) as keras:
        keras.set_state(state)
        assert_equal_batches(keras, rest)


def test_epochs_follow_one_another_in_a_generator(folder):
    with ArrayLoader(folder, **COLUMNS) as loader, ArrayLoader(folder, **COLUMNS) as other:
        assert_equal_batches(loader.repeat(2), [*other, *other])
        endless = loader.repeat()
        assert len([next(endless) for _ in range(3 * len(loader) + 1)]) == 3 * len(loader) + 1
        with pytest.raises(LoaderError, match="count"):
            loader.repeat(0)


def test_strings_stay_strings():
    frame = pl.DataFrame(
        {"name": ["a", "é", ""], "many": [["x"], [], ["y", "z"]], "label": [0, 1, 0]}
    )
    with ArrayLoader(frame, 3, ["label"], ["name", "many"], shuffle=False) as loader:
        ((x, _),) = loader
    assert [*map(to_text, x["name"][:, 0])] == ["a", "é", ""]
    assert [*map(to_text, x["many"][0][:, 0])] == ["x", "y", "z"]
    assert x["many"][1][:, 0].tolist() == [1, 0, 2]


def to_text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_other_columns_are_refused_as_keras_refuses_them(folder):
    with pytest.raises(LoaderError, match="userid"):
        ArrayLoader(folder, **COLUMNS | {"cat_names": ["userid"]})
    with pytest.raises(LoaderError, match="global_rank"):
        ArrayLoader(folder, **COLUMNS, global_size=2)
    with pytest.raises(LoaderError, match="GPU that TensorFlow may use"):
        ArrayLoader(folder, **COLUMNS, device="gpu:7")


def test_no_device_is_the_cpu_where_no_gpu_suits(folder):
    """As in `KerasSequenceLoader`, whose default it is."""
    with ArrayLoader(folder, **COLUMNS, device=None) as loader:
        assert loader.device == "cpu"
        with ArrayLoader(folder, **COLUMNS) as expected:
            assert_equal_batches(loader, expected)


def test_other_devices_need_tensorflow(folder):
    program = f"""
import sys
sys.modules["tensorflow"] = None
from loader import ArrayLoader, LoaderError
arguments = dict(label_names=["rating"], cat_names=["userId"], seed=1)
for device in ("gpu:0", "cuda", 0):
    try:
        ArrayLoader({str(folder)!r}, 64, device=device, **arguments)
    except LoaderError as error:
        print(error)
print(sum(len(y) for _, y in ArrayLoader({str(folder)!r}, 64, device=None, **arguments)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    *errors, rows = done.stdout.splitlines()
    for device, error in zip(["'gpu:0'", "'cuda'", "0"], errors, strict=True):
        assert f"Received: {device}, and no package tensorflow. Pass device=" in error
    assert rows == "1000"


def test_arguments_are_those_of_keras():
    """But the device is the CPU by default, and only the first five have a place."""
    keras = inspect.signature(KerasSequenceLoader).parameters
    own = dict(inspect.signature(ArrayLoader).parameters)
    assert keras.keys() - own.keys() == {"feature_columns", "engine", "sparse_as_dense"}
    device = own.pop("device")
    assert (device.default, keras["device"].default) == ("cpu", None)
    for name, parameter in own.items():
        twin = keras[name]
        assert (parameter.default, parameter.annotation) == (twin.default, twin.annotation), name
    placed = [name for name, p in own.items() if p.kind is not p.KEYWORD_ONLY]
    assert placed == ["paths_or_dataset", "batch_size", "label_names", "cat_names", "cont_names"]


def test_tensorflow_is_not_imported(folder):
    program = f"""
import sys
from loader import ArrayLoader
with ArrayLoader({str(folder)!r}, 64, ["rating"], ["userId", "genres"], seed=1) as loader:
    rows = sum(len(y) for _, y in loader)
print(rows, *(name for name in ("tensorflow", "keras", "torch", "jax") if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["1000"]


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("kind", [pl.DataFrame, dict, pd.DataFrame])
def test_batches_that_are_changed_leave_the_frame_as_it_was(kind, shuffle):
    """Rows in order are cut from the frame's memory, which a page's begin aligns for a view."""
    rows = 1 << 16
    data = {
        "price": pl.int_range(rows, eager=True).cast(pl.Float32).to_numpy(writable=True),
        "rating": np.ones(rows, np.float32),
    }
    frame = pl.DataFrame(data).with_columns(
        genres=pl.int_range(3 * rows, eager=True).reshape((rows, 3)).arr.to_list()
    )
    frame = {
        pl.DataFrame: frame,
        dict: frame.to_dict(),
        pd.DataFrame: pd.DataFrame(data, copy=False).assign(genres=frame["genres"].to_numpy()),
    }[kind]
    arguments = {"cat_names": ["genres"], "cont_names": ["price"], "label_names": ["rating"]}
    with ArrayLoader(frame, 4096, shuffle=shuffle, seed=0, **arguments) as loader:
        for x, y in loader:
            for array in (x["price"], *x["genres"], y):
                array[:] = -1
        found = list(loader)
    assert sum(x["price"].sum(dtype=np.float64) for x, _ in found) == rows * (rows - 1) / 2
    assert sum(x["genres"][0].sum() for x, _ in found) == 3 * rows * (3 * rows - 1) // 2
    assert sum(y.sum() for _, y in found) == rows
    assert np.array_equal(np.asarray(frame["price"]), np.arange(rows, dtype=np.float32))


@pytest.mark.parametrize("kind", ["pandas", "numpy", "arrow", "arrow lists"])
def test_data_that_is_changed_later_leaves_the_batches_as_they_were(kind):
    values = np.arange(8.0)
    if kind == "pandas":
        data = frame = pd.DataFrame({"a": values})
    elif kind == "numpy":
        data = {"a": values}
    elif kind == "arrow":
        data = pa.table({"a": values})
    else:
        data = pa.table({"a": pa.ListArray.from_arrays([*range(0, 10, 2)], pa.array(values))})
    loader = ArrayLoader(data, 8, cat_names=["a"], shuffle=False)
    if kind == "pandas":
        frame.loc[:, "a"] = -1.0
    values[:] = -1
    found = next(loader)["a"]
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_array_equal(found.ravel(), np.arange(8.0))
