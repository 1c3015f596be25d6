"""A day of a live model: trained, served, replaced by a better one under load, and taken back.

    .venv/bin/python examples/live.py      # under half a minute

Four clients ask without a pause while a better version is published, a damaged one is refused, and
the first one is brought back. No request fails. Then half of the prices are lost, which no error tells,
and the metrics of the inputs do. All files are written to a temporary folder. The exit
code is 1 if a request failed, or if a client was answered by another version than the screen says.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import polars as pl
from shop import make_orders

from exporter import ServingOptions, export_tensorflow_ensemble, rollback
from loader import KerasSequenceLoader
from serving import EnsembleClient, ServerError, SkewMonitor, TritonServer
from serving.watch.metrics import parse
from serving.watch.skew import skews
from training import models
from workflow import Workflow, ops
from workflow.schema.column import Array

OPTIONS = ServingOptions(runtime="fused_onnx", keep_versions=3)


def make_workflow() -> Workflow:
    """The inputs of the network, and the label."""
    ids = ["product", "city"] >> ops.Categorify()
    hour = ["when"] >> ops.DatePart(["hour"]) >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0) >> ops.LogOp() >> ops.Normalize()
    return Workflow(ids + hour + price + (["returned"] >> ops.AddTags(["target"])))


class Clients:
    """Four clients that ask without a pause, and count the answers of each version.

    Args:
        url: the server's gRPC address.
        rows: the rows of each request.
    """

    def __init__(self, url: str, rows: pl.DataFrame) -> None:
        self.failures: list[Exception] = []
        self.answers: Counter[float] = Counter()
        self._url, self._rows, self._ended = url, rows, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait for the last answers."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        try:
            with EnsembleClient(self._url, "shop", retries=0) as client:
                while not self._ended.wait(0.005):
                    # The versions differ in every answer, so one number names the version.
                    answer = client.predict(self._rows)["output"]
                    self.answers[round(float(answer[0]), 4)] += 1
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            self.failures.append(error)


class Day:
    """The events of a served model, with a line on the screen for each.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "models"
        self.unseen = make_orders(4_000, seed=4)
        self.workflow = make_workflow()
        make_orders(30_000, seed=1).write_parquet(folder / "orders.parquet")
        self.workflow.fit_transform_to_parquet(folder / "orders.parquet", folder / "train")
        self._train = KerasSequenceLoader(folder / "train", batch_size=512, seed=3)
        keras.utils.set_random_seed(2)
        self._model = models.mlp(self.workflow.output_schema, max_embedding_dim=8, hidden=(32,))
        self._model.compile(keras.optimizers.Adam(0.0005), "binary_crossentropy")

    def export(self, version: int, epochs: int) -> None:
        """Train for some epochs more, and export."""
        if epochs:
            self._model.fit(self._train, epochs=epochs, shuffle=False, verbose=0)
        export_tensorflow_ensemble(
            self._model, self.workflow, "shop", self.repository, version=version, serving=OPTIONS
        )

    def show(self, event: str, clients: Clients, client: EnsembleClient) -> float:
        """Print a line; return the first answer of the version that serves."""
        answer = client.predict(self.unseen)["output"].to_numpy()
        quality = area_under_curve(self.unseen["returned"].to_numpy(), answer)
        asked, failed = clients.answers.total(), len(clients.failures)
        print(f"{event:<44} AUC {quality:.3f}   {asked:>6} answers   {failed} failed", flush=True)
        return round(float(answer[0]), 4)


def show_skews(workflow: Workflow, client: EnsembleClient, rows: pl.DataFrame) -> None:
    """Print where requests differ from the training, as `ensemble watch` does."""
    monitor = SkewMonitor(workflow, client)
    monitor.add(rows)
    for skew in skews(parse(monitor.exposition())):
        expected = "unknown" if skew.expected is None else f"{skew.expected:8.2%}"
        mark = "<<" if skew.deviates else ""
        print(f"  {skew.column:<10} {skew.figure:<14} {skew.served:8.2%}   {expected} {mark}")


def area_under_curve(labels: Array, scores: Array) -> float:
    """The share of pairs of a positive and a negative row whose order is right."""
    ranks = pl.Series(scores).rank().to_numpy()
    positive = labels == 1
    count = positive.sum()
    pairs = count * (len(labels) - count)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / pairs)


def run(folder: Path) -> bool:
    """Run the day; return whether every request was answered, by the version that was published."""
    day = Day(folder)
    day.export(version=1, epochs=1)
    with TritonServer(day.repository) as server, EnsembleClient(server.grpc_url, "shop") as client:
        clients = Clients(server.grpc_url, day.unseen.head(8))
        try:
            first = day.show("version 1 serves", clients, client)

            day.export(version=2, epochs=4)
            server.publish("shop")
            second = day.show("version 2, trained longer, is published", clients, client)

            day.export(version=3, epochs=0)
            (day.repository / "shop" / "3" / "model.onnx").write_bytes(b"damaged")
            try:
                server.publish("shop")
            except ServerError as error:
                print(f"refused: {str(error).partition('Received')[0]}")
            third = day.show("version 3, damaged, is refused", clients, client)

            rollback(day.repository, "shop", version=1)
            server.publish("shop")
            last = day.show("version 1 is brought back", clients, client)
            print("requests and training (ensemble watch):")
            # A source of the orders has lost half of their prices.
            lost = pl.when(pl.int_range(pl.len()) % 2 == 0).then("price").alias("price")
            show_skews(day.workflow, client, day.unseen.with_columns(lost))
        finally:
            clients.end()
    for failure in clients.failures:
        print(f"failed: {failure}")
    print(f"answers by version: {[clients.answers[one] for one in (first, second)]}")
    alike = (first, second) == (last, third) and first != second
    return alike and clients.answers.keys() == {first, second} and not clients.failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(not run(Path(temporary)))
