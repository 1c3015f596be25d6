"""The whole way from MovieLens ratings to a served, proven Triton ensemble, in one run.

    make demo                              # 2 million generated ratings
    make demo DEMO="--data ml-25m"         # the real ratings.csv and movies.csv

The exit code is 1 when the server's answers differ from the offline pipeline's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import movielens_data
import polars as pl
from rich.console import Console
from rich.table import Table

from exporter import export_tensorflow_ensemble
from exporter.report.latency import Latency, measure_latency
from loader import KerasSequenceLoader
from serving import EnsembleClient, ParityReport, TritonServer, check_parity
from training import models, train
from workflow import Workflow, get_embedding_sizes, ops

CATEGORIES = ["userId", "movieId", "genres"]
BATCHES, SECONDS = (1, 64, 1024), 0.5
MARKER = ".movielens-demo"


@dataclass
class Progress:
    """A printer of one line for each step, which records the step's time."""

    console: Console
    steps: list[tuple[str, int, float]] = field(default_factory=list)

    @contextmanager
    def step(self, title: str, rows: int = 0) -> Iterator[None]:
        """Time a step over some rows."""
        self.console.print(f"[bold]{title}[/bold] ...", end=" ", highlight=False)
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.steps.append((title, rows, seconds))
        self.console.print(f"{seconds:.1f} s", highlight=False)


@dataclass(frozen=True)
class Result:
    """The figures that the demo shows at its end."""

    popularity_auc: float
    auc: float
    parity: ParityReport
    latencies: list[Latency]
    page: Path


def make_workflow(movies: pl.DataFrame) -> Workflow:
    """The preprocessing: genres joined to each rating, ids, and the label "rated above 3"."""
    joined = ["movieId"] >> ops.JoinExternal(
        movies, on="movieId", columns_ext=["movieId", "genres"]
    )
    features = (["userId"] + joined) >> ops.Categorify()
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    return Workflow(features + label)


def run(options: argparse.Namespace, progress: Progress) -> Result:
    """Run all stages, from the ratings to the parity report."""
    output = prepare_folder(options.output)
    if options.data is None:
        with progress.step("Generate ratings", options.ratings):
            ratings, movies = movielens_data.generate(ratings=options.ratings, seed=options.seed)
    else:
        with progress.step("Read ratings"):
            ratings, movies = movielens_data.read(options.data)
    train_rows, valid_rows = movielens_data.split(ratings, seed=options.seed)
    for name, rows in (("train", train_rows), ("valid", valid_rows)):
        (output / "raw" / name).mkdir(parents=True)
        rows.write_parquet(output / "raw" / name / "ratings.parquet", row_group_size=250_000)

    workflow = make_workflow(movies)
    with progress.step("Fit workflow", train_rows.height):
        workflow.fit(output / "raw" / "train")
    with progress.step("Transform to parquet", ratings.height):
        for name in ("train", "valid"):
            workflow.transform_to_parquet(
                output / "raw" / name, output / name, rows_per_file=500_000
            )
    workflow.save(output / "workflow")

    model, auc = train_model(options, workflow, output, progress, train_rows.height)
    workflow.output_dtypes["userId"] = "int32"
    workflow.output_dtypes["movieId"] = "int32"
    with progress.step("Export ensemble"):
        report = export_tensorflow_ensemble(
            model, workflow, "movielens", output / "models", ["rating"]
        )
    progress.console.print(f"\n{report}\n", highlight=False, markup=False)

    with progress.step("Start Triton"):
        server = TritonServer(output / "models", log_file=output / "tritonserver.log")
        server.start()
    try:
        with EnsembleClient(server.grpc_url, "movielens") as client:
            rows = movielens_data.held_out_rows(
                valid_rows, ratings, movies, rows=options.parity_rows, seed=options.seed
            )
            with progress.step("Prove parity", rows.height):
                parity = check_parity(client, workflow, model, rows)
            with progress.step("Measure latency"):
                latencies = [measure_latency(client, rows, 1, size, SECONDS) for size in BATCHES]
    finally:
        server.stop()
    page = output / "report.html"
    page.write_text(report.to_html(parity, latencies), encoding="utf-8")
    popularity = movielens_data.popularity_auc(train_rows, valid_rows)
    return Result(popularity, auc, parity, latencies, page)


def prepare_folder(output: Path) -> Path:
    """Make an empty folder; only the files of an earlier demo are removed."""
    if output.exists() and any(output.iterdir()):
        if not (output / MARKER).exists():
            sys.exit(f"{output} holds other files. Choose another folder with --output.")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / MARKER).touch()
    return output


def train_model(
    options: argparse.Namespace, workflow: Workflow, output: Path, progress: Progress, rows: int
) -> tuple[keras.Model, float]:
    """Train the network of the MovieLens example on the transformed files."""

    def load(name: str, *, shuffle: bool) -> KerasSequenceLoader:
        return KerasSequenceLoader(
            output / name,
            batch_size=options.batch_size,
            label_names=["rating"],
            cat_names=CATEGORIES,
            cont_names=[],
            shuffle=shuffle,
            seed=options.seed,
            buffer_size=0.06,
        )

    keras.utils.set_random_seed(options.seed)
    sizes = get_embedding_sizes(workflow)
    model = models.mlp(sizes, max_embedding_dim=options.embedding_dim, output_name="output")
    with progress.step("Train", rows * options.epochs):
        report = train(
            model,
            load("train", shuffle=True),
            load("valid", shuffle=False),
            epochs=options.epochs,
            optimizer=keras.optimizers.Adam(options.learning_rate),
        )
    return model, report.val_auc or 0.0


def show(result: Result, progress: Progress) -> None:
    """The table at the end."""
    table = Table(title="MovieLens: parquet to a proven ensemble", title_justify="left")
    table.add_column("step")
    for title in ("rows", "seconds", "rows/s"):
        table.add_column(title, justify="right")
    for title, rows, seconds in progress.steps:
        speed = f"{rows / seconds:,.0f}" if rows else ""
        table.add_row(title, f"{rows:,}" if rows else "", f"{seconds:.1f}", speed)
    progress.console.print()
    progress.console.print(table)
    progress.console.print(
        f"\nAUC on unseen ratings: {result.auc:.4f} (popularity alone: {result.popularity_auc:.4f})\n"
        f"\n{result.parity}\n\nLatency of a request, frame to frame over gRPC",
        highlight=False,
        markup=False,
    )
    for latency in result.latencies:
        p50, _, p99 = latency.milliseconds
        speed = f"{latency.rows / p50 * 1e3:>9,.0f} rows/s"
        progress.console.print(
            f"  batch {latency.rows:>5,}   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   {speed}",
            highlight=False,
        )
    progress.console.print(
        f"\n{result.page}: the report as a page; the data, the model repository and the server's log "
        "are beside it.",
        highlight=False,
        markup=False,
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="a folder with ratings.csv and movies.csv; without it, data is generated",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="the folder for all files"
    )
    parser.add_argument(
        "--ratings", type=int, default=2_000_000, help="the number of ratings to generate"
    )
    parser.add_argument(
        "--parity-rows", type=int, default=10_000, help="the number of held-out rows to compare"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16_384)
    parser.add_argument(
        "--embedding-dim",
        type=int,
        default=16,
        help="the widest embedding; MovieLens' rule says 512",
    )
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main() -> int:
    """Run the demo; return 0 when parity is proven, 1 when it is not, 2 when the data is missing."""
    progress = Progress(Console(width=80))
    try:
        result = run(parse(), progress)
    except movielens_data.DataError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 2
    show(result, progress)
    return 0 if result.parity.passed else 1


if __name__ == "__main__":
    sys.exit(main())
