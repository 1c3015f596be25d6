"""Each argument of the Python functions is an option of its command, but for the named ones."""

import inspect
import json
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from itertools import islice

import polars as pl
import pytest
from ensemble_command import PROGRAM
from typer.testing import CliRunner

import exporter
from exporter.command_line.app import make_app
from exporter.command_line.guard import CommandError
from exporter.command_line.words import answer, pairs, values
from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import measure_latency
from exporter.repository.versions import recover_repository
from loader import KerasSequenceLoader
from serving import (
    EnsembleClient,
    Tls,
    TritonServer,
    check_parity,
    predict_to_parquet,
    write_perf_analyzer_input,
)
from serving.embedded.publication import LiveServer
from serving.openapi import openapi_document
from training import train
from workflow import Workflow, generate_dataset, inspect_dataset

# Of every command: what is an argument there, or an option of `ensemble` itself.
EVERYWHERE = {"self", "progress", "folder"}
# Its arguments are options of each command that has one.
OF_SERVER = {"client"}
# Option of the command: argument of the function.
NAMES = {
    "storage_option": "storage_options",
    "label": "labels",
    "metric": "metrics",
    "weighted_metric": "weighted_metrics",
    "loss_weight": "loss_weights",
    "model": "models",
    "repository": "model_repository",
    "name": "model_name",
    "header": "headers",
    "generate": "path",
    "scheduler": "client",
}
FUNCTIONS = [
    # The schema comes from `_schema.json` beside the files.
    ("fit", Workflow.fit, {"schema"}),
    # The workflow is saved to `--output`.
    ("fit", Workflow.fit_transform_to_parquet, {"schema", "save_to"}),
    ("transform", Workflow.transform_to_parquet, set()),
    # Python objects, or printed always.
    ("train", train, {"train_data", "validation_data", "callbacks", "workers", "verbose"}),
    (
        "train",
        KerasSequenceLoader,
        # The workflow's schema says which columns are features, of which form. Several workers need
        # a program of their own.
        {"paths_or_dataset", "label_names", "cat_names", "cont_names", "feature_columns", "schema"}
        | {"sparse_names", "sparse_max", "sparse_as_dense", "engine", "seed_fn", "reader_kwargs"}
        | {"global_size", "global_rank"},
    ),
    # The paths `--repository` and `--model`; ServingOptions are `--option NAME=VALUE`.
    ("export", exporter.export_ensemble, {"path", "network", "serving"}),
    ("serve", TritonServer, {"admin_key"}),
    ("parity", check_parity, OF_SERVER),
    ("predict", predict_to_parquet, OF_SERVER),
    # The rows are in `data`; `--write-input` is the path.
    ("bench", measure_latency, OF_SERVER | {"frame", "rows"}),
    ("bench", write_perf_analyzer_input, OF_SERVER | {"path"}),
    # The contract is that of the model.
    ("openapi", openapi_document, {"contract"}),
    # The certificates of `Tls` are options of their own.
    *((name, EnsembleClient, {"tls"}) for name in ("predict", "parity", "bench")),
    ("openapi", EnsembleClient, {"tls", "shared_memory"}),
    *((name, Tls, set()) for name in ("predict", "parity", "bench", "openapi")),
    ("inspect", inspect_dataset, set()),
    # What was inspected before.
    ("inspect", generate_dataset, {"inspection"}),
    # The key is in the environment, and `--timeout` the seconds.
    ("publish", LiveServer, {"admin_key", "seconds"}),
    ("publish", LiveServer.publish, set()),
    ("recover", recover_repository, set()),
    ("show", EnsembleDrawing.read, set()),
    ("verify", exporter.verify, set()),
    ("rollback", exporter.rollback, set()),
]


def run(*arguments):
    return CliRunner().invoke(make_app(), [*map(str, arguments)])


def parameters(command):
    (callback,) = (
        c.callback for c in make_app().registered_commands if c.callback.__name__ == command
    )
    return inspect.signature(callback).parameters


def options(command):
    found = set(parameters(command))
    return found | {NAMES[name] for name in found & set(NAMES)}


@pytest.mark.parametrize(("command", "function", "absent"), FUNCTIONS)
def test_each_argument_is_an_option(command, function, absent):
    arguments = set(inspect.signature(function).parameters) - EVERYWHERE
    assert arguments - options(command) == absent


# Runs of a command are repeatable, and its server is found where Triton's is, and repairs itself.
OWN_DEFAULTS = {"seed", "grpc_port", "http_port", "metrics_port", "heal"}


@pytest.mark.parametrize(("command", "function"), [row[:2] for row in FUNCTIONS])
def test_an_option_has_the_default_of_its_argument(command, function):
    arguments = inspect.signature(function).parameters
    own = {name: option.default for name, option in parameters(command).items()}
    for name in own.keys() & arguments.keys() - OWN_DEFAULTS:
        # None of an option stands for what Python does.
        if {own[name], arguments[name].default}.isdisjoint({None, inspect.Parameter.empty}):
            assert own[name] == arguments[name].default, name


def test_each_command_is_compared_with_its_functions():
    # These have no function of their own: they call those of the others, or print.
    alone = {"demo", "init", "watch"}
    commands = {command.callback.__name__ for command in make_app().registered_commands}
    assert commands - {row[0] for row in FUNCTIONS} == alone


def test_each_command_that_takes_text_has_null_value():
    # The others read transformed parquet, or no data at all.
    reads = {"inspect", "fit", "transform", "predict", "parity", "bench", "export"}
    for command in make_app().registered_commands:
        name = command.callback.__name__
        assert ("null_value" in options(name)) == (name in reads), name


def test_each_command_whose_output_a_script_reads_has_json():
    # The others serve, or write JSON always.
    without = {"serve", "openapi"}
    for command in make_app().registered_commands:
        name = command.callback.__name__
        assert ("as_json" in options(name)) == (name not in without), name


def test_an_answer_as_json_has_no_nan(capsys):
    answer(True, "text", a=[float("nan"), 1.5, -float("inf")], b={"c": None}, d=True)
    assert json.loads(capsys.readouterr().out) == {
        "a": [None, 1.5, None],
        "b": {"c": None},
        "d": True,
    }


def test_pairs_are_read():
    assert pairs(["a=b=c", "d="], "--x") == {"a": "b=c", "d": ""}
    assert pairs(None, "--x") is None
    with pytest.raises(
        CommandError, match=r"Expected --o NAME=VALUE, the name among a\. Received: 'a'"
    ):
        values(["a"], {"a": "int"}, "--o")
    for word in ("a", "=b"):
        with pytest.raises(CommandError, match=f"Expected --x as KEY=VALUE. Received: '{word}'"):
            pairs([word], "--x")
    with pytest.raises(CommandError, match=r"Expected --x once for a\. Received: twice\."):
        pairs(["a=1", "b=2", "a=1"], "--x")
    with pytest.raises(CommandError, match=r"Expected --o once for a\. Received: twice\."):
        values(["a=1", "a=2"], {"a": "int"}, "--o")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"a": range(1000)}).write_parquet("rows.parquet")
    pl.DataFrame({"a": range(5)}).write_csv("rows.csv")
    (tmp_path / "flow.py").write_text("from workflow import Workflow\nworkflow = Workflow(['a'])\n")
    (tmp_path / "fails.py").write_text("ratio = 1\nratio /= 0\n")
    (tmp_path / "syntax.py").write_text("def x(:\n")
    (tmp_path / "lacks.py").write_text("import no_such_module\n")
    (tmp_path / "own.py").write_text("from workflow import ops\nops.Clip(min_value='0')\n")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_rows_are_shuffled_and_files_are_cut():
    words = ("--rows-per-file", 300, "--shuffle", "--seed", 3, "--compression", "zstd", "--json")
    found = json.loads(
        run("fit", "flow.py", "rows.parquet", "--transform-to", "train", *words).stdout
    )
    assert found["workflow"] == "workflow"
    assert found["columns"] == {"a": "int64"}
    files = [pl.read_parquet(file) for file in found["files"]]
    assert [file.height for file in files] == [300, 300, 300, 100]
    rows = pl.concat(files)["a"].to_list()
    assert rows != sorted(rows)
    assert sorted(rows) == list(range(1000))
    # The same seed gives the same order, from `transform` as well.
    again = json.loads(run("transform", "rows.parquet", "--output", "again", *words).stdout)
    assert pl.read_parquet(again["files"])["a"].to_list() == rows
    text = json.loads(run("transform", "rows.csv", "--output", "text", "--json").stdout)
    assert pl.read_parquet(text["files"])["a"].to_list() == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("fit flow.py rows.parquet --shuffle", "Expected --transform-to FOLDER"),
        ("fit flow.py rows.parquet --storage-option a", "--storage-option as KEY=VALUE"),
        ("fit flow.py rows.parquet --storage-option a=b", "with paths such as s3:"),
        ("transform rows.parquet --output x --compression gzip --workflow flow", "flow"),
        ("export x --sparse-max a=b --workflow workflow", "workflow"),
        ("export x --option runtime=onnx", "the name among"),
        ("init rows.parquet", "Expected a new folder, or an empty one. Received: 'rows.parquet'."),
        ("init .", "Received: '.'."),
        ("init s3://shop/new", "Expected a path of this machine. Received: 's3://shop/new'."),
        ("fit flow.py rows.parquet --null-value NA", "Expected CSV or TSV with --null-value."),
        ("inspect none.csv --null-value NA", "No file matches 'none.csv'."),
        ("export x --null-value NA", "Expected --null-value with --golden-rows FILE."),
        ("init x --name a/b", "Expected a name of letters"),
        (
            "fit fails.py rows.parquet",
            "fails.py to run. Received: ZeroDivisionError: division by zero, in line 2.",
        ),
        ("fit syntax.py rows.parquet", "Expected syntax.py to run. Received: SyntaxError: "),
        (
            "fit lacks.py rows.parquet",
            "lacks.py to run. Received: ModuleNotFoundError: No module named",
        ),
        (
            "fit lacks:flow rows.parquet",
            "Expected lacks to run. Received: ModuleNotFoundError: No mod",
        ),
        ("fit own.py rows.parquet", "error: Clip needs "),
        ("fit :flow rows.parquet", "Expected a Python file, or module:attribute. Received: ''"),
        ("inspect rows.parquet --column A", "Received: 'A'. Did you mean 'a'?"),
        (
            "inspect rows.parquet --html .",
            "Expected a file in a folder that exists. Received: '.'.",
        ),
        ("watch 127.0.0.1:1 --once", "Connection refused. By default metrics are on port 8002."),
        ("serve . --grpc-port 8100 --http-port 8100", "Expected different ports"),
        (
            "serve . --startup-timeout 0",
            "startup_timeout as seconds above 0 and up to 1e9. Received: 0.0.",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments, text):
    result = run(*arguments.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://host", "grpcs://host:8001"])
def test_publish_names_the_kind_of_address_that_it_needs(url, monkeypatch):
    monkeypatch.setenv("TRITON_ADMIN_KEY", "key")
    text = run("publish", "shop", "--url", url).stderr
    assert "Expected the address of gRPC without TLS, host:port, by default of port 8001" in text
    assert url in text


LONG = f"verify {'x' * 90} --repository {'y' * 20}"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("verify none", "ExportError"),
        ("fit none.py rows.parquet", "CommandError"),
        ("inspect none.parquet", "WorkflowError"),
        (LONG, "ExportError"),
    ],
)
def test_an_error_as_json_is_the_object_on_standard_output(command, kind):
    as_text, as_json = run(*command.split()), run(*command.split(), "--json")
    assert (as_json.exit_code, as_json.stderr) == (1, "")
    assert json.loads(as_json.stdout) == {
        "error": as_text.stderr.removeprefix("error: ").rstrip("\n"),
        "type": kind,
    }


def test_watch_as_json_needs_an_end():
    result = run("watch", "--json")
    assert result.exit_code == 1
    text = "Expected --once with --json. Received: --json alone."
    assert json.loads(result.stdout)["error"].startswith(text)


@pytest.mark.parametrize("command", ["fit none.py rows.parquet --transform-to x --seed 1", LONG])
def test_an_error_is_wrapped_at_words_in_a_terminal(command, folder):
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", PROGRAM, *command.split()]
    environment = os.environ | {"COLUMNS": "50", "NO_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run(words, stderr=theirs, env=environment, cwd=folder, check=False)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # at the end, since nobody else has the terminal
        while True:
            written += os.read(ours, 10_000)
    os.close(ours)
    lines = re.sub(r"\x1b\[\d*m", "", written.decode()).splitlines()
    assert done.returncode == 1
    assert len(lines) > 1
    assert all(len(line) <= 50 or " " not in line for line in lines)
    assert " ".join(line.strip() for line in lines) == run(*command.split()).stderr.strip()


def test_the_columns_of_a_fit_are_wrapped(folder):
    names = [f"column_{number}" for number in range(20)]
    pl.DataFrame([range(20)], schema=names, orient="row").write_parquet("wide.parquet")
    code = f"from workflow import Workflow\nworkflow = Workflow({names})\n"
    (folder / "wide.py").write_text(code)
    text = run("fit", "wide.py", "wide.parquet").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(text.split()).endswith(", ".join(names))


def test_no_data_is_written_without_its_workflow(folder):
    """A folder with a user's files cannot take the workflow."""
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("")
    options = ("--output", "mine", "--transform-to", "new_data")
    result = run("fit", "flow.py", "rows.parquet", *options)
    assert result.exit_code == 1
    assert "mine" in result.stderr
    assert not (folder / "new_data").exists()


def test_a_folder_with_data_is_refused_before_the_fit(folder):
    """A new workflow is not saved beside the data of another one."""
    run("fit", "flow.py", "rows.parquet", "--output", "first", "--transform-to", "taken")
    result = run("fit", "flow.py", "rows.parquet", "--output", "second", "--transform-to", "taken")
    assert result.exit_code == 1
    assert "holds parquet files already" in result.stderr
    assert not (folder / "second").exists()


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "exporter.command_line", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"parquet-to-triton {version('parquet-to-triton')}\n"


@pytest.mark.usefixtures("folder")
def test_a_cluster_fits_and_transforms():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, dashboard_address=None, processes=False) as cluster:
        words = ("--scheduler", cluster.scheduler_address)
        fitted = run("fit", "flow.py", "rows.parquet", "--transform-to", "train", *words)
        assert fitted.exit_code == 0, fitted.output
        made = run("transform", "rows.parquet", "--output", "again", *words)
        assert made.exit_code == 0, made.output
        text = run("transform", "rows.csv", "--output", "text", *words)
    assert pl.read_parquet("train/*.parquet")["a"].to_list() == list(range(1000))
    assert pl.read_parquet("again/*.parquet")["a"].to_list() == list(range(1000))
    # What one process reads, the workers of a cluster may not: the client has reached it.
    assert "Expected paths of parquet that the cluster's workers can read" in text.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_said(address, monkeypatch):
    monkeypatch.setattr("exporter.command_line.transformed.CONNECT", 0.2)
    result = run("fit", "flow.py", "rows.parquet", "--scheduler", address)
    assert result.exit_code == 1
    text = f"of a running scheduler, as `dask scheduler` prints it. Received: {address}"
    assert text in result.stderr
    assert not os.path.exists("workflow")  # noqa: PTH110


def test_progress_is_one_line_of_a_log():
    """absl, which TensorFlow imports, has a handler of all logs."""
    code = """
import logging, sys
from exporter.command_line import main
logging.basicConfig(level="INFO")
sys.argv = ["ensemble", "--version"]
try:
    main()
except SystemExit:
    logging.getLogger("workflow.progress").info("fit 50%")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split(" ", 2)[2] for line in done.stderr.splitlines()] == ["fit 50%"]


@pytest.mark.parametrize("home", ["/proc/none", "/dev/null"])
def test_completion_without_a_home_is_one_line(home):
    # Typer looks at the parents of the program for the kind of shell.
    words = ["bash", "-c", f'{sys.executable} -c "{PROGRAM}" --install-completion; exit $?']
    environment = os.environ | {"HOME": home}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: Expected to be able to write the completion of your shell")
    assert home in line
    assert "--show-completion" in line


METRICS = """nvt_input_values_total{model="shop",version="1",column="age"} 60000
nvt_input_nulls_total{model="shop",version="1",column="age"} 40000
nvt_training_null_ratio{model="shop",version="1",column="age"} 0.1
"""


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, *_):
        """Nothing on standard error."""


def test_deviations_as_json():
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        result = run("watch", address, "--once", "--json")
        server.shutdown()
    # Four in ten are null, where one in ten was.
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["inputs"]
    assert (found["column"], found["figure"], found["deviates"]) == ("age", "nulls", True)
    assert (found["served"], found["expected"]) == (0.4, 0.1)


def test_watch_without_a_terminal_prints_each_look_and_ends_with_its_reader():
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["watch", f"127.0.0.1:{server.server_address[1]}", "--interval", "0.5"]
        command = [sys.executable, "-c", PROGRAM, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = "".join(islice(process.stdout, 12))
            process.stdout.close()
            process.wait(60)
        server.shutdown()
    # The figures since the start, then those since the look before.
    assert "requests " in lines
    assert "requests/s " in lines
