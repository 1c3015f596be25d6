"""A small model of the seeds' shape, and rows to feed it."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import models

SIZES = ({"userId": (50, 8), "movieId": (40, 12)}, {"genres": (22, 4)})


def _rows(count, seed=0, ids="int32", lists=("int64", "int64")):
    """Features as the loader gives them, some rows of genres empty, and a learnable label."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 4, count)
    user = rng.integers(0, 50, count)
    features = {
        "userId": user.astype(ids)[:, None],
        "movieId": rng.integers(0, 40, count).astype(ids)[:, None],
        "genres": (
            rng.integers(0, 22, lengths.sum()).astype(lists[0])[:, None],
            lengths.astype(lists[1])[:, None],
        ),
    }
    label = (user % 2).astype("float32")[:, None]
    return SimpleNamespace(features=features, label=label, flat=_flat(features))


def _flat(features):
    """The tensors under the names that a signature gives them."""
    values, nnzs = features["genres"]
    scalars = {name: features[name] for name in ("userId", "movieId")}
    return {**scalars, "genres__values": values, "genres__nnzs": nnzs}


def _batches(count, size, seed=0):
    """A `tf.data.Dataset` of batches, the last one short when `size` does not divide `count`."""
    parts = [_rows(min(size, count - start), seed=seed + start) for start in range(0, count, size)]
    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec((None, 1), array.dtype), (parts[0].features, parts[0].label)
    )
    dataset = tf.data.Dataset.from_generator(
        lambda: ((part.features, part.label) for part in parts), output_signature=signature
    )
    return dataset.apply(tf.data.experimental.assert_cardinality(len(parts)))


def _predict(model, features):
    """`model.predict` of one batch whose lists have fewer or more values than there are rows."""
    dataset = tf.data.Dataset.from_tensors((features,))
    return model.predict(dataset, verbose=0)


def _built(hidden=(8,), **options):
    keras.utils.set_random_seed(0)
    sizes = ({"userId": (50, 8), "movieId": (40, 8)}, {"genres": (22, 4)})
    return models.mlp(sizes, hidden=hidden, **options)


def _losses(model, dataset, epochs=1):
    """The loss of each step. (Keras' running mean weighs steps by the length of the first input, a list.)"""
    steps = []
    each = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda *_, **__: model.reset_metrics(),
        on_train_batch_end=lambda _, logs: steps.append(logs["loss"]),
    )
    model.fit(dataset, epochs=epochs, callbacks=[each], verbose=0, shuffle=False)
    return np.array(steps)


@pytest.fixture(scope="session")
def built():
    return _built


@pytest.fixture
def losses():
    return _losses


@pytest.fixture
def rows():
    return _rows


@pytest.fixture(scope="session")
def batches():
    return _batches


@pytest.fixture
def predict():
    return _predict


@pytest.fixture
def sizes():
    return SIZES


def _model():
    keras.utils.set_random_seed(0)
    return models.mlp(SIZES, hidden=(16, 8))


@pytest.fixture
def model():
    return _model()


@pytest.fixture(scope="session")
def make_model():
    """The maker of `model`, for what is made once."""
    return _model
