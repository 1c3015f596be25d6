"""List features as sparse and as padded tensors."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import LoaderError
from workflow.schema.schema import ColumnSchema, Schema

LISTS = [[3, 0, 7], [], None, [5], [1, 2, 4, 0]]
DENSE = [[3, 0, 7, 0], [0, 0, 0, 0], [0, 0, 0, 0], [5, 0, 0, 0], [1, 2, 4, 0]]


@pytest.fixture
def make_lists(make):
    def build(lists=LISTS, width=4, dtype=pl.Int64, **arguments):
        frame = pl.DataFrame(
            {"tags": pl.Series(lists, dtype=pl.List(dtype)), "rating": range(len(lists))}
        )
        usual = {"cat_names": ["tags"], "cont_names": [], "sparse_names": ["tags"]}
        usual |= {"sparse_max": {"tags": width}, "shuffle": False, "batch_size": 2}
        return make(frame, **usual | arguments)

    return build


@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_tensors_hold_each_row_in_its_place(make_lists, compiled):
    loader = make_lists()
    batches = loader.as_dataset() if compiled else loader
    rows, present = [], []
    for x, y in batches:
        assert isinstance(x["tags"], tf.SparseTensor)
        assert x["tags"].shape == (len(y), 4)
        rows += tf.sparse.to_dense(x["tags"]).numpy().tolist()
        present += x["tags"].indices[:, 1].numpy().tolist()
    assert rows == DENSE
    assert present == [0, 1, 2, 0, 0, 1, 2, 3], "a value of 0 is an element too"
    assert isinstance(loader.element_spec[0]["tags"], tf.SparseTensorSpec)
    assert loader.element_spec[0]["tags"].shape[1] == 4


@pytest.mark.parametrize("compiled", [False, True])
def test_dense_tensors_are_padded_behind_each_row(make_lists, compiled):
    loader = make_lists(sparse_as_dense=True)
    batches = loader.as_dataset() if compiled else loader
    assert [row for x, _ in batches for row in x["tags"].numpy().tolist()] == DENSE


def test_the_schemas_value_count_is_the_maximum(make_lists):
    tags = ColumnSchema("tags", "int64", is_list=True, properties={"value_count": {"max": 4}})
    schema = Schema([tags, ColumnSchema("rating", "int64")])
    loader = make_lists(sparse_max=None, sparse_as_dense=True, schema=schema)
    assert [row for x, _ in loader for row in x["tags"].numpy().tolist()] == DENSE


def test_a_value_count_of_the_users_own_words_is_no_maximum(make_lists):
    tags = ColumnSchema("tags", "int64", is_list=True, properties={"value_count": "few"})
    with pytest.raises(LoaderError, match=r"Expected sparse_max\['tags'\].*Received: None"):
        make_lists(sparse_max=None, schema=Schema([tags, ColumnSchema("rating", "int64")]))


def test_strings_are_padded_with_empty_ones(make_lists):
    loader = make_lists([["a"], ["b", "c"], []], 2, pl.String, sparse_as_dense=True)
    rows = [row for x, _ in loader for row in x["tags"].numpy().tolist()]
    assert rows == [[b"a", b""], [b"b", b"c"], [b"", b""]]


@pytest.mark.parametrize("as_dense", [False, True])
def test_a_row_longer_than_the_maximum(make_lists, as_dense):
    loader = make_lists(width=3, sparse_as_dense=as_dense)
    with pytest.raises(LoaderError, match=r"at most 3 elements in column 'tags'.*4 elements"):
        list(loader)


@pytest.mark.parametrize("label_names", [["rating"], []])
def test_without_labels_too(make_lists, label_names):
    batch = make_lists(label_names=label_names).peek()
    x = batch[0] if label_names else batch
    assert isinstance(x["tags"], tf.SparseTensor)


def test_keras_takes_sparse_tensors(make_lists):
    tags = keras.Input((4,), name="tags", sparse=True)
    model = keras.Model({"tags": tags}, keras.layers.Dense(1, kernel_initializer="ones")(tags))
    model.compile("sgd", "mse")
    predicted = model.predict(make_lists(), verbose=0)
    np.testing.assert_allclose(predicted[:, 0], np.sum(DENSE, axis=1))


def test_resume_with_sparse_tensors(make_lists):
    loader = make_lists()
    next(iter(loader))
    resumed = make_lists()
    resumed.set_state(loader.get_state())
    rows = [row for x, _ in resumed for row in tf.sparse.to_dense(x["tags"]).numpy().tolist()]
    assert rows == DENSE[2:]


@pytest.mark.parametrize("in_file", [False, True])
def test_lists_of_lists_are_refused(make, tmp_path, in_file):
    frame = pl.DataFrame({"tags": [[[1, 2], [3]]], "rating": [1]})
    if in_file:
        frame.write_parquet(tmp_path / "0.parquet")
    with pytest.raises(LoaderError, match=r"'tags'.*lists of those.*Received: .*ist.*ist"):
        make(tmp_path if in_file else frame, cat_names=["tags"], cont_names=[])
