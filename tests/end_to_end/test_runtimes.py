"""Every runtime gives the offline answer: flat lists and padded, alone and among others."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from jsonschema import Draft202012Validator
from pipelines import everything

from exporter import ServingOptions, export_tensorflow_ensemble, verify
from exporter.plan.runtime import RUNTIMES
from serving import ClientError, EnsembleClient, TritonServer, check_parity
from serving.connection.tensors import datatype_of
from serving.exchange import to_requests, to_table
from serving.openapi import openapi_document
from workflow.expressions.polars.series import to_column
from workflow.wire.format import encode

MAX = 64
SERVED = [name for name, kind in RUNTIMES.items() if kind.is_served]
CASES = [f"{runtime}-{rows}" for runtime in SERVED for rows in (0, MAX)]

# As large as the rows of the pipeline need.
LIMITS = {"max_list_length": 300, "max_string_bytes": 12}
EXACT = tuple(
    f"{name}_back" for name in ("user", "word", "movie", "recent", "only", "whole", "real")
)


def is_fused(case):
    return RUNTIMES[case.rpartition("-")[0]].is_fused


@pytest.fixture(scope="module")
def pipeline():
    return everything()


@pytest.fixture(scope="module")
def repository(pipeline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtimes")
    for case in CASES:
        runtime, rows = case.split("-")
        batch = int(rows)
        options = ServingOptions(
            runtime=runtime,
            max_batch_size=batch,
            warm_up=batch > 0,
            max_rows=None if batch else 300,
            **LIMITS,
        )
        export_tensorflow_ensemble(
            pipeline.model,
            pipeline.workflow,
            case,
            folder,
            pipeline.labels,
            {"recent": 3},
            serving=options,
        )
    return folder


@pytest.fixture(scope="module")
def server(repository):
    with TritonServer(repository, CASES, startup_timeout=600) as server:
        yield server


@pytest.fixture
def client(server, case):
    with EnsembleClient(server.grpc_url, case, timeout=120) as client:
        yield client


def many(rows, count):
    """Rows repeated, each time in another order."""
    frames = [rows.sample(fraction=1, shuffle=True, seed=n) for n in range(count // len(rows) + 1)]
    return pl.concat(frames).head(count)


def assert_same(answer, expected):
    for name in expected.columns:
        if name in EXACT:
            assert answer[name].to_list() == expected[name].to_list(), name
        else:
            np.testing.assert_allclose(
                answer[name].to_numpy(), expected[name].to_numpy(), atol=1e-6
            )


@pytest.mark.parametrize("case", CASES)
def test_server_equals_offline(case, pipeline, client):
    rows = many(pipeline.rows, 200)
    report = check_parity(client, pipeline.workflow, pipeline.model, rows, batch_size=50)
    assert report.passed, f"\n{report}"
    compared = {output.name for output in report.outputs}
    assert compared >= {"score", *EXACT}
    assert ("genres" in compared) == (not is_fused(case))
    assert all(o.max_difference == 0 for o in report.outputs if o.name in EXACT)


@pytest.mark.parametrize("case", CASES)
def test_a_row_is_the_same_alone_and_among_others(pipeline, client):
    rows = many(pipeline.rows, MAX)
    together = client.predict(rows)
    assert_same(client.predict(rows.head(7)), together.head(7))
    alone = pl.concat([client.predict(rows[row]) for row in range(7)])
    assert_same(alone, together.head(7))
    assert client.predict(rows.head(0)).schema == together.schema


@pytest.mark.parametrize("case", CASES)
def test_sixty_four_clients_at_once_and_a_bad_one_among_them(pipeline, client):
    rows = many(pipeline.rows, MAX)
    expected = client.predict(rows)
    bad = {}
    for column in client.contract.inputs:
        bad |= encode(column, to_column(rows[column.name][:1]))
    bad["tags__nnzs"] = -np.ones_like(bad["tags__nnzs"])

    def ask(row):
        return client.raw(bad) if row == 5 else client.predict(rows[row])

    def attempt(row):
        try:
            return ask(row)
        except ClientError as error:
            return error

    with ThreadPoolExecutor(MAX) as threads:
        answers = list(threads.map(attempt, range(MAX)))
    assert answers.pop(5).code == "INVALID_ARGUMENT"
    assert_same(pl.concat(answers), expected.filter(pl.int_range(MAX) != 5))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("beyond", "reason"),
    [
        ({"tags": [["fun"] * 301]}, "tags has a list of more than 300"),
        ({"recent": [[1] * 301]}, "recent has a list of more than 300"),
        ({"word": ["x" * 13]}, "word has a string of more than 12 bytes"),
        ({"tags": [["fun", "é" * 7]]}, "tags has a string of more than 12 bytes"),
    ],
)
def test_a_request_beyond_a_limit_fails_alone(beyond, reason, pipeline, client):
    rows = many(pipeline.rows, 8)
    expected = client.predict(rows)
    tables = [rows[row] for row in range(8)]
    tables[3] = tables[3].with_columns(
        pl.Series(name, values, rows.schema[name]) for name, values in beyond.items()
    )

    def attempt(table):
        """Ask as a client would that knows of no limits."""
        try:
            (request,) = to_requests(replace(client.contract, limits={}), table)
            return to_table(client.contract, table, [client.raw(request)])
        except ClientError as error:
            return error

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(attempt, tables))
    refused = answers.pop(3)
    if "recent" in beyond and client.contract.max_batch_size:
        # The client itself cuts a list that the network takes only the beginning of.
        assert refused.height == 1
    else:
        assert refused.code == "INVALID_ARGUMENT"
        text = f"The request is beyond a limit of the model: {reason}."
        assert refused.message.endswith(text)
    assert_same(pl.concat(answers), expected.filter(pl.int_range(8) != 3))


@pytest.mark.parametrize("case", CASES)
def test_mistakes_of_a_client_are_refused_by_every_runtime(case, pipeline, client):
    """The table of the guide. Ours makes none of them, so the tensors are sent as they are."""
    tensors = {}
    for column in client.contract.inputs:
        tensors |= encode(column, to_column(pipeline.rows[column.name][5:6]))
    unseen = client.raw(tensors)["word_back"]
    for wrong in ({"real": np.nan}, {"word": b"\xfe\xfe"}, {"tags__nnzs": -1}):
        [(name, value)] = wrong.items()
        with pytest.raises(ClientError, match=rf"INVALID_ARGUMENT: .*\b{name.partition('__')[0]}"):
            client.raw(tensors | {name: np.full_like(tensors[name], value)})
    nul = tensors | {"word": np.array([[b"fun\0"]], object)}
    row = pipeline.rows[5:6].with_columns(word=pl.lit("fun\0"))
    if "onnx" in case:
        with pytest.raises(ClientError, match=r"INVALID_ARGUMENT: .*\bword without a NUL"):
            client.raw(nul)
        with pytest.raises(ClientError, match=r"'word' holds a string with a NUL.*tensorflow"):
            client.predict(row)
    else:
        assert client.raw(nul)["word_back"].tolist() == unseen.tolist()
        assert client.predict(row)["word_back"].to_list() == unseen[:, 0].tolist()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("case")
def test_columns_of_other_rows_are_refused_in_words(pipeline, client):
    tensors = {}
    for column in client.contract.inputs:
        tensors |= encode(column, to_column(pipeline.rows[column.name][:2]))
    tensors["real"] = tensors["real"][:1]
    with pytest.raises(ClientError, match=r"INVALID_ARGUMENT: .*(number of rows|batch size)"):
        client.raw(tensors)


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("-0")])
@pytest.mark.usefixtures("case")
def test_too_many_rows_at_once_are_refused(pipeline, client):
    rows = many(pipeline.rows, 301)
    tensors = {}
    for column in client.contract.inputs:
        tensors |= encode(column, to_column(rows[column.name]))
    with pytest.raises(ClientError, match=r"INVALID_ARGUMENT: .* it has more than 300 rows"):
        client.raw(tensors)
    assert client.predict(rows).height == 301, "the client sends what the model takes at once"


@pytest.mark.parametrize("case", CASES)
def test_the_openapi_document_has_the_rows_that_the_server_takes(case, pipeline, client):
    most, least = client.contract.max_rows, int(not case.endswith("-0"))
    parts = openapi_document("any", client.contract)["components"]
    schema = {"$ref": "#/components/schemas/InferRequest", "components": parts}
    rows = many(pipeline.rows, most + 1)
    for count in (0, 1, most, most + 1):
        tensors = {}
        for column in client.contract.inputs:
            tensors |= encode(column, to_column(rows[column.name][:count]))
        inputs = [
            {"name": name, "datatype": datatype_of(name, tensor), "shape": [*tensor.shape]}
            for name, tensor in tensors.items()
        ]
        taken = least <= count <= most
        with nullcontext() if taken else pytest.raises(ClientError, match="INVALID_ARGUMENT"):
            client.raw(tensors)
        assert Draft202012Validator(schema).is_valid({"inputs": inputs}) == taken, count


def test_each_step_of_an_ensemble_with_a_cache_answers_the_health_check(pipeline, tmp_path):
    """Such an ensemble's own answer may be a kept one, so its steps are asked, with packed tensors."""
    cases = [case for case in CASES if not is_fused(case)]
    for case in cases:
        runtime, rows = case.split("-")
        export_tensorflow_ensemble(
            pipeline.model,
            pipeline.workflow,
            case,
            tmp_path,
            pipeline.labels,
            {"recent": 3},
            serving=ServingOptions(
                runtime=runtime, max_batch_size=int(rows), response_cache=True, warm_up=False
            ),
        )
    with TritonServer(tmp_path, response_cache_bytes=2**20) as server:
        assert server.models == tuple(sorted(cases))


@pytest.mark.parametrize("case", [case for case in CASES if is_fused(case)])
def test_one_model_is_all_there_is(case, repository, client):
    assert client.contract.generation == verify(repository, case)
    assert not list(repository.glob(f"{case}_*"))


def test_a_fused_saved_model_runs_in_plain_python(pipeline, repository, server):
    import tensorflow as tf

    case = "fused_tensorflow-0"
    loaded = tf.saved_model.load(str(repository / case / "1" / "model.savedmodel"))
    with EnsembleClient(server.grpc_url, case) as client:
        tensors = {}
        for column in client.contract.inputs:
            tensors |= encode(column, to_column(pipeline.rows[column.name]))
        served = client.raw(tensors)
    answer = loaded.signatures["serving_default"](**{n: tf.constant(t) for n, t in tensors.items()})
    assert {name: tensor.numpy().tolist() for name, tensor in answer.items()} == {
        name: tensor.tolist() for name, tensor in served.items()
    }
