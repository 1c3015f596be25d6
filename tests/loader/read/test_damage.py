"""Damage found while reading: an error that names the place, or row groups passed over."""

import time

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from loader import LoaderError
from loader.errors import DamagedError
from loader.files.parquet_files import RowGroup
from loader.files.skipped import Skipped
from loader.order.epoch_plan import split_row_groups
from loader.read.damaged import SkippingReader
from workflow.data.checksums import add_checksums

COLUMNS = {"cat_names": ["userId"], "cont_names": []}


@pytest.fixture
def copies(folder, tmp_path):
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def break_pages(file, row_group):
    """Overwrite the data pages of one row group, leaving the footer as it is."""
    group = pq.read_metadata(file).row_group(row_group)
    data = bytearray(file.read_bytes())
    for number in range(group.num_columns):
        chunk = group.column(number)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(data)


def truncate(file):
    """Cut data out of the middle, so that the footer's offsets point beyond it."""
    data = file.read_bytes()
    file.write_bytes(data[:2000] + data[-1500:])


def change_type(file):
    pl.read_parquet(file).cast({"userId": pl.Int32}).write_parquet(file, row_group_size=100)


def put_nulls(file):
    frame = pl.read_parquet(file)
    nulls = pl.when(pl.int_range(pl.len()) < 100).then(None).otherwise("userId").alias("userId")
    frame.with_columns(nulls).write_parquet(file, row_group_size=100)


DAMAGE = {
    "corrupt pages": lambda file: break_pages(file, 0),
    "truncated": truncate,
    "gone": lambda file: file.unlink(),
    "another type": change_type,
    "nulls": put_nulls,
    "no parquet": lambda file: file.write_bytes(b"PAR1 no more"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_raise_names_file_and_row_group_at_once(make, copies, damage):
    loader = make(copies, shuffle=False, **COLUMNS)
    damage(copies / "1.parquet")
    start = time.monotonic()
    with pytest.raises(LoaderError, match=r"1\.parquet, row group 0") as caught:
        list(loader)
    assert time.monotonic() - start < 5, "hung before it told"
    if damage is not put_nulls:
        assert "has changed or is damaged" in str(caught.value)


def test_the_decoders_error_is_the_cause(make, copies):
    loader = make(copies, shuffle=False, **COLUMNS)
    break_pages(copies / "1.parquet", 2)
    with pytest.raises(LoaderError, match=r"1\.parquet, row group 2") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, (pl.exceptions.PolarsError, OSError)) or (
        "Panic" in type(caught.value.__cause__).__name__
    )


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_skip_replaces_what_is_damaged_and_reports_it(make, copies, users, damage):
    loader = make(copies, shuffle=False, on_bad_files="skip", **COLUMNS)
    damage(copies / "1.parquet")
    with pytest.warns(UserWarning, match=r"row groups could not be read.*1\.parquet, row group 0"):
        seen = users(loader)
    assert len(seen) == 1000, "an epoch lost its length"
    assert set(range(400)) | set(range(750, 1000)) <= set(seen)
    assert loader.skipped_files == [str(copies / "1.parquet")]
    with pytest.warns(UserWarning, match="row groups could not be read"):
        assert users(loader) == seen, "epochs differ"


def test_only_the_damaged_row_group_is_lost(make, copies, users):
    break_pages(copies / "1.parquet", 1)  # rows 500 to 599
    loader = make(copies, shuffle=False, on_bad_files="skip", **COLUMNS)
    with pytest.warns(UserWarning, match=r"1 row groups could not be read"):
        seen = users(loader)
    assert seen == [*range(500), *range(600, 700), *range(600, 1000)]


def test_small_row_groups_stand_in_together(make, ratings, tmp_path, users):
    ratings[:100].write_parquet(tmp_path / "0.parquet", row_group_size=100)
    ratings[100:130].write_parquet(tmp_path / "1.parquet", row_group_size=10)
    loader = make(tmp_path, shuffle=False, on_bad_files="skip", **COLUMNS)
    (tmp_path / "0.parquet").unlink()
    with pytest.warns(UserWarning, match="could not be read"):
        seen = users(loader)
    few = list(range(100, 130))
    assert seen == [*few, *few, *few, *range(100, 110), *few]


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_keep_equal_steps_and_resume_gives_the_identical_stream(make, copies, users, shuffle):
    break_pages(copies / "0.parquet", 1)
    break_pages(copies / "2.parquet", 0)
    options = {"on_bad_files": "skip", "shuffle": shuffle, "batch_size": 40, **COLUMNS}

    def share(rank):
        loader = make(copies, global_size=3, global_rank=rank, **options)
        batches = iter(loader)
        first = users([next(batches), next(batches)])
        state = loader.get_state()
        rest = users(batches)
        again = make(copies, global_size=3, global_rank=rank, **options)
        again.set_state(state)
        assert users(again) == rest
        return first + rest

    with pytest.warns(UserWarning, match="could not be read"):
        shares = [share(rank) for rank in range(3)]
    assert [len(share) for share in shares] == [334, 334, 334]
    lost = set(range(100, 200)) | set(range(750, 850))
    assert {row for share in shares for row in share} == set(range(1000)) - lost


def test_files_that_make_no_table_with_the_first_are_left_out(make, copies, users):
    strings = pl.read_parquet(copies / "1.parquet").cast({"userId": pl.String})
    strings.write_parquet(copies / "1.parquet")
    pl.read_parquet(copies / "2.parquet").drop("userId").write_parquet(copies / "2.parquet")
    with pytest.warns(UserWarning, match=r"Skipping a file: .*'userId'") as warned:
        loader = make(copies, shuffle=False, on_bad_files="skip", **COLUMNS)
    assert len(warned) == 2
    assert users(loader) == list(range(400))
    assert [file[-9:] for file in loader.skipped_files] == ["1.parquet", "2.parquet"]


def test_nothing_that_can_be_read(make, copies):
    loader = make(copies, on_bad_files="skip", **COLUMNS)
    for file in copies.glob("*.parquet"):
        file.unlink()
    with pytest.raises(LoaderError, match="Expected a row group that can be read"):
        list(loader)


def test_too_long_a_row_is_no_damage(make):
    """It is the constructor's mistake, and skipping would hide it."""
    loader = make(
        cont_names=[],
        sparse_names=["genres"],
        sparse_max={"genres": 2},
        sparse_as_dense=True,
        on_bad_files="skip",
    )
    with pytest.raises(LoaderError, match="Raise sparse_max"):
        list(loader)


def test_good_data_warns_of_nothing(make, users):
    loader = make(on_bad_files="skip")
    assert sorted(users(loader)) == list(range(1000))
    assert loader.skipped_files == []


@pytest.mark.parametrize("types", [("int64", "float64"), ("float32", "int32")])
def test_another_type_is_told_where_the_file_has_as_many_bytes_as_before(make, tmp_path, types):
    def write(dtype):
        table = pa.table({"x": np.arange(100).astype(dtype), "rating": np.ones(100, "float32")})
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(table, tmp_path / "1.parquet", store_schema=False, **plain)
        return (tmp_path / "1.parquet").stat().st_size

    before = write(types[0])
    loader = make(tmp_path, cat_names=[], cont_names=["x"], shuffle=False)
    assert write(types[1]) == before
    with pytest.raises(LoaderError, match=rf"{types[1].title()} in column 'x', not {types[0]}"):
        next(iter(loader))


@pytest.mark.long
def test_lost_disk_blocks_give_an_error_or_other_values_and_never_hang(make, copies, users):
    """Zeros in the place of a run of bytes. Polars ends the process at some other damage."""
    file = copies / "1.parquet"
    good = file.read_bytes()
    random = np.random.default_rng(0)
    loader = make(copies, shuffle=False, **COLUMNS)
    told = 0
    for _ in range(40):
        data = bytearray(good)
        place = random.integers(4, len(good) - 4000)
        data[place : place + 512] = bytes(512)
        file.write_bytes(data)
        try:
            assert len(users(loader)) == 1000
        except LoaderError as error:
            assert "1.parquet, row group" in str(error)  # noqa: PT017 - either is right
            told += 1
    assert told > 10


def test_the_error_reaches_fit_with_its_text(make, copies):
    loader = make(copies, shuffle=False, **COLUMNS)
    break_pages(copies / "1.parquet", 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"1\.parquet, row group 2"):
        for _ in loader.as_dataset():
            pass


def test_pages_that_decode_to_other_values_are_replaced_too(make, users, folder, tmp_path):
    """Without checksums a flipped bit of an id is another id."""
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
        add_checksums(tmp_path / file.name)
    damaged = tmp_path / "1.parquet"
    chunk = pq.read_metadata(damaged).row_group(1).column(0)
    raw = bytearray(damaged.read_bytes())
    raw[chunk.data_page_offset + 40] ^= 1
    damaged.write_bytes(raw)
    with pytest.raises(LoaderError, match=r"1\.parquet, row group 1.*column 'userId'"):
        list(make(tmp_path, shuffle=False, **COLUMNS))
    loader = make(tmp_path, shuffle=False, on_bad_files="skip", **COLUMNS)
    for _ in range(2):
        with pytest.warns(UserWarning, match="1 row groups could not be read"):
            got = users(loader)
        # Files of 400, 350 and 250 rows: rows 500 to 599 are gone, 600 to 699 come twice.
        assert got == [*range(500), *range(600, 700), *range(600, 1000)]


def test_what_was_read_before_a_damaged_row_group_is_not_kept():
    """An error's traceback and cause would hold it: of a GPU its memory."""

    class Reader:
        def read(self, pieces):
            if any(piece.row_group == 1 for piece in pieces):
                raise DamagedError("damaged", ("a.parquet", 1)) from ValueError()
            return sum(piece.rows for piece in pieces)

    row_groups = [RowGroup("a.parquet", n, 10 * n, 10, 80) for n in range(3)]
    skipped = Skipped()
    reader = SkippingReader(Reader(), row_groups, skipped)
    assert reader.read(split_row_groups(row_groups, 100)) == 30
    (reason,) = skipped.reasons.values()
    assert str(reason) == "damaged"
    assert reason.__traceback__ is None
    assert reason.__cause__ is None


def test_many_damaged_row_groups_are_found_without_reading_all_again_for_each():
    """A share whose connection is lost damages all, and reading anew for each one took the cube of them."""

    class Reader:
        reads = 0

        def read(self, pieces):
            Reader.reads += len(pieces)
            for piece in pieces:
                if piece.row_group % 3:
                    raise DamagedError("damaged", (piece.path, piece.row_group))
            return [(piece.row_group, piece.rows) for piece in pieces]

    row_groups = [RowGroup("a.parquet", n, 10 * n, 10, 80) for n in range(300)]
    reader = SkippingReader(Reader(), row_groups, Skipped(), lambda found, _: found)
    # Two damaged ones after each sound one: the next sound one stands in for both.
    expected = [(-(-n // 3) * 3 % 300, 10) for n in range(300)]
    assert reader.read(split_row_groups(row_groups, 100)) == expected
    assert Reader.reads < 10 * 300


def test_the_error_where_every_row_group_is_damaged():
    class Reader:
        def read(self, pieces):
            raise DamagedError(f"damaged {pieces[0].row_group}", ("a", pieces[0].row_group))

    row_groups = [RowGroup("a", n, 10 * n, 10, 80) for n in range(3)]
    reader = SkippingReader(Reader(), row_groups, Skipped())
    with pytest.raises(LoaderError, match=r"Received: 3 damaged ones.*: damaged"):
        reader.read(split_row_groups(row_groups, 100)[:1])
