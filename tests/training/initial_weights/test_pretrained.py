"""Pre-trained vectors in the order of a vocabulary, frozen and trained."""

import keras
import numpy as np
import pytest

from training import TrainingError, pretrained_table
from training.layers import DenseFeatures, EmbeddingCollection
from workflow import Workflow, WorkflowError, get_embedding_sizes, ops

ROWS = {
    "item": ["b", "b", "a", "c", None],
    "n": [5, 5, 6, 7, 7],
    "tags": [["x"], [], ["y"], [], []],
}
VECTORS = {"id": ["z", "a", "b"], "v": [[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]]}


@pytest.fixture(scope="module")
def workflow():
    return Workflow(["item", "n", "tags"] >> ops.Categorify()).fit(ROWS)


def test_rows_stand_in_the_order_of_the_vocabulary(workflow):
    table = pretrained_table(workflow, "item", VECTORS, ids="id", initializer="ones")
    # Padding, null, unknown, then the most frequent value first: b, a, c.
    assert table.vectors.tolist() == [[1, 1]] * 3 + [[3, 4], [1, 2], [1, 1]]
    assert (table.found, table.missing, table.unused) == (2, 1, 1)
    assert str(table) == (
        "item: 2 of 3 values have a vector of width 2; 4 rows are initialised by Ones; "
        "1 vectors are not used"
    )


def test_rows_by_number_of_integers_and_of_lists(workflow):
    matrix = np.arange(16, dtype=np.float32).reshape(8, 2)
    by_row = pretrained_table(workflow, "n", matrix, initializer="zeros")
    assert by_row.vectors[3:].tolist() == matrix[[5, 7, 6]].tolist()
    by_id = pretrained_table(workflow, "n", matrix[:2], np.array([6, 5], np.uint8))
    assert by_id.vectors[[3, 5]].tolist() == matrix[[1, 0]].tolist()
    tags = pretrained_table(workflow, "tags", {"t": ["y"], "v": [[0.5]]}, ids="t")
    assert tags.vectors[4].tolist() == [0.5]


def test_rows_of_one_table_for_all_vocabularies():
    together = Workflow(["item", "n"] >> ops.Categorify(single_table=True)).fit(ROWS)
    rows = get_embedding_sizes(together)["n"][0]
    table = pretrained_table(together, "n", {"id": [7], "v": [[0.5]]}, "id", initializer="zeros")
    place = together.transform({"item": ["b"], "n": [7]}).collect()["n"][0]
    assert table.vectors[place].tolist() == [0.5]
    assert len(table.vectors) <= rows


@pytest.mark.parametrize("frozen", [True, False])
def test_a_layer_takes_the_table_frozen_or_trained(workflow, frozen):
    table = pretrained_table(workflow, "item", VECTORS, ids="id")
    layer = EmbeddingCollection({"item": table.vectors.shape})
    layer.build()
    layer.set_embedding_table("item", table.vectors)
    layer.trainable = not frozen
    name = keras.Input((1,), name="item", dtype="int64")
    score = keras.layers.Dense(1)(layer({"item": name})["item"])
    model = keras.Model({"item": name}, score)
    model.compile("sgd", "mse")
    model.fit({"item": np.array([[3], [4]])}, np.array([[5.0], [7.0]]), epochs=2, verbose=0)
    after = layer.embedding_tables["item"].numpy()
    assert np.array_equal(after, table.vectors) == frozen
    np.testing.assert_array_equal(after[5:], table.vectors[5:])


def test_a_table_of_another_width_than_the_layer(workflow):
    table = pretrained_table(workflow, "item", VECTORS, ids="id")
    layer = DenseFeatures({"item": (6, 3)})
    layer.build()
    with pytest.raises(TrainingError, match=r"shape \(6, 3\) for 'item'. Received: \(6, 2\)"):
        layer.embeddings.set_embedding_table("item", table.vectors)


def test_columns_and_ids_that_do_not_fit(workflow):
    with pytest.raises(WorkflowError, match="ids of vectors as integers, like column 'n'"):
        pretrained_table(workflow, "n", VECTORS, ids="id")
    with pytest.raises(WorkflowError, match="No output 'town'"):
        pretrained_table(workflow, "town", VECTORS, ids="id")
    with pytest.raises(TrainingError, match=r"such as \['b', 'a', 'c'\].*none of 3.*\['q'\]"):
        pretrained_table(workflow, "item", {"id": ["q"], "v": [[1.0]]}, ids="id")
    pairs = Workflow([["item", "n"]] >> ops.Categorify(encode_type="combo")).fit(ROWS)
    with pytest.raises(TrainingError, match="'item_n', of combinations of item, n"):
        pretrained_table(pairs, "item_n", VECTORS, ids="id")


def test_forgotten_ids_are_named():
    workflow = Workflow(["item"] >> ops.Categorify()).fit({"item": [1, 700, 900, 1100]})
    with pytest.raises(
        TrainingError, match=r"none, so that an id is a row number up to 3, as 1 of 4"
    ):
        pretrained_table(workflow, "item", np.ones((4, 2), np.float32))
