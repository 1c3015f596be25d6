"""One long string among short ones costs its own bytes, not its length for every row."""

import tracemalloc

import numpy as np

# The byte that stands for null, which onnxruntime takes only of arrays of one width or constants.
NULL = b"\xff"


def test_a_long_string_beside_a_null_does_not_widen_the_others(without_server):
    backend = without_server("onnxruntime/model")
    texts = [NULL, "grün".encode(), b"z" * 2_000_000] + [b"short"] * 197
    tensor = np.array(texts, object).reshape(-1, 1)
    tracemalloc.start()
    try:
        strings = backend.string_tensor("word", tensor, nullable=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # As rows of one width these two megabytes would be 400.
    assert peak < 50e6
    assert strings.shape() == [200, 1]
