"""TensorFlow's fingerprints: the numbers of its own operators, in every way to compute them."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.language.fingerprints import (
    concatenate,
    fingerprint_strings,
    fingerprint_values,
)
from workflow.schema.column import Strings

LETTERS = list("aZ7 \0") + ["é", "日", "\U0001f600"]


def of_tensorflow(texts: list[str]) -> list[int]:
    return tf.bitcast(tf.fingerprint(texts), tf.uint64).numpy().tolist()


def texts_of_all_lengths() -> list[str]:
    """Texts of 0 to 200 bytes and of some hundred, and in UTF-8 up to four times as many bytes."""
    rng = np.random.default_rng(1)
    plain = ["".join(rng.choice(LETTERS[:5], n)) for n in [*range(201), *range(255, 260), 1000]]
    return plain + ["".join(rng.choice(LETTERS, n)) for n in range(201)]


def test_of_texts_of_all_lengths_alone_and_together():
    texts = texts_of_all_lengths()
    expected = of_tensorflow(texts)
    assert len(set(expected)) > 400
    assert [fingerprint_values(np.array([text], object)).item() for text in texts] == expected
    assert fingerprint_strings(Strings.of(texts)).tolist() == expected
    # So many of one length that numpy computes them at once, among others.
    many = texts * 50
    assert fingerprint_values(np.array(many, object)).tolist() == expected * 50
    assert fingerprint_strings(Strings.of(many)).tolist() == expected * 50


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_of_integers_alone_and_together(dtype):
    limits = np.iinfo(dtype)
    powers = [sign * 10**n + by for n in range(20) for sign in (-1, 1) for by in (-1, 0, 1)]
    edges = [n for n in powers if limits.min <= n <= limits.max]
    drawn = np.random.default_rng(2).integers(limits.min, limits.max, 500, dtype, endpoint=True)
    values = np.array([limits.min, limits.max, *edges, *drawn.tolist()], dtype)
    expected = of_tensorflow([str(value) for value in values.tolist()])
    assert fingerprint_values(np.tile(values, 20)).tolist() == expected * 20
    assert [fingerprint_values(values[n : n + 1]).item() for n in range(len(values))] == expected


def test_of_two_fingerprints():
    keys, values = np.random.default_rng(3).integers(-(2**63), 2**63, (2, 100))
    expected = [
        tf.sparse.cross_hashed([tf.constant([[value]])], 2**62, int(key)).values.numpy().item()
        for key, value in zip(keys, values, strict=True)
    ]
    made = concatenate(keys.view(np.uint64), values.view(np.uint64)) % 2**62
    assert made.tolist() == expected


def test_ids_are_those_of_keras_layers():
    rows = {
        "city": [f"city {n % 97}" * (n % 30) for n in range(500)],
        "count": [(n - 250) * 7**15 for n in range(500)],
    }
    hashed = ops.HashBucket(1009, hash="farmhash")
    crossed = [["city", "count"]] >> ops.HashedCross(1009, hash="farmhash")
    made = Workflow((["city", "count"] >> hashed) + crossed).fit(rows).transform(rows).collect()
    for name, values in rows.items():
        expected = np.ravel(keras.layers.Hashing(1009)(np.array(values)[:, None]))
        assert made[name].to_list() == expected.tolist()
    both = tuple(np.array(values) for values in rows.values())
    together = keras.layers.HashedCrossing(1009)(both)
    assert made["city_X_count"].to_list() == np.ravel(together).tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.HashBucket(9, hash="md5"), 'hash as "splitmix64" or "farmhash".*md5'),
        (lambda: ops.HashedCross(9, hash="md5"), 'hash as "splitmix64" or "farmhash".*md5'),
        (lambda: ops.HashedCross(9, hash_key=3), 'hash="farmhash" beside it.*hash_key=3'),
        (lambda: ops.HashedCross(9, hash="farmhash", hash_key=2**63), "hash_key as an int64"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(WorkflowError, match=message):
        make()


def test_booleans_have_no_fingerprint():
    hashed = Workflow(["flag"] >> ops.HashBucket(9, hash="farmhash"))
    with pytest.raises(WorkflowError, match=r"'flag', bool.*cast"):
        hashed.fit({"flag": [True, False]})
