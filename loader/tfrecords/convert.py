"""`convert_tfrecords_to_parquet`: shards of records, one after another, as one data set."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import tensorflow as tf

from loader.errors import LoaderError
from loader.options import check_counts
from loader.tfrecords.examples import (
    FeatureError,
    Parser,
    RecordFeature,
    described,
    example_of,
    inferred,
    names_of,
    reason_of,
)
from workflow.data.dataset import expect_once, local_matches
from workflow.data.object_stores import expect_local
from workflow.data.sources import as_path
from workflow.errors import WorkflowError
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.durable import exclusive, make_folder, replace_file, sync
from workflow.files.sealed import sealed, unsealed
from workflow.files.write_errors import write_errors
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import ColumnSchema, Schema
from workflow.transform.dataset_run import run_into
from workflow.transform.parquet_sink import ParquetSink, cut

# Readers pass over it. It stays after an interruption, so that the next call continues from it.
_CONVERTED = ".converted"
_DONE = "done.json"
# Records are read a part at a time, and parsed as many parts at once, fewer if records are large.
_PART, _PARTS, _BATCH_BYTES = 256, 32, 64 << 20
# Records from which features are inferred: of all shards, and of each at least.
_SAMPLE, _SAMPLE_OF_SHARD = 1000, 20
_READ_BYTES = 1 << 20
_GZIP = b"\x1f\x8b\x08"


def convert_tfrecords_to_parquet(
    filenames: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    features: Mapping[str, Any] | None = None,
    *,
    compression_type: str | None = None,
    rows_per_file: int = 1_000_000,
) -> list[Path]:
    """Convert TFRecord files of `tf.train.Example` to a parquet data set.

    Records are read, parsed and written a part at a time, so files may be larger than memory. The
    data set appears as a whole, with `_schema.json`, or not at all. A call that was interrupted can
    be repeated: it resumes at the file that it was converting.

    Without `features`, columns are inferred from the first records: 1,000 of all files, and at least 20 of
    each file. The type is int64, float32 or string. A feature is a list if any of these records has
    several values of it, else a scalar, which is null in a record that lacks it. A later record that
    does not match, or has another feature, is an error, so that no data is dropped silently.

    Args:
        filenames: a file, a pattern such as "data/*.tfrecord", or a list of these. Rows keep their
            order: files as given, those of a pattern sorted.
        output_dir: folder to write to; made if missing, and it must not contain parquet.
        features: names and `tf.io.FixedLenFeature` (one value, or lists of one length),
            `tf.io.VarLenFeature`, `tf.io.RaggedFeature` or `tf.io.FixedLenSequenceFeature` (lists, the
            last without the padding of batches), as for `tf.io.parse_example`. A
            `tf.io.SparseFeature` of one dimension becomes two columns of lists, named by its
            `index_key` and `value_key`, both in the order of the indices. Features that are not
            named are left out. A single value without a default is null in a record that lacks it, and
            one that none of the first records has is an error.
        compression_type: "GZIP", "ZLIB" or "" for none. Default: GZIP where a file begins as one.
        rows_per_file: rows of a parquet file, which are in memory together; the last one of each
            TFRecord file may have fewer.

    Returns:
        The parquet files, in the order of the rows.

    Raises:
        LoaderError: no files, one that links name twice or that cannot be read, files that are damaged,
            truncated or of other records, features that do not fit, or a folder that holds parquet,
            is being written to, or cannot be.

    Example:
        >>> convert_tfrecords_to_parquet("clicks/*.tfrecord.gz", "clicks_parquet")  # doctest: +SKIP
        [PosixPath('clicks_parquet/part-00000.parquet'), ...]
    """
    check_counts(rows_per_file=rows_per_file)
    folder = _folder(output_dir)
    if compression_type not in (None, "", "GZIP", "ZLIB"):
        raise LoaderError(
            'Expected compression_type as "GZIP", "ZLIB", "" or None. '
            f"Received: {compression_type!r}."
        )
    shards = [_Shard(path, compression_type) for path in _files(filenames)]
    is_complete = features is None
    record_features = _described(features, shards) if features is not None else _inferred(shards)
    parser = Parser(record_features, is_complete)
    sink = ParquetSink(folder, rows_per_file, "snappy")
    scratch = folder / _CONVERTED
    try:
        with ExitStack() as held:
            with write_errors(f"parquet to {folder}"):
                # Locked to the end, so that a second call finds a finished data set.
                held.enter_context(exclusive(scratch))
            run = held.enter_context(run_into(folder))
            converted = [
                part
                for number, shard in enumerate(shards)
                for part in shard.convert(parser, sink, scratch / f"{number:05}")
            ]
            parts = [run.scratch / f"part-{number:05}.parquet" for number in range(len(converted))]
            for part, path in zip(converted, parts, strict=True):
                part.rename(path)
            files = run.publish(parts, _schema(record_features))
            shutil.rmtree(scratch)
            sync(folder)
            return files
    except WorkflowError as error:
        raise LoaderError(str(error)) from error


def _folder(output_dir: Any) -> Path:
    try:
        return as_path(output_dir)
    except WorkflowError as error:
        raise LoaderError(str(error)) from None


class _Shard:
    """A TFRecord file.

    Args:
        path: the file.
        compression: as TensorFlow names it; None to find out.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, compression: str | None) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                begin = file.read(3)
        except OSError as error:
            raise LoaderError(
                f"Expected {path} as a file that can be read. Received: {error.strerror}. Check its permissions."
            ) from error
        if compression is None:
            # An empty file named .gz is one whose writer was killed.
            is_gzip = begin == _GZIP or (not begin and path.suffix == ".gz")
            compression = "GZIP" if is_gzip else ""
        self._compression = compression

    def first(self, count: int) -> Iterator[tf.train.Example]:
        """The first records."""
        records = (record for part, _ in self._parts() for record in part.numpy().tolist())
        for number, record in enumerate(islice(records, count)):
            try:
                example = example_of(record)
            except FeatureError as error:
                raise LoaderError(f"{self.path}, record {number}: {error}") from None
            yield example

    def convert(self, parser: Parser, sink: ParquetSink, folder: Path) -> list[Path]:
        """Write the file's rows as parquet, unless an earlier call has.

        Args:
            parser: parses its records.
            sink: writes the files.
            folder: for them alone; complete once it has its list of them.
        """
        facts = self._facts(parser, sink)
        if (files := _done(folder, facts)) is not None:
            return files
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        frames = cut(self._frames(parser), sink.rows_per_file)
        try:
            paths = sink.write_frames(frames, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # no other call can use a part
            raise
        names = [path.name for path in paths]
        with write_errors(f"parquet to {sink.folder}"):
            for path in paths:
                sync(path)
            sync(folder)
            replace_file(folder / _DONE, sealed({"facts": facts, "files": names}))
        return paths

    def _facts(self, parser: Parser, sink: ParquetSink) -> list[Any]:
        """The facts that determine the parquet files of a conversion."""
        state = self.path.stat()
        features = {name: repr(feature) for name, feature in parser.features.items()}
        identity = [str(self.path.resolve()), state.st_size, state.st_mtime_ns]
        return [*identity, self._compression, sink.rows_per_file, features, parser.is_complete]

    def _frames(self, parser: Parser) -> Iterator[pl.DataFrame]:
        record = 0
        yield parser.parse(tf.zeros([0], tf.string))  # So that a file without records has columns.
        for batch in self._batches():
            try:
                yield parser.parse(batch)
            except FeatureError:
                number, error = _first_misfit(parser, batch)
                raise LoaderError(f"{self.path}, record {record + number}: {error}") from None
            record += len(batch)

    def _batches(self) -> Iterator[tf.Tensor]:
        parts: list[tf.Tensor] = []
        waiting = 0
        for part, nbytes in self._parts():
            parts.append(part)
            waiting += nbytes
            if len(parts) == _PARTS or waiting >= _BATCH_BYTES:
                yield tf.concat(parts, 0)
                parts, waiting = [], 0
        if parts:
            yield tf.concat(parts, 0)

    def _parts(self) -> Iterator[tuple[tf.Tensor, int]]:
        """Some records at a time, and their bytes in the file."""
        records = tf.data.TFRecordDataset(str(self.path), self._compression)
        options = tf.data.Options()
        # The end could wait for the thread that tunes, as long as the file took.
        options.autotune.enabled = False
        read = 0
        try:
            for part in records.batch(_PART).prefetch(1).with_options(options):
                # Each record has its length and two checksums beside it.
                nbytes = int(tf.reduce_sum(tf.strings.length(part))) + 16 * len(part)
                read += nbytes
                yield part, nbytes
            _expect_end(self.path, self._compression, read)
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError, EOFError, zlib.error) as error:
            raise LoaderError(
                f"Expected {self.path} as whole TFRecords, "
                f"{self._compression or 'not compressed'}. Received: {reason_of(error)}. Copy the file "
                "again, or pass its compression_type."
            ) from None


def _first_misfit(parser: Parser, records: tf.Tensor) -> tuple[int, FeatureError]:
    """The first of some records that does not fit, and its error; found by bisection."""
    low, high = 0, len(records)
    while True:
        middle = (low + high + 1) // 2
        try:
            parser.parse(records[low:middle])
            low = middle
        except FeatureError as error:
            high = middle
            if high - low == 1:
                return low, error


def _expect_end(path: Path, compression: str, nbytes: int) -> None:
    """Check that a file ends as it should.

    TensorFlow takes part of a record's length as the end, and of a compressed stream any part.

    Args:
        path: the file.
        compression: as TensorFlow names it.
        nbytes: bytes that were read from it.

    Raises:
        EOFError: it is truncated.
        zlib.error: it is damaged.
    """
    if not compression:
        if nbytes != path.stat().st_size:
            raise EOFError(f"part of a record's length at {nbytes}")
        return
    with path.open("rb") as file:
        if compression == "GZIP":
            file.seek(max(path.stat().st_size - 4, 0))
            if file.read() == (nbytes % 2**32).to_bytes(4, "little"):
                return  # As it does unless it has several parts.
            file.seek(0)
        inflate, size = _decompressor(), 0
        while content := file.read(_READ_BYTES):
            while content:
                if inflate.eof:
                    inflate = _decompressor()
                size += len(inflate.decompress(content))
                content = inflate.unused_data
        if not inflate.eof:
            raise EOFError("Compressed file ended before the end of its stream")
        if size != nbytes:  # TensorFlow leaves out all streams of ZLIB but the first, for one.
            raise EOFError(f"{nbytes} of {size} bytes, and then part of a record or another stream")


def _decompressor() -> Any:
    """A decompressor of one stream of GZIP or ZLIB, whichever its first bytes say."""
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _done(folder: Path, facts: list[Any]) -> list[Path] | None:
    """The files of a shard that an earlier call has converted in the same way."""
    try:
        content = unsealed((folder / _DONE).read_bytes(), str(folder / _DONE))
    except (OSError, FormatError):
        return None
    files = [folder / name for name in content["files"]]
    # A call that was killed while it published has moved them.
    return files if content["facts"] == facts and all(map(Path.exists, files)) else None


def _first(shards: Sequence[_Shard]) -> Iterator[tf.train.Example]:
    """The first records of each file."""
    count = max(_SAMPLE // len(shards), _SAMPLE_OF_SHARD)
    return (record for shard in shards for record in shard.first(count))


def _described(features: Mapping[str, Any], shards: Sequence[_Shard]) -> dict[str, RecordFeature]:
    """Features as described, of which records must have those that TensorFlow requires of each."""
    fields = described(features)
    lacking = {n for n, feature in fields.items() if feature.width == 1 and feature.default is None}
    names: set[str] = set()
    for record in _first(shards):  # One at least, since tf.io parses other messages too.
        names |= names_of(record)
        if not (lacking := lacking - names):
            break
    if lacking and names:
        raise LoaderError(
            f"Expected features that the records have. Received: {min(lacking)!r}, which none of the first "
            f"records has. They have {listed(sorted(names))}.{did_you_mean(lacking, names)} Name "
            "it as they do, or give it a default_value."
        )
    return fields


def _inferred(shards: Sequence[_Shard]) -> dict[str, RecordFeature]:
    try:
        return inferred(_first(shards))
    except FeatureError as error:
        more_files = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
        raise LoaderError(f"The first records of {shards[0].path}{more_files}: {error}") from None


def _schema(features: Mapping[str, RecordFeature]) -> Schema:
    return Schema(
        [
            ColumnSchema(
                name,
                feature.name_of_dtype,
                is_list=feature.is_list,
                nullable=feature.width == 1 and feature.default is None,
            )
            for name, feature in features.items()
        ]
    )


def _files(filenames: Any) -> list[Path]:
    names = [filenames] if isinstance(filenames, str | os.PathLike) else filenames
    if not isinstance(names, Sequence) or not all(isinstance(p, str | os.PathLike) for p in names):
        raise LoaderError(
            'Expected the path of a TFRecord file, a pattern such as "data/*.tfrecord", or a list of '
            f"these. Received: {filenames!r:.200}."
        )
    files: list[Path] = []
    for path in names:
        name = os.fspath(path)
        expect_local(name, LoaderError)
        matches = [Path(name)]
        if not matches[0].is_file():
            matches = sorted(local_matches(name, LoaderError))
        broken = next((path for path in matches if not path.exists()), None)
        if broken is not None:
            raise LoaderError(
                f"Expected TFRecord files at {name!r}. Received: {broken}, a link that leads nowhere. Fetch "
                "its file, or remove the link."
            )
        paths = [path for path in matches if path.is_file()]
        if not paths:
            raise LoaderError(
                f"Expected TFRecord files at {name!r}. Received: none. Give a file, or a pattern "
                'such as "data/*.tfrecord".'
            )
        expect_once(name, ((path, ()) for path in paths), LoaderError)
        files += paths
    if not files:
        raise LoaderError("Expected TFRecord files. Received: an empty list.")
    return files
