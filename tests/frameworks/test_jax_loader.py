"""Batches as JAX arrays are those of `ArrayLoader`; `make test-frameworks` runs these."""

import numpy as np
import polars as pl
import pytest

from loader import ArrayLoader, LoaderError

jax = pytest.importorskip("jax", reason="`make test-frameworks` has JAX")
pytestmark = pytest.mark.frameworks


@pytest.fixture
def frame():
    row = np.arange(1000)
    return pl.DataFrame(
        {
            "user": row,
            "genres": [list(range(number % 4)) for number in row],
            "price": row / 10,
            "label": (row % 2).astype(np.int8),
        }
    )


COLUMNS = {"label_names": ["label"], "cat_names": ["user", "genres"], "cont_names": ["price"]}


def test_arrays_are_those_of_numpy_in_32_bits(frame):
    from loader import JaxLoader

    with (
        JaxLoader(frame, 64, **COLUMNS, seed=7) as loader,
        ArrayLoader(frame, 64, **COLUMNS, seed=7) as arrays,
    ):
        for (x, y), (others, label) in zip(loader, arrays, strict=True):
            assert isinstance(y, jax.Array)
            assert (x["user"].dtype, x["price"].dtype, y.dtype) == (np.int32, np.float32, np.int8)
            np.testing.assert_array_equal(x["user"], others["user"])
            np.testing.assert_array_equal(x["price"], others["price"].astype(np.float32))
            np.testing.assert_array_equal(x["genres"][0], others["genres"][0])
            np.testing.assert_array_equal(x["genres"][1], others["genres"][1])
            np.testing.assert_array_equal(y, label)


def test_weights_are_those_of_numpy_in_32_bits(frame):
    from loader import JaxLoader

    given = COLUMNS | {"cont_names": [], "sample_weight": "price", "seed": 7}
    with JaxLoader(frame, 64, **given) as loader, ArrayLoader(frame, 64, **given) as arrays:
        for (_, _, weight), (_, _, expected) in zip(loader, arrays, strict=True):
            assert isinstance(weight, jax.Array)
            assert weight.dtype == np.float32
            np.testing.assert_array_equal(weight, expected.astype(np.float32))


@pytest.fixture
def in_64_bits():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.usefixtures("in_64_bits")
def test_64_bits_stay_where_jax_has_them(frame):
    from loader import JaxLoader

    with JaxLoader(frame, 64, **COLUMNS) as loader:
        x, _ = next(loader)
    assert (x["user"].dtype, x["price"].dtype) == (np.int64, np.float64)


@pytest.mark.parametrize("worst", [2**31, -(2**31) - 1])
def test_an_id_beyond_32_bits_is_refused(frame, worst):
    from loader import JaxLoader

    frame = frame.with_columns(user=pl.lit(worst, pl.Int64))
    with (
        JaxLoader(frame, 64, **COLUMNS) as loader,
        pytest.raises(LoaderError, match=rf"int32.*Received: {worst}.*jax_enable_x64"),
    ):
        next(loader)


def test_large_arrays_are_the_memory_that_was_read_and_stay_as_they_are():
    """A row's three values follow from its number, in batches whose memory JAX borrows."""
    from loader import JaxLoader

    rows, size = 400_000, 40_000  # 156 KiB for a column of a batch
    user = np.arange(rows, dtype=np.int32)
    frame = pl.DataFrame({"user": user, "price": (user * 2).astype(np.float32), "label": user % 3})
    columns = {"label_names": ["label"], "cat_names": ["user"], "cont_names": ["price"], "seed": 1}
    overwrite = jax.jit(lambda prices: prices * 0 - 1, donate_argnums=0)
    kept = []
    with JaxLoader(frame, size, **columns) as loader:
        for number, (x, y) in enumerate(loader):
            if number % 2:
                assert float(overwrite(x["price"]).max()) == -1
            else:
                kept.append((x, y))
    seen = np.concatenate([x["user"][:, 0] for x, _ in kept])
    assert len(np.unique(seen)) == rows // 2
    for x, y in kept:  # long after the batches that were read behind them, and overwritten
        np.testing.assert_array_equal(np.asarray(x["price"]), np.asarray(x["user"]) * 2)
        np.testing.assert_array_equal(y, np.asarray(x["user"]) % 3)


def test_a_large_array_is_not_copied(monkeypatch):
    from loader import JaxLoader

    read = []
    put = jax.device_put

    def noted(arrays, **options):
        read.extend(arrays)
        return put(arrays, **options)

    monkeypatch.setattr(jax, "device_put", noted)
    frame = pl.DataFrame({"user": np.arange(1 << 16, dtype=np.int32)})
    with JaxLoader(frame, 1 << 15, [], ["user"]) as loader:
        for number, x in enumerate(loader):
            assert x["user"].unsafe_buffer_pointer() == read[number].ctypes.data
    assert number == 1


@pytest.fixture
def as_gpu(monkeypatch):
    """The loaders of a frame take the way behind cuDF, in the memory of the CPU."""
    import gpu_rows

    def use(frame):
        monkeypatch.setattr("loader.opening.device.open_device", gpu_rows.open_as_gpu(frame))

    return use


def columns_of(batch):
    """All arrays of a batch, in its order."""
    x, y = batch
    pairs = [part if isinstance(part, tuple) else (part,) for part in (*x.values(), y)]
    return [np.asarray(one) for pair in pairs for one in pair]


@pytest.mark.parametrize("batch_size", [64, 50])  # at aligned addresses, and at others
@pytest.mark.parametrize(
    ("bits", "left_out"),
    [(64, ()), (32, ("int64",)), (32, ("int64", "float64"))],
    ids=["64", "32, narrowed", "32"],
)
def test_batches_of_a_gpu_become_arrays_of_jax(bits, left_out, batch_size, request, as_gpu):
    """The bits of integers are NaN to the floats that carry them."""
    from gpu_rows import LAYOUT, make_frame

    from loader import JaxLoader

    if bits == 64:
        request.getfixturevalue("in_64_bits")
    frame = make_frame(130)
    names = [c.name for c in LAYOUT.features if c.type.dtype not in left_out]
    padded = {"sparse_names": ["tags"], "sparse_max": {"tags": 3}} if "tags" in names else {}
    given = {"label_names": ["label"], "cat_names": names, "shuffle": False, **padded}
    as_gpu(frame)
    with (
        JaxLoader(frame, batch_size, **given, device="gpu:0") as loader,
        ArrayLoader(frame, batch_size, **given) as arrays,
    ):
        for batch, others in zip(loader, arrays, strict=True):
            for found, expected in zip(columns_of(batch), columns_of(others), strict=True):
                narrowed = bits == 32 and expected.dtype == np.float64
                assert found.dtype == (np.float32 if narrowed else expected.dtype)
                np.testing.assert_array_equal(found, expected.astype(found.dtype))


def test_ids_of_64_bits_are_refused_on_a_gpu(frame, as_gpu):
    from loader import JaxLoader

    as_gpu(frame)
    with pytest.raises(LoaderError, match=r"32 bits or fewer on a GPU.*'user', of int64.*int32"):
        JaxLoader(frame, 64, **COLUMNS, device="gpu:0")


def test_strings_are_refused_by_name():
    from loader import JaxLoader

    frame = pl.DataFrame({"name": ["a", "b"], "label": [0, 1]})
    with pytest.raises(LoaderError, match=r"JAX has no tensors.*'name'.*Categorify"):
        JaxLoader(frame, 2, ["label"], ["name"])


def test_a_compiled_step_learns(frame):
    from loader import JaxLoader

    @jax.jit
    def step(table, x, y):
        def loss(table):
            logit = table[x["user"][:, 0]]
            return jax.numpy.mean(jax.nn.softplus(logit) - logit * y[:, 0])

        return table - 64.0 * jax.grad(loss)(table)

    table = jax.numpy.zeros(1000)
    with JaxLoader(frame, 64, **COLUMNS, drop_last=True) as loader:
        for _ in range(3):
            for x, y in loader:
                table = step(table, x, y)
    trained = np.flatnonzero(table)
    assert len(trained) > 990
    np.testing.assert_array_equal(np.asarray(table)[trained] > 0, trained % 2 == 1)
