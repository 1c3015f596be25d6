"""TFRecord files become the parquet that a plain loop over their records gives."""

import gzip
import os
import signal
import subprocess
import sys
import zlib
from functools import cache

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from polars.testing import assert_frame_equal

from loader import ArrayLoader, LoaderError, convert_tfrecords_to_parquet
from workflow import Workflow, ops

KINDS = {
    int: lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v)),
    float: lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v)),
    bytes: lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)),
}


def example(**values):
    """A record; lists as they are, other values as the only one, None as a feature without type."""
    features = {}
    for name, value in values.items():
        many = value if isinstance(value, list) else [value]
        features[name] = tf.train.Feature() if value is None else KINDS[type(many[0])](many)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path, records, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


def rows(start, stop):
    """As a loop would make them; each value follows from the row's number."""
    return [
        {
            "user": n,
            "price": n / 4 if n % 5 else None,
            "name": f"é{n}",
            "genres": [*range(n % 4)],
            "words": ["a", "ü"][: n % 3],
        }
        for n in range(start, stop)
    ]


def record(row):
    values = {"user": row["user"], "name": row["name"].encode()}
    if row["price"] is not None:
        values["price"] = row["price"]
    if row["genres"]:
        values["genres"] = row["genres"]
    if row["words"]:
        values["words"] = [word.encode() for word in row["words"]]
    return example(**values)


@cache
def records(start, stop):
    return [record(row) for row in rows(start, stop)]


LISTS = tf.train.FeatureLists(
    feature_list={"a": tf.train.FeatureList(feature=[tf.train.Feature()])}
)
SEQUENCE = tf.train.SequenceExample(feature_lists=LISTS).SerializeToString()
PARTS = {"a": (0, 50), "b": (50, 80)}


def frame(found):
    kinds = {"user": pl.Int64, "price": pl.Float32, "name": pl.String}
    kinds |= {"genres": pl.List(pl.Int64), "words": pl.List(pl.String)}
    return pl.DataFrame(found, kinds).select(sorted(kinds))


def read(files):
    return pl.concat([pl.read_parquet(file) for file in files])


@pytest.fixture
def shards(tmp_path):
    """Three files of 700, 0 and 9,500 records: the last is more than one batch."""
    folder = tmp_path / "records"
    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 700), (700, 700), (700, 10_200)]):
        write(folder / f"{number}.tfrecord", records(start, stop))
    return folder


@pytest.fixture
def target(tmp_path):
    return tmp_path / "parquet"


def test_rows_are_those_of_a_plain_loop(shards, target):
    files = convert_tfrecords_to_parquet(f"{shards}/*.tfrecord", target, rows_per_file=4000)
    assert_frame_equal(read(files), frame(rows(0, 10_200)))
    assert [pl.read_parquet(file).height for file in files] == [700, 0, 4000, 4000, 1500]
    assert sorted(path.name for path in target.iterdir()) == [
        "_schema.json",
        *(f"part-{n:05}.parquet" for n in range(5)),
    ]


def test_loader_and_workflow_read_it(shards, target):
    convert_tfrecords_to_parquet(f"{shards}/*", target)
    workflow = Workflow(["genres"] >> ops.Categorify()).fit(target)
    assert workflow.transform(target).collect().height == 10_200
    with ArrayLoader(target, 1000, [], ["user", "genres"], shuffle=False) as loader:
        users = np.concatenate([x["user"][:, 0] for x in loader])
    np.testing.assert_array_equal(users, np.arange(10_200))


@pytest.mark.parametrize("given", [None, "GZIP"])
def test_gzip_is_found(tmp_path, target, given):
    path = write(tmp_path / "a.tfrecord.gz", records(0, 50), "GZIP")
    files = convert_tfrecords_to_parquet(path, target, compression_type=given)
    assert_frame_equal(read(files), frame(rows(0, 50)))


def test_zlib_is_named(tmp_path, target):
    path = write(tmp_path / "a.tfrecord", records(0, 50), "ZLIB")
    files = convert_tfrecords_to_parquet([path], target, compression_type="ZLIB")
    assert_frame_equal(read(files), frame(rows(0, 50)))
    with pytest.raises(LoaderError, match="whole TFRecords, not compressed"):
        convert_tfrecords_to_parquet(path, target.with_name("other"))


def test_a_file_without_bytes_has_no_records_unless_it_is_named_as_gzip(tmp_path, target):
    """TensorFlow's writer leaves no bytes for no records, but 20 with GZIP."""
    some, none = write(tmp_path / "a", [example(user=1)]), write(tmp_path / "b", [])
    killed = tmp_path / "c.gz"
    killed.touch()
    assert (none.stat().st_size, write(tmp_path / "d.gz", [], "GZIP").stat().st_size) == (0, 20)
    with pytest.raises(LoaderError, match=r"c\.gz as whole TFRecords, GZIP"):
        convert_tfrecords_to_parquet([some, none, killed], target)
    files = convert_tfrecords_to_parquet([some, none, tmp_path / "d.gz"], target)
    assert read(files)["user"].to_list() == [1]


def test_described_features(tmp_path, target):
    records = [
        example(one=1, three=[1.0, 2.0, 3.0], many=[b"x", b"y"], more=9),
        example(three=[4.0, 5.0, 6.0]),
    ]
    features = {
        "one": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
        "three": tf.io.FixedLenFeature([3], tf.float32),
        "many": tf.io.VarLenFeature(tf.string),
        "absent": tf.io.FixedLenFeature([2], tf.int64, default_value=[7, 8]),
        "ragged": tf.io.RaggedFeature(tf.int64),
    }
    files = convert_tfrecords_to_parquet(write(tmp_path / "a", records), target, features)
    assert read(files).to_dict(as_series=False) == {
        "one": [1, -1],
        "three": [[1, 2, 3], [4, 5, 6]],
        "many": [["x", "y"], []],
        "absent": [[7, 8], [7, 8]],
        "ragged": [[], []],
    }


def test_defaults_are_those_of_tensorflow(tmp_path, target):
    records = [example(a=n, b=[n, n + 1]) if n % 3 else example() for n in range(10)]
    features = {
        "a": tf.io.FixedLenFeature([], tf.int64, default_value=5),
        "b": tf.io.FixedLenFeature([2], tf.int64, default_value=[6, 7]),
    }
    files = convert_tfrecords_to_parquet(write(tmp_path / "a", records), target, features)
    expected = tf.io.parse_example(records, features)
    found = read(files)
    assert found["a"].to_list() == expected["a"].numpy().tolist()
    assert found["b"].to_list() == expected["b"].numpy().tolist()


def test_sequences_are_those_of_tensorflow_without_its_padding(tmp_path, target):
    records = [example(a=[*range(1, n + 1)]) if n else example(b=1) for n in (2, 0, 5, 1)]
    features = {
        "a": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=-1)
    }
    files = convert_tfrecords_to_parquet(write(tmp_path / "a", records), target, features)
    padded = tf.io.parse_example(records, features)["a"].numpy().tolist()
    assert read(files)["a"].to_list() == [[n for n in row if n != -1] for row in padded]


SPARSE = {"v": tf.io.SparseFeature("at", "weight", tf.float32, 40)}


def test_a_sparse_feature_is_tensorflows_as_lists_of_indices_and_values(tmp_path, target):
    """Two that share their indices, and one whose key and size are lists, as for several dimensions."""
    rng = np.random.default_rng(7)
    records = []
    for count in rng.integers(0, 6, 300):
        values = {"other": 1}
        if count:
            values["at"] = rng.permutation(40)[:count].tolist()
            values["weight"] = rng.random(count).astype(np.float32).tolist()
            values["word"] = [b"w%d" % n for n in rng.integers(0, 99, count)]
        elif rng.random() < 0.5:
            values |= {"at": None, "weight": None}
        records.append(example(**values))
    features = SPARSE | {"w": tf.io.SparseFeature(["at"], "word", tf.string, [50])}
    shards = [
        write(tmp_path / "a", records[:100]),
        write(tmp_path / "b", [example(other=1)]),  # all of its records lack the feature
        write(tmp_path / "c", records[100:], "GZIP"),
    ]
    found = read(convert_tfrecords_to_parquet(shards, target, features))
    expected = tf.io.parse_example([*records[:100], example(other=1), *records[100:]], features)
    rows = np.repeat(np.arange(301), found["at"].list.len())
    for name, column in {"v": "weight", "w": "word"}.items():
        indices = np.stack([rows, found["at"].explode(empty_as_null=False)], 1)
        np.testing.assert_array_equal(indices, expected[name].indices)
        values = found[column].explode(empty_as_null=False).to_list()
        theirs = expected[name].values.numpy().tolist()
        assert values == [v.decode() if isinstance(v, bytes) else v for v in theirs]
    assert found.columns == ["at", "weight", "word"]


def test_values_of_one_index_keep_their_order(tmp_path, target):
    """TensorFlow's order of them depends on the batch."""
    path = write(tmp_path / "a", [example(at=[3, 1] * 20, weight=[*map(float, range(40))])])
    found = read(convert_tfrecords_to_parquet(path, target, SPARSE))
    assert found["at"].to_list() == [[1] * 20 + [3] * 20]
    assert found["weight"].to_list() == [[*range(1, 40, 2), *range(0, 40, 2)]]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([example(at=[39, 40], weight=[1.0, 2.0])], "'weight' below its size, 40.*Received: 40"),
        ([example(at=-1, weight=1.0)], "below its size.*Received: -1"),
        ([example(at=1)], "'at' for each value of 'weight'. Received: 1 for 0"),
        ([example(weight=[1.0, 2.0])], "Received: 0 for 2.*as VarLenFeature each"),
        # TensorFlow gives a value of the second record to the first.
        ([example(at=[1, 2], weight=1.0), example(at=1, weight=[1.0, 2.0])], "Received: 2 for 1"),
        ([example(at=1, weight=1)], "'?weight.*types don't match"),
    ],
)
def test_a_record_that_is_no_sparse_vector_is_named(tmp_path, target, records, text):
    path = write(tmp_path / "a", [*[example(at=5, weight=1.0)] * 9, *records])
    with pytest.raises(LoaderError, match=f"a, record 9: .*{text}"):
        convert_tfrecords_to_parquet(path, target, SPARSE)


def test_large_records_are_parsed_a_few_at_a_time(tmp_path, target, monkeypatch):
    """8,192 at a time needed more memory than a machine has."""
    path = write(tmp_path / "a", (example(user=n, text=b"x" * 200_000) for n in range(600)))
    parse, sizes = tf.io.parse_example, []

    def counting(records, features):
        sizes.append(sum(map(len, records.numpy())))
        return parse(records, features)

    monkeypatch.setattr(tf.io, "parse_example", counting)
    features = {"user": tf.io.FixedLenFeature([], tf.int64)}
    files = convert_tfrecords_to_parquet(path, target, features)
    assert read(files)["user"].to_list() == [*range(600)]
    assert max(sizes) < 110_000_000 < sum(sizes)


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "text"),
    [
        ([], tf.int64, 0.5, "one value of int64 as the default_value of 'a'. Received: 0.5"),
        ([], tf.int64, "7", "one value of int64 .*Received: '7'"),
        ([], tf.int64, 2**70, "one value of int64"),
        ([], tf.float32, "x", "one value of float32"),
        ([], tf.string, 3, "one value of string"),
        ([3], tf.int64, [1, 2], r"3 values of int64 .*Received: \[1, 2\]"),
        ([], tf.string, b"\xff", "UTF-8 in 'a'"),
        ([None], tf.int64, [1], "of a known length"),
    ],
)
def test_defaults_that_tensorflow_refuses_are_refused(
    tmp_path, target, shape, dtype, default, text
):
    features = {"a": tf.io.FixedLenFeature(shape, dtype, default)}
    path = write(tmp_path / "a", [example(b=1)])
    with pytest.raises(LoaderError, match=text):
        convert_tfrecords_to_parquet(path, target, features)


@pytest.mark.parametrize(
    ("late", "text"),
    [
        (example(user=1, extra=2), "record 9000: .*'extra' as well.*features"),
        (example(user=[1, 2]), "record 9000: .*one value of 'user' a record. Received: 2"),
        (example(user=1.5), "Data types don't match"),
        (example(user=1, name=b"\xff"), "UTF-8 in 'name'"),
        (b"\x07not an example", "tf.train.Example"),
    ],
    ids=["more", "two values", "other type", "not text", "not an example"],
)
def test_a_late_record_that_does_not_fit_is_named(tmp_path, target, late, text):
    """None of them is in the sample from which features are inferred."""
    path = write(tmp_path / "a", [*([example(user=1, name=b"a")] * 9000), late])
    with pytest.raises(LoaderError, match=text):
        convert_tfrecords_to_parquet(path, target)
    assert not [*target.glob("*.parquet")]


def test_a_feature_without_values_is_no_column(tmp_path, target):
    path = write(tmp_path / "a", [example(user=1, nothing=None), example(user=2)])
    assert read(convert_tfrecords_to_parquet(path, target)).to_dict(as_series=False) == {
        "user": [1, 2]
    }


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("cut", [1, 10, 1000])
def test_a_truncated_file_is_refused(tmp_path, target, compression, cut):
    """TensorFlow reads a compressed file that lacks its last ten bytes as if it were whole."""
    path = write(tmp_path / "a", records(0, 2000), compression)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(LoaderError, match=f"{path}.*Copy the file again") as error:
        convert_tfrecords_to_parquet(path, target, compression_type=compression)
    assert "device:" not in str(error.value)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("size", [0, 3])
def test_a_file_without_a_compressed_stream_is_refused(tmp_path, target, compression, size):
    """A writer that was killed leaves such a file, and TensorFlow takes it for one without records."""
    path = write(tmp_path / "a", records(0, 5), compression)
    os.truncate(path, size)
    features = {"user": tf.io.FixedLenFeature([], tf.int64)}
    with pytest.raises(LoaderError, match=f"{path}.*Copy the file again"):
        convert_tfrecords_to_parquet(path, target, features, compression_type=compression)


@pytest.mark.parametrize("described", [False, True])
def test_a_file_that_ends_between_a_records_length_and_its_content(tmp_path, target, described):
    """TensorFlow takes less than the 12 bytes of a record's length as the end of the file."""
    path = write(tmp_path / "a", [example(user=1)])
    end = path.stat().st_size
    write(path, [example(user=1), example(user=2)])
    os.truncate(path, end + 11)
    features = {"user": tf.io.FixedLenFeature([], tf.int64)} if described else None
    with pytest.raises(LoaderError, match=f"{path}.*Copy the file again"):
        convert_tfrecords_to_parquet(path, target, features)


def test_a_file_of_several_gzip_parts_is_read(tmp_path, target):
    parts = [write(tmp_path / n, records(*r), "GZIP") for n, r in PARTS.items()]
    both = tmp_path / "both"
    both.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert_frame_equal(read(convert_tfrecords_to_parquet(both, target)), frame(rows(0, 80)))


def test_a_file_of_several_zlib_parts_is_refused(tmp_path, target):
    """TensorFlow reads the first part alone."""
    path = write(tmp_path / "a", records(0, 50), "ZLIB")
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(LoaderError, match="bytes, and then part of a record or another stream"):
        convert_tfrecords_to_parquet(path, target, compression_type="ZLIB")


@pytest.mark.parametrize(
    ("compression", "compress"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)]
)
def test_part_of_a_record_that_was_compressed_is_refused(tmp_path, target, compression, compress):
    """TensorFlow takes part of a record's length as the end of the stream."""
    path = write(tmp_path / "a", [example(user=1)])
    path.write_bytes(compress(path.read_bytes() + b"\0" * 11))
    with pytest.raises(LoaderError, match="bytes, and then part of a record or another stream"):
        convert_tfrecords_to_parquet(path, target, compression_type=compression)


def test_a_changed_byte_is_refused(tmp_path, target):
    path = write(tmp_path / "a", records(0, 2000))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(LoaderError, match="corrupted record"):
        convert_tfrecords_to_parquet(path, target)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda _: {"filenames": "nothing/*.tfrecord"}, "nothing/.*Received: none"),
        (lambda _: {"filenames": []}, "empty list"),
        (
            lambda _: {"filenames": ["s3://a/*.tfrecord"]},
            "path of this machine.*s3://a.*copy it here",
        ),
        (lambda _: {"filenames": 7}, "path of a TFRecord file.*or a list of these. Received: 7"),
        (lambda _: {"filenames": [b"a"]}, "or a list of these. Received: .b'a'"),
        (
            lambda f: {
                "filenames": write(f / "b", [example(user=1, price=2.5)] * 3),
                "features": {
                    "price": tf.io.FixedLenFeature([], tf.float32),
                    "users": tf.io.FixedLenFeature([], tf.int64),
                },
            },
            r"Received: 'users', which none .*They have price, user\. Did you mean 'user'\?",
        ),
        (lambda _: {"compression_type": "zip"}, "compression_type.*'zip'"),
        (lambda _: {"rows_per_file": 0}, "rows_per_file"),
        (lambda _: {"features": {}}, "features as a dict"),
        (lambda _: {"output_dir": "s3://bucket/out"}, "path of this machine.*s3://bucket/out"),
        (lambda _: {"output_dir": None}, "path of a folder. Received: None"),
        (lambda _: {"output_dir": ""}, "path of a folder. Received: ''"),
        (lambda f: {"output_dir": f / "a"}, "write parquet to .*a. .*A file is there"),
        (lambda _: {"features": {"a": tf.io.FixedLenFeature([2, 2], tf.int64)}}, "one dimension"),
        (
            lambda _: {"features": {"a": tf.io.FixedLenSequenceFeature([], tf.int64)}},
            "allow_missing=True",
        ),
        (
            lambda _: {"features": {"a": tf.io.FixedLenSequenceFeature([2], tf.int64, True)}},
            r"'a' as FixedLenSequenceFeature\(shape=\[2\]",
        ),
        (
            lambda _: {"features": {"a": tf.io.SparseFeature(["i", "j"], "v", tf.int64, [3, 4])}},
            "'a' as Sparse.* Give its index_key and value_key as VarLenFeature each",
        ),
        (lambda _: {"features": {"a": tf.io.SparseFeature("i", "v", tf.int64, None)}}, "its size"),
        (
            lambda _: {"features": {"a": tf.io.SparseFeature("i", "i", tf.int64, 3)}},
            "'a' as Sparse",
        ),
        (
            lambda _: {"features": SPARSE | {"at": tf.io.VarLenFeature(tf.int64)}},
            "one description of 'at'. Received: another one in 'at'. A SparseFeature has columns",
        ),
        (lambda _: {"features": {"a": tf.io.FixedLenFeature(None, tf.int64)}}, "a known length"),
        (lambda _: {"features": {"a": tf.io.FixedLenFeature([-1], tf.int64)}}, "a known length"),
        (lambda _: {"features": {"a": tf.io.VarLenFeature("text")}}, "'a' as VarLenFeature"),
        (lambda _: {"features": {b"a": tf.io.VarLenFeature(tf.int64)}}, "with a name.*b'a' as"),
        (
            lambda _: {"features": {"b": tf.io.RaggedFeature(tf.int64, value_key="a")}},
            "RaggedFeature without partitions and value_key",
        ),
        (lambda f: {"filenames": write(f / "b", [example()])}, "b: .*none that has any"),
        (
            lambda f: {"filenames": write(f / "b", [example(a=1), b"hello world"])},
            r"b, record 1: Expected records of tf\.train\.Example\. Received: 11 other bytes",
        ),
        (
            lambda f: {"filenames": write(f / "b", [example(a=1), example(a=1.0)])},
            "'a' as float_list and",
        ),
        (
            lambda f: {"filenames": write(f / "b", [SEQUENCE])},
            "b, record 0: .*SequenceExample",
        ),
        (
            lambda f: {
                "filenames": write(f / "b", [SEQUENCE]),
                "features": {"a": tf.io.VarLenFeature(tf.int64)},
            },
            "b, record 0: .*SequenceExample",
        ),
    ],
)
def test_bad_arguments_are_refused(tmp_path, target, make, text):
    arguments = {"filenames": write(tmp_path / "a", [example(a=1)]), "output_dir": target}
    with pytest.raises(LoaderError, match=text):
        convert_tfrecords_to_parquet(**arguments | make(tmp_path))


def test_a_file_that_this_user_may_not_read_is_named(tmp_path, target, monkeypatch):
    path = write(tmp_path / "a", [example(a=1)])

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(LoaderError, match=f"{path}.*Received: Permission denied. Check its perm"):
        convert_tfrecords_to_parquet(path, target, compression_type="")


@pytest.mark.usefixtures("shards")
def test_a_link_to_nowhere_is_named(tmp_path, target):
    (tmp_path / "z.tfrecord").symlink_to("nowhere")
    with pytest.raises(LoaderError, match=r"z\.tfrecord, a link that leads nowhere"):
        convert_tfrecords_to_parquet(str(tmp_path / "*.tfrecord"), target)


@pytest.mark.usefixtures("shards")
def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path, target, closed):
    (tmp_path / "closed").mkdir()
    closed(tmp_path / "closed")
    with pytest.raises(LoaderError, match="closed cannot be listed: Permission denied"):
        convert_tfrecords_to_parquet(str(tmp_path / "**" / "*.tfrecord"), target)


def test_a_file_that_a_link_names_again_is_refused(shards, target):
    (shards / "z.tfrecord").symlink_to("0.tfrecord")
    with pytest.raises(LoaderError, match=r"0\.tfrecord and .*z\.tfrecord, which are one file"):
        convert_tfrecords_to_parquet(f"{shards}/*", target)


def test_other_data_is_not_overwritten(tmp_path, target):
    path = write(tmp_path / "a", [example(a=1)])
    convert_tfrecords_to_parquet(path, target)
    before = {file.name: file.read_bytes() for file in target.iterdir()}
    with pytest.raises(LoaderError, match="holds parquet files already"):
        convert_tfrecords_to_parquet(path, target)
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before


KILLED = """
import os, sys
from pathlib import Path
from loader import convert_tfrecords_to_parquet
from workflow.files import durable
from loader.tfrecords import convert
replace = convert.replace_file
def replace_and_die(path, content):
    replace(path, content)
    if path.parent.name == "00001":
        os.kill(os.getpid(), 9)
convert.replace_file = replace_and_die
convert_tfrecords_to_parquet(sys.argv[1] + "/*", sys.argv[2])
"""


def test_a_full_disk_keeps_nothing_that_no_later_call_can_use(tmp_path, target, full_disk):
    """The part of a file stayed, on the disk that was full."""
    values = np.random.default_rng(0).integers(2**60, size=5_000)
    path = write(tmp_path / "a.tfrecord", [example(user=int(value)) for value in values])
    with full_disk(10_000), pytest.raises(LoaderError, match=r"able to write.*too large.*Check"):
        convert_tfrecords_to_parquet(path, target)
    assert not target.exists()
    (part,) = convert_tfrecords_to_parquet(path, target)
    assert pl.read_parquet(part)["user"].to_list() == values.tolist()


def test_a_file_system_needs_no_hard_links(shards, target, monkeypatch):
    """exFAT and many that programs provide have none."""

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    files = convert_tfrecords_to_parquet(f"{shards}/*", target)
    assert_frame_equal(read(files), frame(rows(0, 10_200)))


def test_a_call_that_was_killed_while_it_published_is_made_up_for(shards, target):
    publishing = (
        KILLED.replace("convert.replace_file", "dataset_run.replace_file")
        .replace(
            "from loader.tfrecords import convert", "from workflow.transform import dataset_run"
        )
        .replace('path.parent.name == "00001"', "True")
    )
    died = subprocess.run([sys.executable, "-c", publishing, shards, target], check=False)
    assert died.returncode == -signal.SIGKILL
    files = convert_tfrecords_to_parquet(f"{shards}/*", target)
    assert_frame_equal(read(files), frame(rows(0, 10_200)))


@pytest.mark.long
def test_a_killed_call_goes_on(shards, target):
    """Two of three files were converted, and nothing was to be seen; then one of them changed."""
    died = subprocess.run([sys.executable, "-c", KILLED, shards, target], check=False)
    assert died.returncode == -signal.SIGKILL
    assert not [*target.glob("*.parquet")]
    converted = target / ".converted" / "00001" / "part-00000.parquet"
    same = converted.stat().st_ino
    write(shards / "0.tfrecord", records(5, 10))
    files = convert_tfrecords_to_parquet(f"{shards}/*", target)
    assert_frame_equal(read(files), frame([*rows(5, 10), *rows(700, 10_200)]))
    assert files[1].stat().st_ino == same  # It is the file of the killed call.
