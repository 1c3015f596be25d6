"""Clicks on offers: a network of PyTorch, fed from parquet by TorchLoader, served as ONNX.

    make test-torch                                  # makes the environment .venv-torch, and runs this too
    .venv-torch/bin/python examples/pytorch.py       # under a minute

Ids are inputs of their own; the numbers are one matrix, whose columns the ONNX file names, so that an
export in another order is refused. TensorFlow is not needed anywhere. All files are written to a temporary
folder. The exit code is 1 when the server's answers differ from those of the offline pipeline or of PyTorch.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl
import torch

from exporter import ServingOptions, export_ensemble
from loader import TorchLoader
from serving import EnsembleClient, TritonServer, check_parity
from workflow import Workflow, get_embedding_sizes, ops

IDS, NUMBERS = ["user", "offer", "weekday", "hour"], ["price", "discount", "age"]
ROWS, USERS, OFFERS = 120_000, 4_000, 800
BATCH, EPOCHS = 1024, 2


def make_views(rows: int, seed: int) -> pl.DataFrame:
    """Offers that were shown, and whether they were clicked, which depends on every column a little."""
    truth, random = np.random.default_rng(0), np.random.default_rng([1, seed])
    user, offer = random.zipf(1.2, rows) % USERS, random.zipf(1.3, rows) % OFFERS
    at = random.integers(0, 28 * 86_400, rows)
    price = random.lognormal(3, 1, rows)
    discount, age = random.integers(0, 6, rows) * 10, random.integers(16, 90, rows)
    score = truth.normal(0, 0.7, USERS)[user] + truth.normal(0, 0.7, OFFERS)[offer] - 1.0
    score += 0.03 * discount - 0.3 * np.log(price / 20) + 0.8 * (at // 3600 % 24 > 17)
    unknown = pl.Series(random.random(rows) < 0.1)
    return pl.DataFrame(
        {
            "user": pl.Series([f"u{number}" for number in user]),
            "offer": offer,
            "at": pl.from_epoch(pl.Series(at + 1_700_000_000), "s"),
            "price": price,
            "discount": discount,
            "age": pl.Series(age).set(unknown, None),
            "clicked": (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int8),
        }
    )


def make_workflow() -> Workflow:
    """Ids for the tables, and normalised numbers."""
    time = ["at"] >> ops.DatePart(["weekday", "hour"])
    parts = [time[f"at_{part}"] >> ops.Rename(name=part) for part in ("weekday", "hour")]
    ids = (["user", "offer"] + parts[0] + parts[1]) >> ops.Categorify()
    price = ["price"] >> ops.LogOp()
    others = ["discount", "age"] >> ops.FillMedian()
    return Workflow(
        ids + ((price + others) >> ops.Normalize()) + (["clicked"] >> ops.AddTags(["target"]))
    )


class Network(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not in every environment
    """A table for each column of ids, and two dense layers, to a probability (N, 1).

    Args:
        sizes: the rows and the width of each table.
    """

    def __init__(self, sizes: dict[str, tuple[int, int]]) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleDict({n: torch.nn.Embedding(*sizes[n]) for n in IDS})
        width = sum(sizes[name][1] for name in IDS) + len(NUMBERS)
        self.hidden, self.last = torch.nn.Linear(width, 64), torch.nn.Linear(64, 1)

    def forward(self, user: Any, offer: Any, weekday: Any, hour: Any, numbers: Any) -> Any:
        """Ids (N, 1) each, numbers (N, 3)."""
        ids = zip(IDS, (user, offer, weekday, hour), strict=True)
        vectors = [self.tables[name](column[:, 0]) for name, column in ids]
        return torch.sigmoid(self.last(self.hidden(torch.cat([*vectors, numbers], 1)).relu()))


def inputs_of(batch: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of the network, of a batch of columns (N, 1)."""
    return (*(batch[name] for name in IDS), torch.cat([batch[name] for name in NUMBERS], 1))


def fit(network: Network, train: TorchLoader) -> None:
    """Train with Adam on the binary cross entropy."""
    optimizer = torch.optim.Adam(network.parameters(), 0.003)
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for batch, clicked in train:
            loss = torch.nn.functional.binary_cross_entropy(
                network(*inputs_of(batch)), clicked.float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}/{EPOCHS}  loss {total / len(train):.4f}")


def convert(network: Network, batch: dict[str, Any]) -> onnx.ModelProto:
    """The network as ONNX for any number of rows, with the names of the matrix's columns in the file."""
    rows = torch.export.Dim("rows")
    names = [*IDS, "numbers"]
    program = torch.onnx.export(
        network,
        inputs_of(batch),
        input_names=names,
        output_names=["click"],
        dynamic_shapes={name: {0: rows} for name in names},
        opset_version=18,
        dynamo=True,
        verbose=False,
    )
    made = program.model_proto
    onnx.helper.set_model_props(made, {"feature_names": json.dumps(NUMBERS)})
    return made


def area_under_curve(clicked: Any, score: Any) -> float:
    """The share of pairs of a clicked and another row that a score ranks rightly.

    Args:
        clicked: shape (N,), 0 or 1.
        score: shape (N,).

    Example:
        >>> area_under_curve(np.array([0, 1, 1]), np.array([0.3, 0.2, 0.9]))
        0.5
    """
    ranks, positive = pl.Series(score).rank().to_numpy(), clicked == 1
    count = int(positive.sum())
    pairs = count * (len(clicked) - count)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / pairs)


def run(folder: Path) -> bool:
    """Run all stages; return whether the server answered as PyTorch and the offline pipeline do."""
    make_views(ROWS, seed=0).write_parquet(folder / "views.parquet", row_group_size=10_000)
    workflow = make_workflow().fit(folder / "views.parquet")
    workflow.transform_to_parquet(folder / "views.parquet", folder / "train")

    torch.manual_seed(1)
    sizes: Any = get_embedding_sizes(workflow)
    network = Network(sizes)
    train = TorchLoader(folder / "train", batch_size=BATCH, seed=1)
    fit(network, train)
    network.eval()
    batch, _ = next(iter(train))
    converted = convert(network, batch)

    options = ServingOptions(columns={"numbers": NUMBERS}, runtime="fused_onnx")
    print(export_ensemble(converted, workflow, "clicks", folder / "models", serving=options))
    later = make_views(5_000, seed=1)
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "clicks") as client,
    ):
        served = client.predict(later.drop("clicked"))["click"].to_numpy()
        parity = check_parity(client, workflow, converted, later)
    own = answers_of(network, workflow, later, folder)
    difference = float(np.abs(served - own).max())
    clicked = later["clicked"].to_numpy()
    print(f"\nAUC on later views: {area_under_curve(clicked, served):.4f}")
    print(f"Largest difference between the server and PyTorch: {difference:.1e}\n{parity}")
    return parity.passed and difference < 1e-5


def answers_of(network: Network, workflow: Workflow, rows: pl.DataFrame, folder: Path) -> Any:
    """PyTorch's own answers to rows, (N,), read in order by TorchLoader."""
    workflow.transform_to_parquet(rows, folder / "later")
    with (
        torch.no_grad(),
        TorchLoader(folder / "later", batch_size=BATCH, shuffle=False) as batches,
    ):
        return torch.cat([network(*inputs_of(batch)) for batch, _ in batches])[:, 0].numpy()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(not run(Path(temporary)))
