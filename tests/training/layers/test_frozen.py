"""Frozen layers stay frozen in a copy and in a loaded model."""

import keras
import numpy as np
import pytest

from training import layers, train

ITEM = keras.Input((1,), name="item", dtype="int64")
RECENT = keras.Input((3,), name="recent", dtype="int64")
LAYERS = {
    "collection": (lambda **k: layers.EmbeddingCollection({"item": (9, 2)}, **k), {"item": ITEM}),
    "dense": (lambda **k: layers.DenseFeatures({"item": (9, 2)}, **k), {"item": ITEM}),
    "linear": (lambda **k: layers.LinearFeatures({"item": 9}, **k), {"item": ITEM}),
    "bag": (lambda **k: layers.EmbeddingBag(9, 2, **k), ITEM),
    "sequence": (lambda **k: layers.SequenceEmbedding(9, 2, 3, **k), (RECENT, ITEM)),
}


def frozen_model(name, how):
    make, inputs = LAYERS[name]
    layer = make(name="frozen", **({"trainable": False} if how == "constructor" else {}))
    if how == "before its call":
        layer.trainable = False
    vectors = layer(*inputs) if isinstance(inputs, tuple) else layer(inputs)
    if how == "after its call":
        layer.trainable = False
    if how == "the tables alone":
        layer.embeddings.trainable = False
    return keras.Model(inputs, keras.tree.flatten(vectors)[0])


def with_copies(model, folder):
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    return model, loaded, keras.models.clone_model(model)


@pytest.mark.parametrize("how", ["constructor", "before its call", "after its call"])
@pytest.mark.parametrize("name", LAYERS)
def test_they_stay_frozen(name, how, tmp_path):
    for model in with_copies(frozen_model(name, how), tmp_path):
        assert not model.trainable_variables
        model.get_layer("frozen").trainable = True
        assert model.trainable_variables


def test_tables_that_are_frozen_by_themselves_stay_so(tmp_path):
    for model in with_copies(frozen_model("dense", "the tables alone"), tmp_path):
        assert not model.trainable_variables


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_further_training_of_a_loaded_model_leaves_their_vectors(optimizer, tmp_path, recwarn):
    layer = layers.EmbeddingCollection({"item": (9, 2)}, name="frozen", trainable=False)
    score = keras.layers.Dense(1, "sigmoid")(layer({"item": ITEM})["item"])
    model = keras.Model({"item": ITEM}, score)
    vectors = np.arange(18, dtype="float32").reshape(9, 2) / 10
    layer.set_embedding_table("item", vectors)
    rows = {"item": np.arange(8)[:, None]}, np.arange(8)[:, None] % 2
    train(model, rows, optimizer=optimizer)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    train(loaded, rows, optimizer=optimizer)
    np.testing.assert_array_equal(loaded.get_layer("frozen").embedding_tables["item"], vectors)
    assert not [str(w.message) for w in recwarn if "variable loading" in str(w.message)]
