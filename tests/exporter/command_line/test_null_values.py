"""Words for null in CSV and TSV, at each command that takes data, and an output that nobody reads."""

import csv
import json
import subprocess
import sys

import keras
import polars as pl
import pytest
from ensemble_command import PROGRAM, ensemble, printed

from exporter import ServingOptions, export_ensemble
from serving import TritonServer
from workflow import Workflow

# One server for all.
pytestmark = pytest.mark.xdist_group("null_values")
# Nobody's delay is 0 or -99, so that null cannot be taken for a value.
ROWS = [("UA", "2", "1400"), ("AA", "NA", "1416"), ("NA", "-4", "n/a"), ("UA", "", "762")] * 3
DEFINITION = """
from workflow import Workflow, ops
delay = ["delay"] >> ops.FillMissing(-99)
workflow = Workflow(delay + (["distance"] >> ops.FillMissing(7)) + (["carrier"] >> ops.Categorify()))
"""
NULLS = ("--null-value", "NA", "--null-value", "n/a")


def number(text, otherwise):
    return otherwise if text in ("", "NA", "n/a") else int(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nulls")
    for name, delimiter in (("flights.csv", ","), ("flights.tsv", "\t")):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(
                [("carrier", "delay", "distance"), *ROWS]
            )
    (folder / "features.py").write_text(DEFINITION)
    return folder


@pytest.fixture
def here(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    return tmp_path


@pytest.mark.parametrize("file", ["flights.csv", "flights.tsv"])
def test_words_are_null_in_fit_and_transform(here, file):
    refused = ensemble("fit", "features.py", file, "--output", here / "flow")
    assert refused.exit_code == 1
    assert "pass --null-value NA to the command, or in Python polars.scan_csv(" in refused.stderr
    assert "null_values=['NA'], infer_schema_length=None)" in refused.stderr
    flow = here / "flow"
    printed("fit", "features.py", file, *NULLS, "--output", flow, "--transform-to", here / "train")
    printed("transform", file, *NULLS, "--workflow", flow, "--output", here / "again")
    # Null is 1; the most frequent carrier has the first id after those of padding, null and unknown.
    expected = [
        (number(delay, -99), number(distance, 7), {"NA": 1, "UA": 3, "AA": 4}[carrier])
        for carrier, delay, distance in ROWS
    ]
    for made in ("train", "again"):
        assert pl.read_parquet(here / made / "*.parquet").rows() == expected
    without = ensemble("transform", file, "--workflow", flow, "--output", here / "no")
    assert "Received: 'NA' in line 3 of" in without.stderr
    assert "pass --null-value WORD to the command" in without.stderr
    # One word was given, and another one is in the file.
    other = ensemble("fit", "features.py", file, "--null-value", "NA", "--output", here / "no")
    assert "'n/a' in line 4" in other.stderr


def test_words_are_null_in_inspect(here):
    printed("inspect", "flights.csv", *NULLS, "--save", here / "facts.json")
    facts = {c["name"]: c for c in json.loads((here / "facts.json").read_text())["columns"]}
    assert [facts[name]["nulls"] for name in ("carrier", "delay", "distance")] == [3, 6, 3]


@pytest.fixture(scope="module")
def served(folder):
    """The address of a model that answers delay + 2 * distance."""
    (folder / "two.py").write_text(DEFINITION.replace(' + (["carrier"] >> ops.Categorify())', ""))
    flow = folder / "flow"
    printed("fit", folder / "two.py", folder / "flights.csv", *NULLS, "--output", flow)
    workflow = Workflow.load(flow)
    inputs = {name: keras.Input((1,), name=name) for name in ("delay", "distance")}
    twice = keras.layers.Rescaling(2.0)(inputs["distance"])
    model = keras.Model(inputs, {"sum": keras.layers.Add(name="sum")([inputs["delay"], twice])})
    model.save(folder / "model.keras")
    options = ServingOptions(prove="process")
    export_ensemble(model, workflow, "flights", folder / "models", serving=options)
    with TritonServer(folder / "models") as server:
        yield server.grpc_url


def test_words_are_null_in_predict_parity_and_bench(here, served):
    url = ("--url", served)
    scores = here / "scores"
    words = ("--keep", "carrier", "--keep", "delay", *NULLS, *url)
    text = printed("predict", "flights", "flights.csv", "--output", scores, *words)
    # The words that Polars can read, beside `_schema.json`; a longer line than 80 columns goes on.
    assert " ".join(text.split()) == f"{scores}/*.parquet: 12 rows of carrier, delay, sum"
    found = pl.read_parquet(text.split(":")[0])
    sums = [number(delay, -99) + 2 * number(distance, 7) for _, delay, distance in ROWS]
    assert found["sum"].to_list() == sums
    assert found["carrier"].to_list() == [None if c == "NA" else c for c, _, _ in ROWS]
    assert found["delay"].to_list() == [number(delay, None) for _, delay, _ in ROWS]
    proof = ("--workflow", "flow", "--model", "model.keras", "--no-html", *NULLS, *url, "--json")
    report = json.loads(printed("parity", "flights", "flights.csv", *proof))
    assert (report["passed"], report["rows"]) == (True, 12)
    requests = here / "requests.json"
    printed("bench", "flights", "flights.csv", *NULLS, *url, "--write-input", requests)
    assert len(json.loads(requests.read_text())["data"]) == 12
    unknown = ensemble(
        *("predict", "flights", "flights.csv", "--output", here / "no", *NULLS, *url),
        *("--keep", "carier"),
    )
    assert unknown.exit_code == 1
    assert "Expected --keep (keep= in Python) to name columns of the data." in unknown.stderr
    assert "Received: 'carier'. Did you mean 'carrier'?" in unknown.stderr


@pytest.mark.usefixtures("served")
def test_golden_rows_of_an_export_have_nulls(here):
    words = ("--repository", here / "models", "--no-html", "--prove", "process")
    golden = ("--golden-rows", "flights.csv", "--workflow", "flow", "--model", "model.keras")
    assert "'NA'" in ensemble("export", "flights", *words, *golden).stderr
    printed("export", "flights", *words, *golden, *NULLS)


def test_an_output_that_nobody_reads_ends_quietly(here):
    command = [sys.executable, "-c", PROGRAM, "inspect", "flights.csv", *NULLS]
    files = ["--save", str(here / "facts.json"), "--html", str(here / "facts.html")]
    with subprocess.Popen(
        [*command, *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 141)
    # The files are whole.
    assert len(json.loads((here / "facts.json").read_text())["columns"]) == 3
    assert (here / "facts.html").read_text().rstrip().endswith("</html>")
