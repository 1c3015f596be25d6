"""Memory that cuDF lends gets the shapes of rows, run where there is no GPU."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.reader import compiled_arrange

PACKING = BatchFormat(
    BatchLayout(
        (
            BatchColumn("id", ColumnType("int32")),
            BatchColumn("genres", ColumnType("int32", is_list=True)),
            BatchColumn("tags", ColumnType("int64", is_list=True), width=3),
            BatchColumn("shops", ColumnType("int32", is_list=True), width=2),
            BatchColumn("price", ColumnType("float32")),
            BatchColumn("exact", ColumnType("float64")),
        ),
        (),
    )
)


def bits(values, dtype, carrier):
    return tf.constant(np.array(values, dtype).view(carrier))


# cuDF lends a column as a vector or as a matrix with one column.
@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize(
    ("tags", "shops"),
    [([[7, -(2**62)], [], [1, 2, 3]], [[-1], [5, 6], []]), ([[], [], []], [[], [], []])],
)
def test_borrowed_memory_gets_the_shapes_of_rows(tags, shops, as_column):
    lists = [("int64", "float64", tags, 3), ("int32", "float32", shops, 2)]
    narrow, wide = np.arange(9, dtype=np.float32), np.array([0.5, 1.5, 2.5])
    given = (
        [tf.constant(narrow), tf.constant(wide)],
        [bits(list(itertools.chain(*rows)), dtype, carrier) for dtype, carrier, rows, _ in lists],
        [bits([len(row) for row in rows], "int32", "float32") for _, _, rows, _ in lists],
        [bits([4, 5], "int32", "float32")],
    )
    if as_column:
        given = tuple([tf.reshape(each, [-1, 1]) for each in part] for part in given)
    matrices, padded, values = compiled_arrange(PACKING, "/cpu:0")(*given)
    np.testing.assert_array_equal(matrices[0], narrow.reshape(3, 3))
    np.testing.assert_array_equal(matrices[1], wide[:, None])
    for found, (dtype, _, rows, width) in zip(padded, lists, strict=True):
        expected = [(row + [0] * width)[:width] for row in rows]
        np.testing.assert_array_equal(found.numpy().view(dtype), expected)
    np.testing.assert_array_equal(values[0].numpy().view("int32"), [[4], [5]])
