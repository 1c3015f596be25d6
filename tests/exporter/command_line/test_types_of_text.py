"""CSV and TSV are read in the types of the model, wherever a command or a function takes them."""

import gzip
import json

import keras
import polars as pl
import pytest
from ensemble_command import printed

from exporter import ServingOptions, export_ensemble
from serving import ClientError, EnsembleClient, TritonServer, check_parity, predict_to_parquet
from workflow import Workflow, ops

# One server for all.
pytestmark = pytest.mark.xdist_group("types_of_text")
CODES = ["007"] * 4 + ["7"] * 3 + ["NA"] * 2 + ["1.0"]
# Padding, null and unknown have the first ids, then values by their frequency.
IDS = {"": 1, "007": 3, "7": 4, "NA": 5, "1.0": 6}
# Code, count, day, and a key that the model does not take. All codes of the first file are numbers.
ROWS = [
    ("007", "2", "2024-03-01", "0001"),
    ("7", "", "2024-12-31", "0002"),
    ("1.0", "03", "", "0100"),
    ("", "4", "2023-01-01", "9999"),
    ("08", "5", "2023-01-01", "9998"),
    ("NA", "6", "2023-02-01", "9997"),
]


def answer(code, count, day, _):
    month = int(day.split("-")[1]) if day else 0
    return IDS.get(code, 2) + 100 * int(count or 0) + 10_000 * month


def write(path, rows, separator=","):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        lines = [("code", "count", "day", "key"), *rows]
        file.writelines(separator.join(line) + "\n" for line in lines)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    write(folder / "1.csv", ROWS[:5])
    write(folder / "2.csv", ROWS[5:])
    write(folder / "all.tsv", ROWS, "\t")
    write(folder / "all.csv.gz", ROWS)
    return folder


@pytest.fixture(scope="module")
def made(folder):
    """The workflow and the network of code + 100 * count + 10,000 * month."""
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, 10), eager=True)
    fitted = pl.DataFrame({"code": CODES, "count": range(10), "day": days})
    month = ["day"] >> ops.DatePart(["month"]) >> ops.FillMissing(0)
    columns = (["code"] >> ops.Categorify()) + (["count"] >> ops.FillMissing(0)) + month
    workflow = Workflow(columns).fit(fitted)
    workflow.save(folder / "workflow")
    names = workflow.output_schema.names
    inputs = {name: keras.Input((1,), name=name) for name in names}
    scaled = [
        keras.layers.Rescaling(factor)(inputs[name])
        for name, factor in zip(names, (1.0, 100.0, 10_000.0), strict=True)
    ]
    model = keras.Model(inputs, {"sum": keras.layers.Add(name="sum")(scaled)})
    model.save(folder / "model.keras")
    options = ServingOptions(prove="process", runtime="fused_onnx", golden_rows=folder / "1.csv")
    export_ensemble(model, workflow, "sums", folder / "models", serving=options)
    return workflow, model


@pytest.fixture(scope="module")
def client(folder, made):  # noqa: ARG001 - it needs the files
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "sums") as client,
    ):
        yield client


@pytest.mark.parametrize("files", ["[12].csv", "all.tsv", "all.csv.gz"])
def test_each_value_is_predicted_as_it_is_written(client, folder, tmp_path, files):
    (file,) = predict_to_parquet(client, folder / files, tmp_path / "out", keep=["key", "code"])
    found = pl.read_parquet(file)
    assert found["sum"].to_list() == [answer(*row) for row in ROWS]
    assert found["code"].to_list() == [code or None for code, *_ in ROWS]
    # The key of a row is not another one, although the model does not know its type.
    assert found["key"].to_list() == [key for *_, key in ROWS]
    url = ("--url", client.url, "--output", tmp_path / "by_command")
    printed("predict", "sums", folder / files, "--keep", "key", *url)
    found = pl.read_parquet(tmp_path / "by_command" / "*.parquet")
    assert found.rows() == [(row[-1], answer(*row)) for row in ROWS]


@pytest.mark.parametrize("files", ["1.csv", "all.tsv"])
def test_parity_compares_the_values_of_the_file(client, folder, made, monkeypatch, files):
    report = check_parity(client, *made, folder / files)
    assert report.passed
    assert report.rows == (5 if files == "1.csv" else 6)
    monkeypatch.chdir(folder)
    url = ("--url", client.url, "--rows", 4, "--html", "parity.html")
    assert json.loads(printed("parity", "sums", files, *url, "--json"))["rows"] == 4


def test_bench_sends_the_values_of_the_file(client, folder, tmp_path):
    requests = tmp_path / "requests.json"
    printed("bench", "sums", folder / "1.csv", "--url", client.url, "--write-input", requests)
    sent = [request["code"] for request in json.loads(requests.read_text())["data"]]
    # A null travels as a byte that is no text.
    assert [code["content"][0] for code in sent if isinstance(code["content"], list)] == [
        *("007", "7", "1.0", "08")
    ]


@pytest.mark.parametrize("name", ["code", "count", "day"])
def test_a_column_without_values_is_null(client, tmp_path, name):
    place = ("code", "count", "day").index(name)
    rows = [(*row[:place], "", *row[place + 1 :]) for row in ROWS]
    path = write(tmp_path / "a.csv", rows)
    (file,) = predict_to_parquet(client, path, tmp_path / "out")
    assert pl.read_parquet(file)["sum"].to_list() == [answer(*row) for row in rows]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (("7", "many", "", ""), "Expected int64.* in column 'count'.*Received: 'many' in line 3"),
        (
            ("7", "1", "NA", ""),
            "Expected date.* in column 'day'.*'NA' in line 3.*--null-value WORD",
        ),
        (("7", "1", "3/1/2024", ""), "Expected date.* in column 'day'.*'3/1/2024' in line 3"),
        (("7", "1.5", "", ""), "count"),
    ],
)
def test_values_of_other_types_are_named(client, tmp_path, made, row, text):
    path = write(tmp_path / "a.csv", [ROWS[0], row])
    with pytest.raises(ClientError, match=text):
        predict_to_parquet(client, path, tmp_path / "out")
    with pytest.raises((ClientError, ValueError), match=text):
        check_parity(client, *made, path)
    assert not (tmp_path / "out").exists()
