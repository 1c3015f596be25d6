"""Numbers of numpy as settings, where data such as the maximum of a column are their source."""

import keras
import numpy as np
import pytest

from training import TrainingError, layers, models, retrieval
from training.network.nearest_items import NearestItems

SIZES = {"user": (np.int64(50), np.int32(8)), "item": (np.int64(20), np.int64(8))}
PLAIN = {"user": (50, 8), "item": (20, 8)}


def parameters(sizes, whole):
    ids = {name: keras.Input((1,), name=name, dtype="int64") for name in sizes}
    collection = layers.EmbeddingCollection(sizes)
    collection(ids)
    made = [
        models.mlp(sizes, ["age"], hidden=(whole(8),)),
        models.dcn(sizes, ["age"], cross_layers=whole(2)),
        models.two_tower(sizes, query=["user"], candidate=["item"], hidden=[whole(8)]),
    ]
    assert keras.models.model_from_json(made[0].to_json()).count_params() == made[0].count_params()
    bag = layers.EmbeddingBag(whole(50), whole(8)).get_config()
    sizes_of_bag = bag["input_dim"], bag["output_dim"]
    return collection.count_params(), *sizes_of_bag, *(model.count_params() for model in made)


def test_tables_and_layers_have_the_sizes_of_numpy():
    found = parameters(SIZES, np.int64)
    assert found[1:3] == (50, 8)
    assert found == parameters(PLAIN, int)


def test_settings_of_retrieval_are_numbers_of_numpy():
    assert retrieval.InBatchSoftmax("item", np.float64(0.5), np.float64(0.1)) == (
        retrieval.InBatchSoftmax("item", 0.5, 0.1)
    )
    assert type(retrieval.SampledSoftmax("item", [1, 2], count=np.int64(3)).count) is int
    assert type(NearestItems(None, "items.parquet", k=np.int64(3)).k) is int


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "a"}, "rate above 0 and up to 1, or None. Received: rate='a'"),
        ({"rate": True}, "rate=True"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"temperature": float("inf")}, "finite temperature above 0. Received: temperature=inf"),
        ({"temperature": True}, "temperature=True"),
        ({"temperature": "a"}, "temperature='a'"),
    ],
)
def test_settings_of_a_softmax_that_make_no_sense(settings, message):
    with pytest.raises(TrainingError, match=message):
        retrieval.InBatchSoftmax("item", **settings)
