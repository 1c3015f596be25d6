"""Files that are damaged, gone or others, read by a GPU: the error names them, or they are replaced."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections import Counter

import damage_pages
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from loader_rows import SETTINGS, make_frame

from loader import KerasSequenceLoader, LoaderError

pytestmark = pytest.mark.timeout(120)

PART = 3_000  # rows of each of six files
SECONDS = 20  # of random damage


@pytest.fixture(scope="module")
def frame():
    return make_frame()


@pytest.fixture
def file(frame, tmp_path):
    """A file of row groups 0, 1 and 2, the last of 6,000 rows."""
    frame[:20_000].write_parquet(tmp_path / "a.parquet", row_group_size=7_000)
    return tmp_path / "a.parquet"


@pytest.fixture
def read(file, device):
    """Reads the ids of its rows."""

    def read(**more):
        given = {"device": device, "shuffle": False, **SETTINGS, **more}
        loader = KerasSequenceLoader(file, 1000, **given)
        return np.concatenate([x["id"].numpy() for x, _ in loader])[:, 0]

    return read


def assert_told(texts, function):
    with pytest.raises(LoaderError) as caught:
        function()
    assert not [text for text in texts if text not in str(caught.value)], caught.value


def assert_row_group_2_is_replaced(frame, read):
    """Sorted by the first rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ids = read(on_bad_files="skip")
    np.testing.assert_array_equal(ids, [*frame["id"][:14_000], *frame["id"][:6_000]])
    assert len(could_not_be_read(caught)) == 1


def could_not_be_read(caught):
    return [each for each in caught if "could not be read" in str(each.message)]


def test_nulls_are_named_or_replaced(file, read, frame):
    row = pl.int_range(pl.len())
    nulls = [pl.when(row != at).then(name) for at, name in ((15_000, "id"), (15_001, "flag"))]
    frame[:20_000].with_columns(nulls).write_parquet(file, row_group_size=7_000)
    assert_told(["'id' (int32), 'flag' (bool)", "row group 2"], read)
    assert_row_group_2_is_replaced(frame, read)


def test_a_list_that_is_too_long_is_named(read):
    assert_told(["at most 2", "row group 0"], lambda: read(sparse_max={"tags": 2}))


def test_a_file_cut_short_or_gone_since_is_named(file, device):
    loader = KerasSequenceLoader(file, 1000, device=device, shuffle=False, **SETTINGS)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert_told(["a.parquet, row group 0"], lambda: list(loader))
    file.unlink()
    assert_told(["a.parquet, row group 0"], lambda: list(loader))


def test_broken_pages_are_named_or_replaced(file, read, frame):
    damage_pages.break_pages(file, 2)
    assert_told(["a.parquet, row group 2", "damaged"], read)
    assert_row_group_2_is_replaced(frame, read)


@pytest.mark.parametrize(
    ("spoil_first", "shuffle", "is_dense"),
    [(True, False, True), (False, False, False), (False, True, True)],
)
def test_four_of_six_files_unusable_give_the_cpus_rows(
    frame, device, tmp_path, spoil_first, shuffle, is_dense
):
    given = {**SETTINGS, "shuffle": shuffle, "sparse_as_dense": is_dense}
    expected, found = (
        epochs_of_spoilt(tmp_path, frame, spoil_first, where, given) for where in ("cpu", device)
    )
    assert found == expected


def epochs_of_spoilt(folder, frame, spoil_first, device, settings):
    """The batches and rows of each epoch, and the number of row groups that were replaced."""
    for number in range(6):
        part = frame[number * PART : (number + 1) * PART]
        part.write_parquet(folder / f"{number}.parquet", row_group_size=700)
    epochs = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if spoil_first:
            spoil(folder)
        given = {"device": device, "on_bad_files": "skip", "seed": 5, **settings}
        loader = KerasSequenceLoader(folder, 512, **given)
        (folder / "4.parquet").unlink()
        if not spoil_first:
            spoil(folder)
        for _ in range(3):
            batches = list(loader)
            assert len(batches) == len(loader)
            epochs.append((len(batches), rows_of(batches), len(could_not_be_read(caught))))
    assert len(loader.skipped_files) == 4
    return epochs


def spoil(folder):
    """One file cut short, one of other bytes, one with other columns."""
    data = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(data[: len(data) // 2])
    (folder / "2.parquet").write_bytes(bytes(len(data)))
    other = pl.read_parquet(folder / "3.parquet").drop("id").with_columns(flag=pl.lit(1.5))
    other.write_parquet(folder / "3.parquet")


def rows_of(batches):
    """Each row's values, side by side, and how often it came."""
    rows = Counter()
    for x, y in batches:
        parts = [bytes_of(column) for column in [*x.values(), y]]
        rows.update(b"|".join(row) for row in zip(*parts, strict=True))
    return rows


def bytes_of(column):
    if isinstance(column, tuple):
        values, lengths = (half.numpy()[:, 0] for half in column)
        return [part.tobytes() for part in np.split(values, np.cumsum(lengths)[:-1])]
    dense = tf.sparse.to_dense(column) if isinstance(column, tf.SparseTensor) else column
    return [row.tobytes() for row in np.nan_to_num(dense.numpy())]


@pytest.mark.parametrize("codec", ["snappy", "zstd", "uncompressed"])
def test_random_damage_is_noticed_or_decodes_to_other_values(codec, device, tmp_path, environment):
    rows = np.arange(3 * damage_pages.GROUP)
    random = np.random.default_rng(2)
    frame = pl.DataFrame(
        {
            "id": (random.zipf(1.2, len(rows)) % 10_000).astype(np.int32),
            "long": 1_700_000_000_000 + rows // 3 * 1_000,  # as times
            "label": random.integers(0, 2, len(rows)).astype(np.int32),
        }
    )
    good = tmp_path / "good.parquet"
    frame.write_parquet(good, compression=codec, row_group_size=damage_pages.GROUP)
    found = try_all(tmp_path, device, environment)
    assert not {what: n for what, n in found.items() if not what.endswith(damage_pages.GOOD)}
    if codec != "uncompressed":  # where most of it makes other values
        assert any(what.endswith(damage_pages.NOTICED) for what in found), found


def try_all(folder, device, environment):
    """Outcomes of as many tries as there is time for, with a new process when one has ended."""
    found = Counter()
    end, number = time.monotonic() + SECONDS, 0
    while not found or time.monotonic() < end:
        left = max(end - time.monotonic(), 1)
        printed, ended = run(folder, device, number, left, environment)
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
        found.update(f"{mode}: {outcome}" for mode, outcome in lines)
        number += len(lines)
        if ended:
            found[f"number {number} {ended}"] += 1
            number += 1
    return found


def run(folder, device, first, seconds, environment):
    """The output of a program, and its exit status if it failed."""
    program = [sys.executable, damage_pages.__file__, folder, device, str(first), str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, env=environment, text=True, **pipes) as process:
        try:
            printed, errors = process.communicate(timeout=seconds + damage_pages.GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, errors = process.communicate()
            return printed, f"hung: {errors[-1500:]}"
    code = process.returncode
    return printed, f"ended by {code}: {errors[-300:]}" if code else ""
