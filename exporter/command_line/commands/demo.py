"""The whole workflow in one command, with synthetic data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.places import filling, save_network, write_text
from exporter.command_line.quiet import import_tensorflow
from exporter.command_line.words import Json, answer
from exporter.plan.runtime import RUNTIMES

NAME = "movielens"
MOVIES = 500


def demo(
    output: Annotated[Path, typer.Argument(help="A new folder for everything it writes.")] = Path(
        "ensemble_demo"
    ),
    rows: Annotated[int, typer.Option(min=1_000, help="How many ratings to make up.")] = 200_000,
    runtime: Annotated[str, typer.Option(help=f"One of {', '.join(RUNTIMES)}.")] = "tensorflow",
    as_json: Json = False,
) -> None:
    """Run everything on synthetic ratings, and prove the answers.

    It fits a workflow, trains a network, exports both and serves them.

    Example: `ensemble demo try_it && ensemble show movielens --repository try_it/models`
    """
    if output.exists():
        raise CommandError(f"Expected a new folder. Received: {output}, which exists.")
    import_tensorflow()
    # So that help is shown at once.
    from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415
    from exporter.report.latency import SIZES, measure_latency  # noqa: PLC0415
    from loader import KerasSequenceLoader  # noqa: PLC0415
    from serving import EnsembleClient, TritonServer, check_parity  # noqa: PLC0415
    from training import models, train  # noqa: PLC0415
    from workflow import Workflow, get_embedding_sizes, ops  # noqa: PLC0415
    from workflow.data.sources import as_lazy_frame  # noqa: PLC0415

    def tell(text: str) -> None:
        if not as_json:
            typer.echo(text)

    options = ServingOptions(runtime=runtime)
    with filling(output):
        raw, movie_table = _make_up(output, rows)
    movies = ["movieId"] >> ops.JoinExternal(movie_table, on="movieId")
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"), tags=["target"])
    workflow = Workflow(((["userId"] + movies) >> ops.Categorify()) + label)
    tell("fit       the workflow")
    workflow.fit(raw).transform_to_parquet(raw, output / "train")
    workflow.save(output / "workflow")
    model = models.mlp(get_embedding_sizes(workflow), max_embedding_dim=16, output_name="score")
    report = train(model, KerasSequenceLoader(output / "train", batch_size=4096))
    network = output / "model.keras"
    save_network(model, network)
    tell(f"train     {str(report).splitlines()[0]}")
    exported = export_tensorflow_ensemble(model, workflow, NAME, output / "models", serving=options)
    tell(f"export    {output / 'models'}, runtime {runtime}")
    with (
        TritonServer(output / "models") as server,
        EnsembleClient(server.grpc_url, NAME) as client,
    ):
        tell("serve     a Triton server on this machine\n")
        sample = as_lazy_frame(raw).head(10_000).collect()
        proof = check_parity(client, workflow, model, sample)
        latency = [measure_latency(client, sample, 1, size, seconds=0.5) for size in SIZES]
    page = output / "report.html"
    write_text(page, exported.to_html(proof, latency))
    answer(
        as_json,
        f"{proof}\n\n{page}: the report as a page\n\nTry as well:\n"
        f"  ensemble show {NAME} --repository {quote(str(output / 'models'))}\n"
        f"  ensemble bench {NAME} {quote(str(raw))} --repository {quote(str(output / 'models'))}",
        **asdict(proof),
        passed=proof.passed,
        latency=[asdict(one) for one in latency],
        repository=output / "models",
        data=raw,
        page=page,
    )
    if not proof.passed:
        raise typer.Exit(1)


def _make_up(output: Path, rows: int) -> tuple[Path, object]:
    """Ratings in a parquet file, in which users prefer some movies; and the movies."""
    import numpy as np  # noqa: PLC0415 - so that help is shown at once
    import polars as pl  # noqa: PLC0415

    random = np.random.default_rng(0)
    users, movies = random.integers(0, rows // 50, rows), random.zipf(1.3, rows) % MOVIES
    liking = random.normal(size=rows // 50)[users] + random.normal(size=MOVIES)[movies]
    rating = np.clip(np.round(2 * (3 + liking)) / 2, 0.5, 5)
    path = output / "ratings.parquet"
    pl.DataFrame({"userId": users, "movieId": movies, "rating": rating}).write_parquet(path)
    genres = [["Drama"], ["Comedy", "War"], [], ["Drama", "Thriller"]]
    table = {"movieId": range(MOVIES), "genres": [genres[n % len(genres)] for n in range(MOVIES)]}
    return path, pl.DataFrame(table)
