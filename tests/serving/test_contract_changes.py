"""A version with other inputs or outputs is loaded while clients are connected."""

import asyncio
import json
import shutil
import threading
import time
from contextlib import nullcontext
from itertools import product

import numpy as np
import polars as pl
import pytest
from onnx import TensorProto, helper

from serving import (
    AsyncEnsembleClient,
    ColumnError,
    DtypeError,
    EnsembleClient,
    InvalidRequestError,
    ServerUnavailableError,
    check_parity,
    predict_to_parquet,
    scoring,
    write_perf_analyzer_input,
)
from serving.connection.calls import AsyncConnection, Connection
from workflow import Workflow
from workflow.wire.format import WireColumn, dump_columns

TYPES = {"TYPE_INT64": TensorProto.INT64, "TYPE_FP32": TensorProto.FLOAT}
ROWS = {"id": [3, 4], "other": [5, 6]}


def write(repository, column, output, datatype, nodes, constants=()):
    folder = repository / "changing"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'backend: "onnxruntime" instance_group [{ kind: KIND_CPU }]'
        f'input [{{ name: "{column}" data_type: {datatype} dims: [-1, 1] }}]'
        f'output [{{ name: "{output}" data_type: {datatype} dims: [-1, 1] }}]'
    )
    tensors = [
        [helper.make_tensor_value_info(name, TYPES[datatype], ["N", 1])]
        for name in (column, output)
    ]
    graph = helper.make_graph(nodes, "graph", *tensors, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString())


@pytest.fixture
def change(repository, server):
    """Loads a model that gives one column back under another name."""

    def run(column, output="same", datatype="TYPE_INT64"):
        identity = helper.make_node("Identity", [column], [output])
        write(repository, column, output, datatype, [identity])
        server.load("changing")

    yield run
    server.unload("changing")
    shutil.rmtree(repository / "changing")


CHANGES = [
    ("grpc_url", ("other",), {"same": [[5], [6]]}),
    ("grpc_url", ("id", "made"), {"made": [[3], [4]]}),
    ("http_url", ("other", "made", "TYPE_FP32"), {"made": [[5.0], [6.0]]}),
]


def lists(answer):
    return {name: array.tolist() for name, array in answer.items()}


@pytest.mark.parametrize(
    ("url", "arguments", "expected"), CHANGES, ids=["input", "output", "both, and the dtype"]
)
def test_a_client_reads_the_contract_again(change, server, url, arguments, expected):
    change("id")
    with EnsembleClient(getattr(server, url), "changing") as client:
        assert lists(client.predict(ROWS)) == {"same": [[3], [4]]}
        before = client.contract
        change(*arguments)
        assert lists(client.predict(ROWS)) == expected
        assert client.contract != before


def test_a_client_of_asyncio_does_so_too(change, server):
    async def ask():
        async with AsyncEnsembleClient(server.grpc_url, "changing") as client:
            first = await client.predict(ROWS)
            change("other", "made")
            # At once, of which one reads the new contract first.
            return first, await asyncio.gather(*(client.predict(ROWS) for _ in range(4)))

    change("id")
    first, answers = asyncio.run(ask())
    assert lists(first) == {"same": [[3], [4]]}
    assert [*map(lists, answers)] == [{"made": [[5], [6]]}] * 4


def test_the_error_is_that_of_the_new_contract(change, server):
    change("id")
    with EnsembleClient(server.grpc_url, "changing") as client:
        change("other")
        with pytest.raises(ColumnError, match="other"):
            client.predict({"id": [3]})


def answers_of(url, name, is_async, *steps):
    """The answers of one client to tables, with something done before each of them."""

    async def ask():
        async with AsyncEnsembleClient(url, name) as client:
            answers = []
            for act, data in steps:
                act()
                answers.append(lists(await client.predict(data)))
            return answers

    if is_async:
        return asyncio.run(ask())
    with EnsembleClient(url, name) as client:
        answers = []
        for act, data in steps:
            act()
            answers.append(lists(client.predict(data)))
        return answers


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_table_may_fit_the_new_contract_alone(change, server, is_async):
    change("id")
    steps = [
        (lambda: None, {"id": [3]}),
        (lambda: change("other"), {"other": [5]}),
        (lambda: change("other", "same", "TYPE_FP32"), {"other": [0.5]}),
    ]
    answers = answers_of(server.grpc_url, "changing", is_async, *steps)
    assert answers == [{"same": [[3]]}, {"same": [[5]]}, {"same": [[0.5]]}]


def echo():
    """A network that gives a column back."""
    tensors = [
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", 1])]
        for name in ("id", "same")
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["id"], ["same"])], "graph", *tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def write_optional(folder, version, *, nullable):
    """A version of a model that gives a column back, which may have nulls or not."""
    (folder / f"{version}").mkdir(parents=True)
    (folder / f"{version}" / "model.onnx").write_bytes(echo().SerializeToString())
    inputs = dump_columns([WireColumn("id", "int64", nullable=nullable)]).replace('"', '\\"')
    (folder / "config.pbtxt").write_text(
        'backend: "onnxruntime" instance_group [{ kind: KIND_CPU }]'
        f"version_policy {{ specific {{ versions: {version} }} }}"
        f'parameters {{ key: "inputs" value {{ string_value: "{inputs}" }} }}'
        'input [{ name: "id" data_type: TYPE_INT64 dims: [-1, 1] }]'
        'output [{ name: "same" data_type: TYPE_INT64 dims: [-1, 1] }]'
    )


@pytest.fixture
def optional(repository, server):
    """Loads a version of a model of `write_optional`."""
    folder = repository / "optional"

    def run(version, *, nullable):
        write_optional(folder, version, nullable=nullable)
        server.load("optional")

    yield run
    server.unload("optional")
    shutil.rmtree(folder)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_code_for_null_is_no_number_of_a_version_without_nulls(optional, server, is_async):
    optional(1, nullable=True)
    steps = [
        (lambda: None, {"id": [7, None]}),
        (lambda: optional(2, nullable=False), {"id": [None]}),
    ]
    with pytest.raises(DtypeError, match="'id' holds a null"):
        answers_of(server.grpc_url, "optional", is_async, *steps)


@pytest.fixture(scope="module")
def versions(repository, server):
    """Two versions of a model of `write_optional`, each with nulls and without."""
    names = {f"{kind}_{version}": version for version in (1, 2) for kind in ("nulls", "none")}
    for name, version in names.items():
        write_optional(repository / name, version, nullable=name.startswith("nulls"))
        server.load(name)
    yield
    for name in names:
        server.unload(name)
        shutil.rmtree(repository / name)


@pytest.fixture
def routed(monkeypatch):
    """Two servers behind one address, of which one has version 1 of a model, the other version 2.

    They are two models of one server. A client's requests for an inference go to them in one order,
    those for a config in another.
    """

    def run(kinds, inferences, configs):
        orders = {"infer": iter(inferences), "config": iter(configs)}
        for (verb, order), kind in product(orders.items(), (Connection, AsyncConnection)):
            route(kind, verb, order, dict(zip("12", kinds, strict=True)))
        return orders

    def route(kind, verb, order, kinds):
        call = getattr(kind, verb)

        def routed(self, _, *rest):
            version = next(order)
            return call(self, f"{kinds[version]}_{version}", *rest)

        monkeypatch.setattr(kind, verb, routed)

    return run


REPLICAS = [
    # A code for null would be a number to the version that answers.
    (("nulls", "none"), "22", "1122", 1, (DtypeError, "'id' holds a null")),
    (("none", "nulls"), "12", "1222", 1, None),
    # Of versions alike no answer is asked for again, once both are known.
    (("nulls", "nulls"), "2121", "1122", 3, None),
    (("nulls", "nulls"), "2222", "11111", 1, (ServerUnavailableError, "version 2.* version 1")),
]


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("kinds", "inferences", "configs", "times", "error"), REPLICAS)
def test_servers_of_different_versions(
    routed, server, is_async, kinds, inferences, configs, times, error
):
    orders = routed(kinds, inferences, configs)
    steps = [(lambda: None, {"id": [None]})] * times
    with pytest.raises(error[0], match=error[1]) if error else nullcontext():
        answers = answers_of(server.grpc_url, "replicas", is_async, *steps)
        assert answers == [{"same": [[np.iinfo(np.int64).min]]}] * times
    assert ["".join(order) for order in orders.values()] == ["", ""]


@pytest.mark.usefixtures("versions")
def test_a_check_of_parity_is_of_one_version(routed, server):
    routed(("none", "none"), "12", "112")
    workflow = Workflow(["id"]).fit({"id": [1, 2]})
    with (
        EnsembleClient(server.grpc_url, "replicas") as client,
        pytest.raises(ServerUnavailableError, match=r"one version for all rows.* versions 1, 2"),
    ):
        check_parity(client, workflow, echo(), {"id": [1, 2]}, batch_size=1)


LIMITED = 'parameters { key: "limits" value { string_value: "{\\"max_rows\\": 1}" } }'


@pytest.fixture
def publish(repository, server):
    """Loads a version of a model that takes one row at a time, and adds its number to it."""
    folder = repository / "numbered"

    def run(version):
        tensors = [
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", 1])]
            for name in ("id", "sum")
        ]
        number = helper.make_tensor("number", TensorProto.INT64, [1, 1], [version])
        add = helper.make_node("Add", ["id", "number"], ["sum"])
        graph = helper.make_graph([add], "graph", *tensors, [number])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        (folder / f"{version}").mkdir(parents=True)
        (folder / f"{version}" / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "config.pbtxt").write_text(
            f'backend: "onnxruntime" instance_group [{{ kind: KIND_CPU }}] {LIMITED}'
            'input [{ name: "id" data_type: TYPE_INT64 dims: [-1, 1] }]'
            'output [{ name: "sum" data_type: TYPE_INT64 dims: [-1, 1] }]'
        )
        server.load("numbered")

    run(1)
    yield run
    server.unload("numbered")
    shutil.rmtree(folder)


@pytest.fixture
def published_within(publish, monkeypatch):
    """Has versions published after the first, the second, ... answer that a client gets."""
    kinds = Connection, AsyncConnection
    sync_infer, async_infer = (kind.infer for kind in kinds)

    def run(*answers):
        versions, one_at_a_time = iter(answers), threading.Lock()

        def infer(*request):
            answer = sync_infer(*request)
            with one_at_a_time:  # a file's parts are read by threads
                if version := next(versions, None):
                    publish(version)
            return answer

        async def infer_of_asyncio(*request):
            answer = await async_infer(*request)
            if version := next(versions, None):
                await asyncio.to_thread(publish, version)
            return answer

        for kind, wrapped in zip(kinds, (infer, infer_of_asyncio), strict=True):
            monkeypatch.setattr(kind, "infer", wrapped)

    return run


def sums(url, is_async):
    """The answers for a table of three requests."""

    async def ask():
        async with AsyncEnsembleClient(url, "numbered") as client:
            return await client.predict({"id": [10, 20, 30]})

    if is_async:
        return asyncio.run(ask())["sum"].tolist()
    with EnsembleClient(url, "numbered") as client:
        return client.predict({"id": [10, 20, 30]})["sum"].tolist()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_one_version_answers_all_rows_of_a_table(published_within, url, is_async):
    published_within(0, 2)
    assert sums(url, is_async) == [[12], [22], [32]]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_versions_that_change_all_the_time_are_an_error(published_within, url, is_async):
    published_within(2, 0, 3)
    with pytest.raises(ServerUnavailableError, match=r"one version for all rows.* versions 3, 2"):
        sums(url, is_async)


@pytest.fixture
def write_scores(url, tmp_path, monkeypatch):
    """Predicts for a table of four parts, and returns the answers in the file."""
    monkeypatch.setattr(scoring, "ROWS_OF_A_PART", 1)
    monkeypatch.setattr(scoring, "PARTS_AT_ONCE", 1)

    def run():
        with EnsembleClient(url, "numbered") as client:
            rows = pl.DataFrame({"id": [10, 20, 30, 40]})
            (file,) = predict_to_parquet(client, rows, tmp_path / "scores")
        return pl.read_parquet(file)["sum"].to_list()

    return run


def test_one_version_answers_all_rows_of_files(published_within, write_scores):
    published_within(2)
    assert write_scores() == [12, 22, 32, 42]


def test_versions_that_change_all_the_time_leave_no_files(published_within, write_scores, tmp_path):
    published_within(*range(2, 10))
    with pytest.raises(ServerUnavailableError, match="one version for all rows"):
        write_scores()
    assert not [*tmp_path.glob("scores/*")]


def test_files_have_the_columns_of_a_model_that_has_changed_since_the_client_connected(
    change, server, tmp_path
):
    change("id")
    with EnsembleClient(server.grpc_url, "changing") as client:
        change("other", "made")
        rows = pl.DataFrame(ROWS)
        with pytest.raises(ColumnError, match="Received: 'made', which the model answers with"):
            predict_to_parquet(client, rows.rename({"id": "made"}), tmp_path / "a", keep="made")
        (file,) = predict_to_parquet(client, rows, tmp_path / "scores", keep="id")
        change("id")
        write_perf_analyzer_input(client, rows, tmp_path / "input.json")
    assert pl.read_parquet(file).to_dict(as_series=False) == {"id": [3, 4], "made": [5, 6]}
    first, _ = json.loads((tmp_path / "input.json").read_text())["data"]
    assert first["id"]["content"] == [3]


def refused(server):
    """The number of requests that the model has refused, each with a line in the log."""
    return server.log_path.read_text().count('"changing: error ')


def test_a_refusal_for_another_reason_is_asked_for_once(change, server, repository):
    change("id")
    # The table has no row for the ids of the request.
    gather = helper.make_node("Gather", ["table", "id"], ["row"])
    flatten = helper.make_node("Flatten", ["row"], ["same"])
    table = helper.make_tensor("table", TensorProto.INT64, [1, 1], [0])
    write(repository, "id", "same", "TYPE_INT64", [gather, flatten], [table])
    server.load("changing")
    with EnsembleClient(server.grpc_url, "changing") as client:
        assert lists(client.predict({"id": [0]})) == {"same": [[0]]}
        before = refused(server)
        with pytest.raises(InvalidRequestError):
            client.predict(ROWS)
        end = time.monotonic() + 30
        while refused(server) == before and time.monotonic() < end:
            time.sleep(0.01)  # the server writes its log after the answer
        assert refused(server) == before + 1
