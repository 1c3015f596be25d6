"""Batches as PyTorch tensors are those of `ArrayLoader`; `make test-frameworks` runs these."""

import numpy as np
import polars as pl
import pytest

from loader import ArrayLoader, LoaderError

torch = pytest.importorskip("torch", reason="`make test-frameworks` has PyTorch")
pytestmark = pytest.mark.frameworks

ROWS = 1000
COLUMNS = {
    "batch_size": 64,
    "label_names": ["label"],
    "cat_names": ["user", "genres"],
    "cont_names": ["price"],
    "seed": 7,
}


@pytest.fixture
def folder(tmp_path):
    row = np.arange(ROWS)
    frame = pl.DataFrame(
        {
            "user": row,
            "genres": [list(range(number % 4)) for number in row],
            "price": (row / 10).astype(np.float32),
            "label": (row % 2).astype(np.int8),
        },
        schema_overrides={"genres": pl.List(pl.Int32)},
    )
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path


@pytest.fixture
def loader(folder):
    from loader import TorchLoader

    with TorchLoader(folder, **COLUMNS) as loader:
        yield loader


def test_weights_are_those_of_the_arrays(folder):
    from loader import TorchLoader

    given = COLUMNS | {"cont_names": [], "sample_weight": "price"}
    with TorchLoader(folder, **given) as loader, ArrayLoader(folder, **given) as arrays:
        for (_, _, weight), (_, _, expected) in zip(loader, arrays, strict=True):
            assert weight.dtype == torch.float32
            np.testing.assert_array_equal(weight.numpy(), expected)


def test_tensors_are_those_of_the_arrays(folder, loader):
    with ArrayLoader(folder, **COLUMNS) as arrays:
        for (x, y), (others, label) in zip(loader, arrays, strict=True):
            assert isinstance(y, torch.Tensor)
            assert (x["user"].dtype, x["price"].dtype) == (torch.int64, torch.float32)
            assert (x["genres"][0].dtype, x["genres"][1].dtype) == (torch.int32, torch.int32)
            for one, other in [
                (x["user"], others["user"]),
                (x["price"], others["price"]),
                (x["genres"][0], others["genres"][0]),
                (x["genres"][1], others["genres"][1]),
                (y, label),
            ]:
                np.testing.assert_array_equal(one.numpy(), other)


def test_a_dataloader_takes_whole_batches(loader):
    from torch.utils.data import DataLoader

    batches = DataLoader(loader, batch_size=None)
    assert len(batches) == len(loader) == 16
    users = torch.cat([x["user"] for x, _ in batches])
    assert sorted(users[:, 0].tolist()) == [*range(ROWS)] != users[:, 0].tolist()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_are_refused(loader, method):
    from torch.utils.data import DataLoader

    batches = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context=method)
    with pytest.raises(LoaderError, match="num_workers=0"):
        next(iter(batches))


def test_the_position_is_a_state_dict(folder, loader):
    from loader import TorchLoader

    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state, rest = loader.state_dict(), list(batches)
    with TorchLoader(folder, **COLUMNS) as again:
        again.load_state_dict(state)
        found = list(again)
    assert len(found) == len(rest) == 11
    for (x, _), (expected, _) in zip(found, rest, strict=True):
        assert torch.equal(x["user"], expected["user"])


@pytest.mark.parametrize(("glanced_at", "same"), [(2, True), (3, False)])
def test_a_glance_does_not_use_up_an_epoch(loader, glanced_at, same):
    glance = iter(loader)
    first = [next(glance)[0]["user"] for _ in range(glanced_at)]
    del glance
    assert torch.equal(next(iter(loader))[0]["user"], first[0]) == same


def test_each_process_takes_its_share(folder, tmp_path):
    """Two processes of torch.distributed take each row once."""
    import torch.multiprocessing as processes

    processes.spawn(_take_share, (str(folder), str(tmp_path / "meeting"), str(tmp_path)), nprocs=2)
    shares = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    assert len(shares[0]) == len(shares[1]) == ROWS // 2
    assert sorted(np.concatenate(shares)) == [*range(ROWS)]


def _take_share(rank, folder, meeting, results):
    import torch.distributed

    from loader import TorchLoader

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", world_size=2, rank=rank
    )
    with TorchLoader(folder, **COLUMNS) as loader:
        users = np.concatenate([x["user"][:, 0].numpy() for x, _ in loader])
    np.save(f"{results}/{rank}.npy", users)
    torch.distributed.destroy_process_group()


def test_strings_are_refused_by_name():
    from loader import TorchLoader

    frame = pl.DataFrame({"name": ["a", "b"], "label": [0, 1]})
    with pytest.raises(LoaderError, match=r"PyTorch has no tensors.*'name'.*Categorify"):
        TorchLoader(frame, 2, ["label"], ["name"])


def test_a_model_learns(loader):
    """The label is the parity of the user, given as a feature of two values."""
    table = torch.nn.Embedding(ROWS, 1)
    torch.nn.init.zeros_(table.weight)
    optimizer = torch.optim.SGD(table.parameters(), lr=64.0)
    for _ in range(3):
        for x, y in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                table(x["user"])[:, 0], y.float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    parity = (table.weight[:, 0] > 0).int()
    assert torch.equal(parity, torch.arange(ROWS, dtype=torch.int32) % 2)
