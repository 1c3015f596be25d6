"""The sizes of reads: small before the first batch, then as large as is allowed."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loader import ArrayLoader, KerasSequenceLoader
from loader.epochs import Epochs, Settings
from loader.order.epoch_plan import Piece, Share
from loader.order.mixing import Mixing
from loader.read import chunks
from workflow import Workflow


class Source:
    """Notes what it is asked to read at once, and gives nothing."""

    order_by = "test"

    def __init__(self, chunks_per_read, reads_parts=False):
        self.chunks_per_read = chunks_per_read
        self.reads_parts = reads_parts
        self.groups = []

    def in_order(self, groups, batch_size):
        del batch_size
        self.groups = [[p.start for chunk in group for p in chunk.pieces] for group in groups]
        return iter(())

    def mixed(self, groups, mixture, batch_size, seed):
        del mixture, seed
        return self.in_order(groups, batch_size)


def read_at_once(
    count: int,
    rows: int,
    max_rows: int,
    mixing: Mixing | None = None,
    chunks_per_read: int = 8,
):
    pieces = [Piece("a.parquet", n, n * rows, rows, n) for n in range(count)]
    shuffle = mixing is not None
    mixing = mixing or Mixing(pieces=1, least_rows=1, width=1, room=9)
    settings = Settings(10, shuffle, 0, None, mixing, max_rows, False, Share())
    source = Source(chunks_per_read)
    with pytest.raises(StopIteration):
        next(Epochs(pieces, source, settings).stream())
    flat = [start for group in source.groups for start in group]
    in_order = [piece.start for piece in pieces]
    assert (sorted(flat) if shuffle else flat) == in_order, "rows are lost, doubled or out of order"
    return [len(group) for group in source.groups]


def test_the_first_batch_waits_for_few_row_groups():
    assert read_at_once(20, 10_000, 1_000_000) == [2, 8, 8, 2]
    assert read_at_once(5, 10_000, 1_000_000, chunks_per_read=2) == [2, 2, 1]


def test_few_rows_are_read_together_when_there_is_a_first_batch():
    assert read_at_once(40, 5, 10_000) == [2, 38]
    assert read_at_once(9000, 2, 1_000_000) == [5, 8192, 803]
    assert read_at_once(12, 2, 16) == [5, 7]


def test_no_more_is_read_at_once_than_the_buffer_holds():
    assert read_at_once(10, 100, 399) == [2, 3, 3, 2]
    assert read_at_once(3, 100, 100) == [1, 1, 1]
    assert read_at_once(10, 5, 14) == [2, 2, 2, 2, 2]


def test_what_is_shuffled_together_is_read_together():
    assert read_at_once(12, 100, 10_000, Mixing(pieces=3, least_rows=1, width=2, room=9)) == [6, 6]
    assert read_at_once(12, 100, 10_000, Mixing(pieces=1, least_rows=400, width=2, room=9)) == [
        8,
        4,
    ]
    # A chunk stays within the buffer, however small row groups are.
    assert read_at_once(12, 100, 300, Mixing(pieces=1, least_rows=400, width=1, room=9)) == [
        3,
        3,
        3,
        3,
    ]


@pytest.fixture
def large_groups(tmp_path):
    """Two row groups of 100,000 rows."""
    ids = pl.DataFrame({"id": np.arange(200_000), "price": np.zeros(200_000)})
    ids.write_parquet(tmp_path / "0.parquet", row_group_size=100_000)
    return tmp_path


@pytest.fixture
def reads(monkeypatch):
    """Notes the first row and the number of rows of each piece that is read from files."""
    noted = []
    read = chunks.ParquetReader.read

    def note(self, pieces):
        noted.append([(piece.start, piece.rows) for piece in pieces])
        return read(self, pieces)

    monkeypatch.setattr(chunks.ParquetReader, "read", note)
    return noted


def open_ids(folder, batch_size, **options):
    return KerasSequenceLoader(
        folder, batch_size, cat_names=["id"], label_names=["price"], shuffle=False, **options
    )


def rows_of(batches):
    return [row for x, _ in batches for row in x["id"].numpy()[:, 0].tolist()]


def test_the_first_batches_of_a_large_row_group_are_read_alone(large_groups, reads):
    assert rows_of(open_ids(large_groups, 1000)) == [*range(200_000)]
    assert reads == [[(0, 17_000)], [(17_000, 83_000), (100_000, 100_000)]]
    reads.clear()
    assert rows_of(open_ids(large_groups, 90_000)) == [*range(200_000)]
    assert reads == [[(0, 100_000), (100_000, 100_000)]], "a read of few rows"


def test_a_resumed_epoch_and_a_rank_read_their_first_batches_alone(large_groups, reads):
    loader = open_ids(large_groups, 1000)
    first = iter(loader)
    seen = rows_of(next(first) for _ in range(3))
    state = loader.get_state()
    assert seen + rows_of(first) == [*range(200_000)]  # to the end, after which it reads no more
    reads.clear()
    again = open_ids(large_groups, 1000)
    again.set_state(state)
    assert seen + rows_of(again) == [*range(200_000)]
    assert reads == [[(3_000, 17_000)], [(20_000, 80_000), (100_000, 100_000)]]
    reads.clear()
    second = open_ids(large_groups, 1000, global_size=4, global_rank=1)
    assert rows_of(second) == [*range(50_000, 100_000)]
    assert reads == [[(50_000, 17_000)], [(67_000, 33_000)]]


def test_rows_stand_in_for_whole_row_groups(large_groups, reads):
    """The damage may be in the part that would be read after the first batches were handed out."""
    (file,) = large_groups.iterdir()
    group = pq.read_metadata(file).row_group(0).column(0)
    raw = bytearray(file.read_bytes())
    end = group.data_page_offset + group.total_compressed_size
    raw[end - 2000 : end] = bytes(2000)
    file.write_bytes(raw)
    with pytest.warns(UserWarning, match="1 row groups could not be read"):
        found = rows_of(open_ids(large_groups, 1000, on_bad_files="skip"))
    assert reads[0] == [(0, 100_000), (100_000, 100_000)]
    assert found == [*range(100_000, 200_000)] * 2


@pytest.fixture
def small_groups(tmp_path):
    """Two files of 200 row groups of ten rows."""
    for number in range(2):
        rows = pl.DataFrame({"id": np.arange(2000) + 2000 * number, "price": np.zeros(2000)})
        rows.write_parquet(tmp_path / f"{number}.parquet", row_group_size=10)
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """Counts the files that Polars is asked to open, and the queries over them."""
    counts = {"scans": 0, "queries": 0}
    scan, collect = pl.scan_parquet, pl.collect_all

    def scan_parquet(*arguments, **options):
        counts["scans"] += 1
        return scan(*arguments, **options)

    def collect_all(queries, **options):
        counts["queries"] += len(queries)
        return collect(queries, **options)

    monkeypatch.setattr("loader.read.chunks.pl.scan_parquet", scan_parquet)
    monkeypatch.setattr("loader.read.chunks.pl.collect_all", collect_all)
    return counts


def ids_of(folder, **options):
    loader = KerasSequenceLoader(
        folder, batch_size=64, cat_names=["id"], label_names=["price"], **options
    )
    return [[row for x, _ in loader for row in x["id"].numpy()[:, 0].tolist()] for _ in range(2)]


def test_a_footer_is_parsed_once_however_many_row_groups_and_epochs_there_are(small_groups, calls):
    one, other = ids_of(small_groups, shuffle=True, seed=7)
    assert calls["scans"] == 2
    assert one != other
    assert sorted(one) == sorted(other) == [*range(4000)]


def test_neighbours_in_a_file_are_one_query(small_groups, calls):
    assert ids_of(small_groups, shuffle=False) == [[*range(4000)]] * 2
    # The first read of an epoch is of a batch, the second of the rest of both files.
    assert calls["queries"] == 2 * (1 + 2)


@pytest.mark.parametrize("buffer_size", [0.1, 20_000])
def test_the_order_of_rows_does_not_depend_on_polars_engine(small_groups, monkeypatch, buffer_size):
    """Few rows at once take the streaming engine."""
    options = {"shuffle": True, "seed": 7, "buffer_size": buffer_size}
    streamed = ids_of(small_groups, **options)
    monkeypatch.setattr("loader.read.chunks.JOINED_ROWS", 5)
    assert ids_of(small_groups, **options) == streamed


@pytest.mark.parametrize("rows", [7, 1_000, chunks.JOINED_ROWS + 1])
@pytest.mark.parametrize("shuffle", [False, True])
def test_row_groups_of_any_size_are_read_whole(rows, shuffle, tmp_path):
    """Polars reads small ones with another engine than large ones."""
    count = 3 * rows
    numbers = np.arange(count)
    table = pa.table(
        {
            "n": numbers,
            "text": pa.array([f"a{n % 13}" for n in numbers]),
            "tags": pa.array([list(range(n % 4)) for n in numbers]),
            "price": pa.array([None if n % 5 == 0 else n / 2 for n in numbers], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows)
    loader = KerasSequenceLoader(
        tmp_path / "a.parquet",
        rows,
        cat_names=["n", "text", "tags"],
        cont_names=["price"],
        shuffle=shuffle,
        device="cpu",
    )
    found = []
    for batch in loader:
        n, text, price = (np.ravel(batch[name]) for name in ("n", "text", "price"))
        values, nnzs = (np.ravel(part) for part in batch["tags"])
        found += n.tolist()
        assert text.tolist() == [f"a{i % 13}".encode() for i in n]
        assert nnzs.tolist() == (n % 4).tolist()
        assert values.tolist() == [tag for i in n for tag in range(i % 4)]
        np.testing.assert_array_equal(price, np.where(n % 5, n / 2, np.nan).astype(np.float32))
    assert sorted(found) == numbers.tolist()
    assert (found == numbers.tolist()) is not shuffle


def test_thousands_of_small_files_are_read_without_a_thread_for_each(tmp_path):
    """Polars warns of a possible deadlock where one call has more queries than it may have threads."""
    pl.DataFrame({"price": [1.0], "label": [0]}).write_parquet(tmp_path / "0.parquet")
    for number in range(1, 1500):
        (tmp_path / f"{number}.parquet").hardlink_to(tmp_path / "0.parquet")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with ArrayLoader(tmp_path, 100, ["label"], cont_names=["price"]) as loader:
            assert sum(len(labels) for _, labels in loader) == 1500
    assert [str(one.message) for one in found] == []


@pytest.mark.parametrize("written", ["ours", "plain"])
def test_a_loader_reads_the_same_files_in_another_folder(tmp_path, monkeypatch, written):
    """As after Hydra's change of the folder: it found none, or others under the same names."""
    for folder, price in (("one", 1.0), ("two", 7.0)):
        (tmp_path / folder).mkdir()
        frame = pl.DataFrame({"price": [price] * 4})
        if written == "ours":
            Workflow(["price"]).fit(frame).transform_to_parquet(frame, tmp_path / folder / "train")
        else:
            (tmp_path / folder / "train").mkdir()
            frame.write_parquet(tmp_path / folder / "train" / "0.parquet")
    monkeypatch.chdir(tmp_path / "one")
    with ArrayLoader("train", 4, cat_names=[], cont_names=["price"]) as loader:
        monkeypatch.chdir(tmp_path / "two")
        for _ in range(2):
            assert [batch["price"].ravel().tolist() for batch in loader] == [[1.0] * 4]
