"""The command `ensemble`, from parquet to a proven answer, and what it says when it fails."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from xml.etree import ElementTree as ET

import keras
import polars as pl
import pytest
from ensemble_command import PROGRAM, ensemble
from forwarder import Forwarder, certify, port_of

from exporter import export_tensorflow_ensemble
from exporter.command_line.app import COMMANDS
from serving import EnsembleClient
from training import models, save_model
from workflow import Workflow, ops
from workflow.data.sources import Source

# One server and one set of files for all.
pytestmark = pytest.mark.xdist_group("command_line")

DEFINITION = """
from workflow import Workflow, ops
label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"), tags=["target"])
flow = Workflow((["user", "tags"] >> ops.Categorify()) + label)
"""
LAYER = """
import keras
workflow = keras.layers.Lambda(lambda x: x / (1 / 0))(keras.ops.ones((1, 1)))
"""


def done(*arguments):
    result = ensemble(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def failed(*arguments):
    result = ensemble(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The results of `fit`, `train` and `export`, called as a user would call them."""
    folder = tmp_path_factory.mktemp("command_line")
    before = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    rows = pl.int_range(2_000, eager=True)
    pl.DataFrame(
        {
            "user": rows % 90,
            "tags": pl.Series([["a", "b"], ["c"], [], None]).gather(rows % 4),
            "rating": rows % 7 / 1.5,
        }
    ).write_parquet("rows.parquet")
    # One request a row: of all rows, `bench --write-input` asks 1,024 times.
    pl.read_parquet("rows.parquet", n_rows=20).write_parquet("few.parquet")
    (folder / "flow.py").write_text(DEFINITION)
    done("fit", "flow.py:flow", "rows.parquet", "--transform-to", "train")
    cheap = ("--optimizer", "sgd", "--metric", "accuracy")
    done("train", "train", "--batch-size", "512", "--embedding-dim", "4", *cheap)
    text = done("export", "shop", "--runtime", "fused_onnx", "--max-batch-size", "512")
    assert "A server has loaded the models and answered the golden rows" in text
    yield folder
    os.chdir(before)


@contextmanager
def serving(folder, *ends):
    """The addresses of gRPC and HTTP at which `serve` serves it, until signals end it."""
    ports = [
        "--grpc-port",
        "0",
        "--http-port",
        "0",
        "--metrics-port",
        "0",
        "--log-file",
        "server.log",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "models", *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "TRITON_ADMIN_KEY": "a key of the test"},
    ) as process:
        lines = [process.stdout.readline() for _ in range(5)]
        assert lines[-1] == "ready: shop. Ctrl-C stops the server.\n", process.stderr.read()
        yield lines[0].split()[1], lines[1].split()[1]
        for end in ends:
            process.send_signal(end)
            time.sleep(0.1)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()


@pytest.fixture(scope="module")
def addresses(folder):
    with serving(folder, signal.SIGINT) as addresses:
        yield addresses


@pytest.mark.parametrize("times", [1, 2])
def test_serve_ends_with_its_server_when_terminated(folder, times):
    """Also if it is told twice, as by `timeout`, which sends the signal to the group as well."""
    with serving(folder, *[signal.SIGTERM] * times) as (address, _):
        EnsembleClient(address, "shop").close()
    # The next one can have the port at once.
    socket.create_server(("127.0.0.1", port_of(address))).close()


@pytest.fixture(scope="module")
def served(addresses):
    return addresses[0]


def test_predictions_are_written(folder, served):
    text = done(
        "predict", "shop", "rows.parquet", "--output", "scores", "--keep", "user", "--url", served
    )
    assert text == "scores/*.parquet: 2,000 rows of user, output\n"
    found = pl.read_parquet(folder / "scores" / "*.parquet")
    with EnsembleClient(served, "shop") as client:
        rows = pl.read_parquet("rows.parquet")
        answered = client.predict(rows)["output"]
    assert found["user"].equals(rows["user"])
    assert found["output"].to_list() == answered.to_list()
    place = "~/again"  # a folder of this name, which pyarrow would take for the home
    again = done("predict", "shop", "rows.parquet", "--output", place, "--url", served, "--json")
    assert json.loads(again) == {
        "folder": place,
        "rows": 2_000,
        "columns": ["output"],
        "files": [f"{place}/part-00000.parquet"],
    }
    assert "holds parquet files already" in failed(
        "predict", "shop", "rows.parquet", "--output", "scores", "--url", served
    )


def test_parity_is_proven(folder, served):
    # Beside the address of the server, the repository is where the sizes are from.
    place = ("--url", served, "--repository", "models")
    text = done("parity", "shop", "rows.parquet", *place, "--html", "parity.html")
    assert text.startswith("Parity passed: shop, 2,000 rows")
    assert all(len(line) <= 80 for line in text.splitlines())
    page = (folder / "parity.html").read_text()
    for words in (
        "Parity passed",
        "<svg",
        'class="latency"',
        "<h2>Casts</h2>",
        "<h2>Versions</h2>",
    ):
        assert words in page


def test_show_in_a_terminal_without_the_characters(folder):
    command = [sys.executable, "-c", PROGRAM, "show", "shop"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    result = subprocess.run(command, cwd=folder, capture_output=True, check=False, env=latin)
    assert (result.returncode, result.stderr) == (0, b"")
    assert rb"request \u2192 shop" in result.stdout
    assert b"int64 [N, 1]" in result.stdout


def test_openapi_is_the_same_from_a_server_and_a_repository(folder, served, addresses):
    text = done("openapi", "shop", "--server", "https://example.com")
    document = json.loads(text)
    assert document["servers"] == [{"url": "https://example.com"}]
    assert "/v2/models/shop/infer" in document["paths"]
    file = ("--output", "shop.json", "--server", "https://example.com")
    assert done("openapi", "shop", "--url", served, *file).startswith("shop.json: ")
    assert json.loads((folder / "shop.json").read_text()) == document
    _, http = addresses
    for url, written in ((served, "http://127.0.0.1:8000"), (http, http)):
        assert json.loads(done("openapi", "shop", "--url", url))["servers"] == [{"url": written}]
    assert "Received: both." in failed("openapi", "shop", "--url", served, "--repository", "models")
    assert "Expected a model among" in failed("openapi", "none")


@pytest.mark.parametrize("scheme", ["grpcs", pytest.param("https", marks=pytest.mark.long)])
def test_a_server_behind_tls_and_a_login(folder, addresses, tmp_path, scheme):
    key, certificate, context = certify(tmp_path)
    (tmp_path / "token").write_text("Bearer of a file\n")
    client = [
        *("--root-certificates", certificate, "--private-key", key),
        *("--certificate-chain", certificate, "--timeout", 30, "--retries", 1),
        *("--header", f"authorization=@{tmp_path / 'token'}", "--header", "x-caller=a=b"),
    ]
    data = "rows.parquet"
    port = port_of(addresses[scheme == "https"])
    with Forwarder(port, tls=context) as network:
        server = ("--url", f"{scheme}://{network.address}")
        own = (*server, *client)
        text = done("predict", "shop", data, "--output", tmp_path / "scores", *own)
        assert "2,000 rows" in text
        text = done("parity", "shop", data, "--rows", 20, "--no-html", *own)
        assert text.startswith("Parity passed: shop, 20 rows")
        document = json.loads(done("openapi", "shop", *own))
        written = ("--server", server[1]) if scheme == "https" else ()
        assert document == json.loads(done("openapi", "shop", *written))
        requests = folder / f"{scheme}.json"
        words = ("bench", "shop", "few.parquet", "--write-input", requests)
        assert "20 requests" in done(*words, *own)
        if scheme == "https":  # gRPC's headers are packed.
            sent = network.sent.lower()
            assert sent.count(b"authorization: bearer of a file\r\n") >= 4
            assert b"x-caller: a=b\r\n" in sent
        # It does not trust the server.
        assert "UNAVAILABLE" in failed("openapi", "shop", *server, "--retries", 0)


def test_data_of_a_store_with_options(folder, served, link):
    url = link.put("raw/rows.parquet", pl.read_parquet(folder / "rows.parquet"))
    options = [w for pair in link.options.items() for w in ("--storage-option", "=".join(pair))]
    facts = json.loads(done("inspect", url, *options, "--json"))
    assert (facts["rows"], [c["name"] for c in facts["columns"]]) == (
        2_000,
        ["user", "tags", "rating"],
    )
    own = ("shop", url, *options, "--url", served)
    assert "Parity passed: shop, 5 rows" in done("parity", *own, "--rows", 5, "--no-html")
    few = link.put("raw/few.parquet", pl.read_parquet(folder / "few.parquet"))
    words = ("bench", "shop", few, *options, "--url", served)
    assert "20 requests" in done(*words, "--write-input", "stored.json")
    words = ("--repository", "stored", "--prove", "process", "--no-html", *options)
    text = done("export", "shop", "--runtime", "fused_onnx", "--golden-rows", url, *words)
    assert "golden_rows the first 8" in " ".join(text.split())


@pytest.mark.usefixtures("folder")
def test_a_version_of_the_server_is_asked(served):
    assert json.loads(done("openapi", "shop", "--url", served, "--model-version", 1))
    text = failed("openapi", "shop", "--url", served, "--model-version", 7)
    assert "NOT_FOUND" in text


@pytest.mark.usefixtures("folder")
def test_rows_travel_in_shared_memory(served, tmp_path, monkeypatch):
    words = ("predict", "shop", "rows.parquet", "--shared-memory")
    monkeypatch.delenv("TRITON_ADMIN_KEY", raising=False)
    refused = failed(*words, "--output", tmp_path / "refused", "--url", served)
    assert "restricted" in refused
    assert "TRITON_ADMIN_KEY" in refused
    monkeypatch.setenv("TRITON_ADMIN_KEY", "a key of the test")
    done(*words, "--output", tmp_path / "shared", "--url", served)
    monkeypatch.delenv("TRITON_ADMIN_KEY")
    # A server that is started for it has a key of its own.
    done(*words, "--output", tmp_path / "own", "--repository", "models", "--timeout", 30)
    done("predict", "shop", "rows.parquet", "--output", tmp_path / "sent", "--url", served)
    frames = [pl.read_parquet(tmp_path / name / "*.parquet") for name in ("shared", "own", "sent")]
    assert frames[0].equals(frames[2])
    assert frames[1].equals(frames[2])


@pytest.mark.usefixtures("folder")
def test_parity_as_json(served):
    arguments = ("parity", "shop", "rows.parquet", "--url", served, "--rows", 3, "--json")
    report = json.loads(done(*arguments, "--no-html"))
    assert (report["model"], report["rows"], report["passed"]) == ("shop", 3, True)
    assert "prediction" in {output["kind"] for output in report["outputs"]}
    assert {output["mismatches"] for output in report["outputs"]} == {0}


@pytest.mark.usefixtures("folder")
def test_parity_with_another_network_is_exit_code_1(served):
    schema = Workflow.load("workflow").output_schema.without(["rating"])
    models.mlp(schema, hidden=[4], output_name="output").save("other.keras")
    result = ensemble(
        *("parity", "shop", "rows.parquet", "--url", served, "--model", "other.keras", "--rows", 5)
    )
    assert result.exit_code == 1
    assert "Parity FAILED: shop, 5 rows" in result.output


@pytest.mark.usefixtures("folder")
def test_a_version_is_published_into_the_running_server(served, monkeypatch):
    publish = ("publish", "shop", "--url", served)
    monkeypatch.delenv("TRITON_ADMIN_KEY", raising=False)
    assert "admin key in the environment variable TRITON_ADMIN_KEY. Received: none" in failed(
        *publish
    )
    monkeypatch.setenv("TRITON_ADMIN_KEY", "another key")
    small = ("--max-batch-size", "64", "--prove", "process")
    done("export", "shop", "--runtime", "fused_onnx", *small, "--version", "2")
    text = failed(*publish)
    assert "rollback" not in text
    assert "TRITON_ADMIN_KEY, is not the one with which the server was started" in text
    assert "another key" not in text
    monkeypatch.setenv("TRITON_ADMIN_KEY", "a key of the test")
    assert json.loads(done(*publish, "--json")) == {"model": "shop", "version": 2, "url": served}
    generation = json.loads(done("verify", "shop", "--json"))["generation"]
    assert generation in done("verify", "shop")
    with EnsembleClient(served, "shop") as client:
        assert client.contract.max_batch_size == 64
    assert json.loads(done("rollback", "shop", "--json")) == {"model": "shop", "version": 1}
    assert json.loads(done("recover", "shop", "--json")) == {"model": "shop", "version": 1}
    assert done(*publish) == f"shop: version 1 is served at {served}\n"


@pytest.mark.usefixtures("folder")
def test_bench_measures(served):
    words = ("bench", "shop", "rows.parquet", "--url", served, "--seconds", "0.1")
    lines = json.loads(done(*words, "--json"))["lines"]
    assert [(line["clients"], line["rows"]) for line in lines[2:]] == [(1, 1024), (16, 1)]
    text = done(*words)
    assert all(len(line) <= 80 for line in text.splitlines())
    cells = [line.split("│")[1:3] for line in text.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [
        *(["1", "1"], ["1", "64"], ["1", "1,024"], ["16", "1"])
    ]


@pytest.mark.usefixtures("folder")
def test_bench_cuts_no_number_in_a_narrow_terminal(served, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = done("bench", "shop", "rows.parquet", "--url", served, "--seconds", "0.1")
    assert "…" not in text
    assert "requests/s" in text


def test_bench_writes_requests(folder, served):
    done("bench", "shop", "rows.parquet", "--url", served, "--write-input", "input.json")
    document = json.loads((folder / "input.json").read_text())
    assert document["data"][1]["user"] == {"content": [1], "shape": [1]}
    assert document["data"][1]["tags"]["content"][0] == "c"
    assert len(document["validation_data"]) == 1_024
    assert document["validation_data"][0]["output"]["shape"] == [1]
    requests = ["bench", "shop", "rows.parquet", "--url", served, "--write-input", "input.json"]
    made = json.loads(done(*requests, "--no-validation-data", "--json"))
    assert made == {"model": "shop", "input": "input.json", "requests": 1_024}
    assert json.loads((folder / "input.json").read_text()) == {"data": document["data"]}


def test_show_draws_every_tensor(folder):
    tensors = json.loads(done("show", "shop", "--json"))["tensors"]
    user = {"from": "request", "to": "shop", "name": "user", "type": "int64 [N, 1]"}
    assert user | {"note": "may be null"} in tensors
    text = done("show", "shop", "--svg", "shop.svg")
    assert all(len(line) <= 80 for line in text.splitlines())
    for expected in ("user", "int64 [N, 1]", "string [N, L]", "tags__nnzs", "may be null"):
        assert expected in text
    picture = "".join(ET.fromstring((folder / "shop.svg").read_text()).itertext())  # noqa: S314
    assert "user: int64 [N, 1]" in picture


def test_a_long_note_leaves_the_names_whole(tmp_path):
    at = pl.Series("at", [0, 1]).cast(pl.Datetime("us", "America/New_York"))
    hours = ["at"] >> ops.DatePart(["hour"]) >> ops.Categorify()
    workflow = Workflow(hours).fit(pl.DataFrame([at]))
    network = models.mlp(workflow.output_schema, hidden=(2,))
    export_tensorflow_ensemble(network, workflow, "departures", str(tmp_path), [])
    text = done("show", "departures", "--repository", tmp_path)
    assert "departures_nvt" in text
    assert "at_hour" in text
    assert "America/New_York" in text


@pytest.mark.usefixtures("folder")
def test_data_that_fit_has_not_seen_is_transformed_as_fitted(tmp_path):
    pl.DataFrame({"user": [0, 999], "tags": [["a"], ["new"]], "rating": [0.0, 4.0]}).write_parquet(
        "valid.parquet"
    )
    done("transform", "valid.parquet", "--output", tmp_path / "valid")
    made = pl.read_parquet(tmp_path / "valid" / "*.parquet")
    seen = pl.read_parquet("train/*.parquet")
    assert made["user"].to_list() == [seen["user"][0], 2]
    assert made["tags"].to_list() == [[seen["tags"][0][0]], [2]]
    assert made["rating"].to_list() == [0, 1]


@pytest.mark.usefixtures("folder")
def test_data_goes_from_a_store_to_a_store(link, tmp_path):
    rows = pl.read_parquet("rows.parquet")
    options = [f"--storage-option={name}={value}" for name, value in link.options.items()]
    url = link.put("raw/rows.parquet", rows)
    done("fit", "flow.py:flow", url, "--output", tmp_path / "flow", *options)
    made = f"{link.url}/made"
    done("transform", url, "--output", made, "--workflow", tmp_path / "flow", *options)
    here = tmp_path / "here"
    done("transform", "rows.parquet", "--output", here, "--workflow", tmp_path / "flow")
    there = Source.of(made, storage_options=link.options).frame.collect()
    assert there.equals(pl.read_parquet(here / "*.parquet"))


@pytest.mark.usefixtures("folder")
def test_show_draws_the_steps():
    done("export", "steps", "--repository", "steps", "--label", "rating", "--prove", "process")
    text = done("show", "steps", "--repository", "steps")
    lines = [line.split() for line in text.splitlines()]
    first = ["request", "→", "steps_nvt", "user", "int64", "[N,", "1]", "may", "be", "null"]
    assert first in lines
    assert any(line[:3] == ["steps_nvt", "→", "steps_tf"] for line in lines)
    assert any(line[:2] == ["tags__values", "string"] and "[V," in line for line in lines)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("fit none.py rows.parquet", "Expected a Python file. Received: none.py, no such file."),
        ("fit flow.py rows.parquet", "Expected flow.py to define `workflow`. Received: Workflow,"),
        ("fit flow.py:ops rows.parquet", "Expected a Workflow in flow.py:ops. Received: module."),
        ("fit no.such:flow rows.parquet", "Received: 'no.such', no such module."),
        ("fit ./rows.parquet flow.py", "Received: './rows.parquet', no such module."),
        ("fit flow.py:flow none.parquet", "none.parquet"),
        ("transform rows.parquet --output train", "train holds parquet files already"),
        ("transform rows.parquet --output new --workflow none", "none"),
        ("transform rows.parquet --output new --storage-option a=1", "no such path"),
        ("train train --output models", "Expected a file in a folder that exists."),
        ("train train --workflow none", "none"),
        ("export shop --model train", "or the folder of a SavedModel. Received: a folder."),
        ("export shop --model rows.parquet", "Expected a Keras model in rows.parquet"),
        ("export shop --version 1", "Version 1 exists already: models/shop/1."),
        ("export new --html none/plan.html", "Expected a file in a folder that exists."),
        ("export new --golden-rows none.parquet", "Expected golden_rows that a client can send."),
        ("export shop --runtime tenserflow", "Expected runtime among tensorflow, onnx"),
        (
            "export new --option instances=2",
            "Expected --option NAME=VALUE, the name among ",
        ),
        ("export new --option max_row=1", "Did you mean 'max_rows'?"),
        ("export new --option max_rows=x", "Expected max_rows as a whole number from 1."),
        ("serve none", "Expected a model repository."),
        ("serve models --model none", "Expected models among shop in"),
        ("export ../shop", "Expected a name of letters, digits, _ - and ."),
        ("parity ../shop rows.parquet --url 127.0.0.1:1", "Expected a name of letters, digits"),
        ("recover ../shop", "Expected a name of letters, digits"),
        ("verify none", "Expected a model among shop in models. Received: 'none'. Name one of"),
        ("rollback none", "Expected a model among shop in models. Received: 'none'. Name one of"),
        ("show none", "Expected a model among shop in models. Received: 'none'."),
        ("show shop --svg none/shop.svg", "Received: 'none/shop.svg'."),
        ("parity shop rows.parquet --html train", "Received: 'train'."),
        ("bench shop rows.parquet --write-input none/in.json", "Received: 'none/in.json'."),
        ("parity shop rows.parquet", "Expected --url of a running server, or --repository"),
        ("bench shop rows.parquet --url 127.0.0.1:1 --retries 0", "UNAVAILABLE"),
        ("bench shop rows.parquet --url 127.0.0.1:1 --timeout 0", "Expected timeout as seconds"),
        (
            "bench shop rows.parquet --url 127.0.0.1:1 --header a",
            "Expected --header as KEY=VALUE.",
        ),
        ("bench shop x.csv --url 127.0.0.1:1 --header a=@none", "with the value of the header a."),
        ("bench shop x.csv --url 127.0.0.1:1 --private-key k", "begins with grpcs:// or https://"),
        (
            "predict shop x --output o --repository models --header a=b",
            "--url of a running server with",
        ),
        ("openapi shop --header a=b --timeout 3", "with --header, --timeout. Received: no --url."),
        ("export shop --storage-option a=b", "Expected --storage-option with --golden-rows FILE."),
        ("demo train", "Expected a new folder. Received: train, which exists."),
    ],
)
def test_a_mistake_is_one_line(arguments, text):
    assert text in failed(*arguments.split())


@pytest.mark.parametrize(
    ("repository", "received"),
    [
        ("none", "none, no such folder"),
        ("none/deep", "none/deep, no such folder"),
        ("rows.parquet", "the file rows.parquet"),
    ],
)
@pytest.mark.parametrize("command", ["show", "verify", "rollback", "recover", "publish", "openapi"])
def test_a_repository_that_is_no_folder_is_reported(
    command, repository, received, folder, monkeypatch
):
    monkeypatch.setenv("TRITON_ADMIN_KEY", "key")
    url = ["--url", "127.0.0.1:1"] if command == "publish" else []
    text = failed(command, "shop", "--repository", repository, *url)
    assert f"Expected a model repository. Received: {received}. Name the folder of" in text
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    "command", ["show", "verify", "rollback", "recover", "publish", "openapi", "serve"]
)
def test_a_folder_of_one_model_is_no_repository(command, folder, monkeypatch):
    """A server would take the folders of its versions, which have configs, for models."""
    monkeypatch.setenv("TRITON_ADMIN_KEY", "key")
    inside = folder / "models" / "shop"
    url = ["--url", "127.0.0.1:1"] if command == "publish" else []
    words = [inside] if command == "serve" else ["shop", "--repository", inside]
    text = failed(command, *words, *url)
    assert f"Received: {inside}, the folder of one model. Name the folder that it is in: " in text
    assert text.endswith(f": {inside.parent}.\n")


@pytest.mark.parametrize("command", ["show", "verify", "rollback", "recover", "openapi"])
def test_a_model_that_is_not_there_is_reported_with_those_that_are(command, folder):
    text = failed(command, "shap", "--repository", folder / "models")
    assert "Expected a model among shop in " in text
    assert "Received: 'shap'. Did you mean 'shop'?" in text


@pytest.mark.usefixtures("folder")
def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = failed("serve", "models", "--grpc-port", port)
    assert f"Expected a free port. Received: {port}" in text


def test_a_repository_that_is_damaged_is_one_line(folder):
    shutil.copytree(folder / "models", folder / "damaged")
    (folder / "damaged" / "shop" / "config.pbtxt").write_text("nme: 1")
    text = "damaged/shop/config.pbtxt"
    assert text in failed("show", "shop", "--repository", "damaged")
    assert text in failed("serve", "damaged")
    assert text in failed("export", "shop", "--repository", "damaged", "--version", "2")


def test_a_plan_as_a_page_and_golden_rows(folder):
    """And a network that is a SavedModel, which parity takes as well."""
    network = keras.saving.load_model("model.keras")
    save_model(network, "saved")
    options = ["--runtime", "fused_onnx", "--repository", "others", "--html", "plan.html"]
    options += ["--prove", "process"]
    options += ["--option", "network_instances=2", "--option", "network_kind=KIND_CPU"]
    text = done("export", "shop", "--model", "saved", "--golden-rows", "rows.parquet", *options)
    assert "golden_rows the first 8" in " ".join(text.split())
    assert "network_instances 2, network_kind KIND_CPU" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Model shop" in (folder / "plan.html").read_text()
    proof = ["--repository", "others", "--model", "saved", "--rows", "50"]
    assert "Parity passed: shop, 50 rows" in done("parity", "shop", "rows.parquet", *proof)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("export alone --repository alone --prove process", "Ensemble alone, version 1"),
        pytest.param(
            "train train --output alone.keras", "    epoch    seconds", marks=pytest.mark.long
        ),
    ],
)
def test_only_what_a_command_says_is_printed(folder, words, first):
    """In a process of its own, where TensorFlow starts and would tell of it."""
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    alone = {**os.environ, "ENSEMBLE_PROGRESS": "0"}
    alone.pop("TF_CPP_MIN_LOG_LEVEL", None)
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=alone
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(first)


def test_an_error_in_the_users_code(folder):
    (folder / "broken.py").write_text("workflow = 1 / 0")
    assert "ZeroDivisionError: division by zero, in line 1. `ensemble --verbose" in failed(
        "fit", "broken.py", "rows.parquet"
    )
    verbose = ensemble("--verbose", "fit", "broken.py", "rows.parquet")
    assert isinstance(verbose.exception.__cause__, ZeroDivisionError)


def test_an_error_in_a_layer_of_the_users_is_told(folder):
    """Keras puts the reason three lines below."""
    (folder / "layer.py").write_text(LAYER)
    text = "division by zero, in line 3. `ensemble --verbose"
    assert text in failed("fit", "layer.py", "rows.parquet")


def test_a_containers_first_process_ends_when_terminated(folder):
    """Linux ignores a signal for it that it does not handle."""
    (folder / "ends.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)")
    program = "import os\nos.getpid = lambda: 1\nfrom exporter.command_line import main\nmain()"
    command = [sys.executable, "-c", program, "fit", "ends.py", "rows.parquet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_user_without_a_home_gets_no_folder_of_its_sign(tmp_path):
    """As in a container under any number: `rm -r ~` would remove another one."""
    nobody = "import os, pwd\nos.environ.pop('HOME')\npwd.getpwuid = {}.__getitem__\n"
    program = [sys.executable, "-c", nobody + PROGRAM, "train", "nowhere"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("error: Expected the folder of a saved workflow")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("closed", [pytest.param("2>&-", marks=pytest.mark.long), "<&- >&- 2>&-"])
def test_streams_may_be_closed(folder, tmp_path, closed):
    program = [sys.executable, "-c", PROGRAM, "train", "train", "--output", tmp_path / "a.keras"]
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *program]
    assert subprocess.run(shell, cwd=folder, check=False).returncode == 0
    assert (tmp_path / "a.keras").is_file()


def test_wrong_usage_is_exit_code_2():
    assert ensemble("train").exit_code == 2
    assert ensemble("tran").exit_code == 2


@pytest.mark.parametrize("command", [command.__name__ for command in COMMANDS])
def test_help_has_an_example(command):
    text = done(command, "--help")
    assert f"Example: `ensemble {command}" in text.replace("\n", " ")
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.long
def test_the_demo_proves_itself(folder):
    report = json.loads(
        done("demo", "tried", "--rows", "5000", "--runtime", "fused_onnx", "--json")
    )
    page = (folder / report["page"]).read_text()
    assert "Parity passed" in page
    assert 'class="latency"' in page
    assert (report["model"], report["rows"], report["passed"]) == ("movielens", 5_000, True)
    assert [one["rows"] for one in report["latency"]] == [1, 64, 1024]
    assert report["repository"] == "tried/models"
    assert "movielens" in done("show", "movielens", "--repository", "tried/models")
