"""PyTorch's batches on a GPU are the CPU's, in the memory that TensorFlow holds, and stay whole."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from loader_rows import Noting, arrays_of, flat, framework_loader

torch = pytest.importorskip("torch", reason="PyTorch is not installed beside TensorFlow")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def make(tmp_path_factory, device):
    from loader import TorchLoader

    return framework_loader(TorchLoader, tmp_path_factory.mktemp("torch"), device)


@pytest.fixture(scope="module")
def expected(make):
    return arrays_of(make)


def test_values_and_dtypes_are_those_of_the_cpu_and_lie_on_the_gpu(make, device, expected):
    where = torch.device("cpu" if device == "cpu" else "cuda:0")
    with make() as loader:
        for batch, other in zip(loader, expected, strict=True):
            assert list(batch[0]) == list(other[0])
            for tensor, array in zip(flat(batch), flat(other), strict=True):
                assert tensor.device == where
                found = tensor.cpu().numpy()
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(found, array)


def test_nothing_is_copied(make, device):
    """But what a matrix holds as a wider integer: PyTorch's tensors have the block's addresses."""
    from loader.gpu.exported_tensor import ExportedTensor

    if device == "cpu":
        pytest.skip("TensorFlow takes no part on a CPU")
    with make() as loader:
        own = loader._transport
        loader._transport = noting = Noting(own)
        batches = list(loader)
    assert len(noting.batches) == len(batches) == 25
    for batch, tensors in zip(noting.batches, batches, strict=True):
        if not batch.block.columns:  # the last batch, whose columns are not aligned
            assert batch is noting.batches[-1]
            continue
        places = own._transport.transport.format.places
        views = zip(batch.columns(), places, strict=True)
        kept = {view.ctypes.data for view, place in views if place.dtype is None}
        lists = batch.parts[len(batch.block.matrices) :]
        kept |= {torch.from_dlpack(ExportedTensor(part)).data_ptr() for part in lists}
        assert kept <= {tensor.data_ptr() for tensor in flat(tensors)}


def test_weights_of_rows_are_those_of_the_cpu(make):
    weighted = partial(make, cont_names=["price"], sample_weight="exact")
    with weighted() as loader:
        for (_, _, weight), (_, _, other) in zip(loader, arrays_of(weighted), strict=True):
            np.testing.assert_array_equal(weight.cpu().numpy(), other)


@pytest.mark.parametrize("own_stream", [False, True])
def test_work_that_is_still_queued_reads_its_own_batch(make, device, expected, own_stream):
    """Each batch is dropped by Python long before the GPU comes to read it."""
    if device == "cpu":
        pytest.skip("a CPU queues no work")
    slow = torch.ones(8192, 8192, device="cuda:0")
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    sums = []
    with torch.cuda.stream(stream), make() as loader:
        for x, _ in loader:
            for _ in range(4):  # some 20 ms each in float32
                slow = (slow @ slow).clamp_(-1, 1)
            sums.append((x["long"].sum(), x["exact"].sum()))
    torch.cuda.synchronize()
    with np.errstate(over="ignore"):
        for (whole, exact), (x, _) in zip(sums, expected, strict=True):
            assert int(whole) == int(x["long"].sum())  # both wrap around 2^64
            assert float(exact) == pytest.approx(float(x["exact"].sum()), rel=1e-9)


def test_a_model_learns_on_the_gpu(make, device):
    """The label is a random bit; its logit by column "flag" and "price" has a gradient."""
    where = "cpu" if device == "cpu" else "cuda:0"
    model = torch.nn.Linear(2, 1).to(where)
    before = [weights.detach().clone() for weights in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make() as loader:
        for x, y in loader:
            rows = torch.cat([x["flag"].float(), x["price"].nan_to_num()], dim=1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(rows), y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert torch.isfinite(loss)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
