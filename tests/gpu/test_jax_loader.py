"""JAX's batches on a GPU are the CPU's, made from memory that TensorFlow holds, and stay whole."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from loader_rows import arrays_of, flat, framework_loader

jax = pytest.importorskip("jax", reason="JAX is not installed beside TensorFlow")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", params=[64, 32], autouse=True)
def bits(request):
    """JAX has numbers of 64 bits, or as by default none."""
    jax.config.update("jax_enable_x64", request.param == 64)
    yield request.param
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(scope="module")
def make(tmp_path_factory, device, bits):
    from loader import JaxLoader

    make = framework_loader(JaxLoader, tmp_path_factory.mktemp("jax"), device)
    if bits == 64:
        return make
    names = {"cat_names": ["id", "genres", "byte", "flag"], "cont_names": ["price"]}
    return partial(make, **names, sparse_names=None, sparse_max=None)


@pytest.fixture(scope="module")
def expected(make):
    return arrays_of(make)


@pytest.fixture(scope="module")
def place(device):
    return jax.devices("cpu" if device == "cpu" else "gpu")[0]


def test_values_and_dtypes_are_those_of_the_cpu_and_lie_on_the_gpu(make, place, expected):
    with make() as loader:
        for batch, other in zip(loader, expected, strict=True):
            assert list(batch[0]) == list(other[0])
            for found, array in zip(flat(batch), flat(other), strict=True):
                assert found.devices() == {place}
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(np.asarray(found), array)


def test_weights_of_rows_are_those_of_the_cpu(make):
    weighted = partial(make, cont_names=["price"], sample_weight="exact")
    with weighted() as loader:
        for (_, _, weight), (_, _, other) in zip(loader, arrays_of(weighted), strict=True):
            np.testing.assert_array_equal(weight, other.astype(weight.dtype))


def test_work_that_is_still_queued_reads_its_own_batch(make, device, expected):
    """Each batch is dropped by Python long before the GPU comes to read it."""
    if device == "cpu":
        pytest.skip("a CPU queues no work")

    @jax.jit
    def busy(slow):
        for _ in range(4):  # some 20 ms each in float32
            slow = jax.numpy.clip(slow @ slow, -1, 1)
        return slow

    total = jax.jit(lambda slow, x: slow[0, 0] * 0 + jax.numpy.nansum(x))
    slow, sums = busy(jax.numpy.ones((8192, 8192), "float32")), []
    with make() as loader:
        for x, _ in loader:
            slow = busy(slow)
            sums.append((x["byte"].sum(dtype="int32"), total(slow, x["price"])))
    for (whole, price), (x, _) in zip(sums, expected, strict=True):
        assert int(whole) == int(x["byte"].sum())
        assert float(price) == pytest.approx(float(np.nansum(x["price"])), rel=1e-3, abs=1e-2)


def test_a_model_learns_on_the_gpu(make):
    """The label is a random bit; its logit by column "flag" and "price" has a gradient."""

    @jax.jit
    def step(weights, flag, price, label):
        def loss(weights):
            price_or_zero = jax.numpy.nan_to_num(price)
            logit = jax.numpy.concatenate([flag.astype("float32"), price_or_zero], axis=1) @ weights
            return jax.numpy.mean(jax.nn.softplus(logit) - label * logit)

        value, gradient = jax.value_and_grad(loss)(weights)
        return value, weights - 0.1 * gradient

    before = weights = jax.numpy.zeros((2, 1), "float32")
    with make() as loader:
        for x, y in loader:
            loss, weights = step(weights, x["flag"], x["price"], y)
    assert np.isfinite(float(loss))
    assert not np.array_equal(before, weights)
