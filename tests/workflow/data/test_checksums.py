"""Files that are written here: any byte that is changed afterwards is found by every reader."""

from __future__ import annotations

import shutil
import struct

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import xxhash
from damaged import flips

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError, ops
from workflow.data.checksums import add_checksums, read_footer

ROWS = 3000
NAMES = ["user", "price", "city", "tags", "label"]


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "user": random.zipf(1.4, ROWS) % 5000,
            "price": random.normal(size=ROWS),
            "city": [f"c{n % 37}" for n in range(ROWS)],
            "tags": [[n % 7] * (n % 3) for n in range(ROWS)],
            "label": np.arange(ROWS) % 2,
        }
    )


@pytest.fixture(scope="module")
def written(rows, tmp_path_factory):
    """A file of `transform_to_parquet`, in a folder of its own."""
    same = NAMES >> ops.LambdaOp(lambda column: column)
    folder = tmp_path_factory.mktemp("written")
    (file,) = Workflow(same).fit(rows).transform_to_parquet(rows, folder / "out")
    return file


def make():
    ids = ["user", "city", "tags"] >> ops.Categorify()
    return Workflow(ids + (["price"] >> ops.Normalize()) + "label")


def batches(file):
    loader = KerasSequenceLoader(
        str(file),
        batch_size=1000,
        label_names=["label"],
        cat_names=["user", "city", "tags"],
        cont_names=["price"],
        shuffle=False,
        device="cpu",
    )
    return [
        [half.numpy() for half in (x["user"], x["price"], x["city"], *x["tags"], y)]
        for x, y in loader
    ]


@pytest.mark.parametrize("damages", [60, pytest.param(200, marks=pytest.mark.long)])
def test_every_reader_refuses_a_damaged_file_or_reads_it_right(written, tmp_path, damages):
    fitted = make().fit(written)
    want = fitted.transform(written).collect()
    want_batches = batches(written)
    bad, out = tmp_path / "bad.parquet", tmp_path / "out"
    reads = {
        "fit": lambda: make().fit(bad).transform(written).collect().equals(want),
        "transform": lambda: fitted.transform(bad).collect().equals(want),
        "write": lambda: pl.read_parquet(fitted.transform_to_parquet(bad, out)).equals(want),
        "load": lambda: all(
            all(map(np.array_equal, *pair)) for pair in zip(batches(bad), want_batches, strict=True)
        ),
    }
    errors = []
    for damaged in flips(written.read_bytes(), damages, seed=8):
        bad.write_bytes(damaged)
        for name, read in reads.items():
            try:
                assert read(), f"{name} read other values"
            except (WorkflowError, LoaderError) as error:
                errors.append(str(error))
        shutil.rmtree(out, ignore_errors=True)
    assert all(str(bad) in error for error in errors)
    assert len(errors) > 3.5 * damages, "hardly any byte of a file is unused"


def test_damage_without_checksums_raises_nothing_but_our_errors(rows, tmp_path):
    """Polars panics over some of these files, which is no `Exception`."""
    foreign, bad, out = (tmp_path / name for name in ("foreign.parquet", "bad.parquet", "out"))
    rows.write_parquet(foreign, row_group_size=1000)
    fitted = make().fit(foreign)
    reads = {
        "fit": lambda: make().fit(bad),
        "write": lambda: fitted.transform_to_parquet(bad, out),
        "load": lambda: batches(bad),
    }
    refused = dict.fromkeys(reads, 0)
    for damaged in flips(foreign.read_bytes(), 80, seed=3):
        bad.write_bytes(damaged)
        for name, read in reads.items():
            try:
                read()
            except (WorkflowError, LoaderError):
                refused[name] += 1
        shutil.rmtree(out, ignore_errors=True)
    assert min(refused.values()) > 20


def test_a_damaged_column_that_is_not_read_does_not_matter(written, tmp_path):
    chunk = pq.read_metadata(written).row_group(0).column(NAMES.index("price"))
    raw = bytearray(written.read_bytes())
    raw[chunk.data_page_offset + 40] ^= 4
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(raw)
    users = Workflow(["user"] >> ops.Categorify())
    want = users.fit_transform(written).collect()
    assert users.fit_transform(bad).collect().equals(want)
    with pytest.raises(
        WorkflowError, match=r"row group 0\. Column 'price' differs from its checksum"
    ):
        Workflow(["price"] >> ops.Normalize()).fit(bad)


def test_other_readers_pass_over_the_checksums(written, rows):
    assert pl.DataFrame(pq.read_table(written)).equals(rows)
    assert pl.read_parquet(written).equals(rows)
    assert pl.read_parquet_schema(written) == rows.schema


@pytest.mark.parametrize("rows_", [0, 1, 2**17, 2**18 + 3])
@pytest.mark.parametrize("compression", ["snappy", "uncompressed"])
def test_files_of_every_size_have_checksums(rows_, compression, tmp_path):
    file = tmp_path / "a.parquet"
    frame = pl.DataFrame(
        {"n": np.random.default_rng(0).integers(0, 2**62, rows_), "s": ["x"] * rows_}
    )
    frame.write_parquet(file, compression=compression, row_group_size=200_000)
    raw, metadata = file.read_bytes(), pq.read_metadata(file)
    groups = range(metadata.num_row_groups)
    add_checksums(file)
    _, checksums = read_footer(file)
    assert checksums.damaged(groups, ["n", "s"]) is None
    assert pl.read_parquet(file).equals(frame)
    assert checksums_in(file, 2 * len(groups)) == [
        xxhash.xxh3_64_intdigest(raw[start : start + column.total_compressed_size])
        for group in groups
        for column in map(metadata.row_group(group).column, range(2))
        for start in [column.dictionary_page_offset or column.data_page_offset]
    ]


def checksums_in(file, count):
    """The last numbers of a footer, without its own checksum and mark."""
    footer = file.read_bytes()[: -8 - 1 - 16 - 8]
    return list(struct.unpack(f"<{count}Q", footer[len(footer) - 8 * count :]))


def test_the_footers_own_checksum_is_of_all_before_it(written):
    raw = written.read_bytes()
    length = int.from_bytes(raw[-8:-4], "little")
    footer = raw[-8 - length : -8]
    assert struct.unpack("<Q", footer[-25:-17]) == (xxhash.xxh3_64_intdigest(footer[:-25]),)


def test_page_checksums_of_other_writers_are_not_verified_here_but_by_pyarrow(tmp_path):
    file = tmp_path / "others.parquet"
    table = pl.DataFrame({"user": np.arange(1, ROWS + 1)}).to_arrow()
    pq.write_table(table, file, write_page_checksum=True, compression="none", use_dictionary=False)
    assert pq.read_table(file, page_checksum_verification=True).equals(table)
    raw = bytearray(file.read_bytes())
    raw[raw.index(struct.pack("<2q", 1000, 1001))] ^= 1
    file.write_bytes(raw)
    expected = [*range(1, 1000), 1001, *range(1001, ROWS + 1)]
    assert pl.read_parquet(file)["user"].to_list() == expected
    kept = Workflow(["user"] >> ops.LambdaOp(lambda column: column)).fit(file)
    assert kept.transform(file).collect()["user"].to_list() == expected
    loader = KerasSequenceLoader(
        str(file), 1000, label_names=[], cat_names=["user"], shuffle=False, device="cpu"
    )
    read = np.concatenate([np.asarray(features["user"]) for features in loader])
    assert read[:, 0].tolist() == expected
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(file, page_checksum_verification=True)
