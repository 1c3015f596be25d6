"""Tables larger than what a model takes at once, and tables of requests for perf_analyzer."""

import base64
import json
import shutil
from dataclasses import replace

import numpy as np
import onnx
import polars as pl
import pytest
from echo_model import served_echo
from onnx import TensorProto, helper
from polars.testing import assert_frame_equal

from serving import ClientError, ColumnError, EnsembleClient, write_perf_analyzer_input
from serving.contract import Contract
from serving.exchange import SPARE_PADDING, to_requests, to_table
from serving.perf_analyzer import json_content
from workflow.schema.column import Column
from workflow.wire.format import WireColumn, dump_columns

COLUMNS = (
    WireColumn("id", "int64", nullable=True),
    WireColumn("score", "float32", nullable=True),
    WireColumn("name", "string", nullable=True),
    WireColumn("recent", "int64", "padded", nullable=True),
)
ROWS = pl.DataFrame(
    {
        "id": [*range(10), None],
        "score": pl.Series([0.5, None, *range(9)], dtype=pl.Float32),
        "name": [" ", "", "Krimi ü", *"abcdefgh"],
        "recent": [[7] * length for length in (0, 1, 2, 20, 0, 3, 9, 8, 1, 0)] + [None],
    }
)
BACK = ROWS.with_columns(pl.col("recent").fill_null([]), pl.col("score"))
SUFFIX = "_back"


@pytest.fixture(scope="module")
def batched(server, repository):
    """A model that gives back what it takes, at most four rows at once."""
    folder = repository / "batched"
    (folder / "1").mkdir(parents=True)
    kinds = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT, "string": TensorProto.STRING}
    tensors, infos = [], {"input": [], "output": []}
    for column in COLUMNS:
        for name, dtype in column.tensors.items():
            width = column.shapes[name][1]
            for kind, suffix in (("input", ""), ("output", SUFFIX)):
                shape = ["N", width if width > 0 else "L"]
                made = helper.make_tensor_value_info(name + suffix, kinds[dtype], shape)
                infos[kind].append(made)
                config = {"int64": "INT64", "float32": "FP32", "string": "STRING"}[dtype]
                tensors.append(
                    f'{kind} [{{ name: "{name}{suffix}" data_type: TYPE_{config} dims: [{width}] }}]'
                )
    nodes = [
        helper.make_node("Identity", [one.name], [one.name + SUFFIX]) for one in infos["input"]
    ]
    graph = helper.make_graph(nodes, "graph", infos["input"], infos["output"])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=9),
        str(folder / "1" / "model.onnx"),
    )
    text = dump_columns(COLUMNS).replace('"', '\\"')
    parameters = {"inputs": text, "outputs": text, "output_suffix": SUFFIX}
    (folder / "config.pbtxt").write_text(
        'backend: "onnxruntime" max_batch_size: 4\n'
        + "\n".join(tensors)
        + "\ninstance_group [{ kind: KIND_CPU count: 1 }]\n"
        + "".join(
            f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
            for name, value in parameters.items()
        )
    )
    server.load("batched")
    with EnsembleClient(server.grpc_url, "batched") as client:
        yield client
    server.unload("batched")
    shutil.rmtree(folder)


def test_more_rows_than_the_model_takes_at_once(batched):
    assert batched.contract.max_rows == 4
    assert_frame_equal(batched.predict(ROWS), BACK)
    assert_frame_equal(batched.predict(ROWS.head(4)), BACK.head(4))
    assert_frame_equal(batched.predict(ROWS.clear()), BACK.clear())
    pandas = ROWS.to_pandas().set_index(np.arange(11) * 2)
    answer = batched.predict(pandas)
    assert answer.index.tolist() == pandas.index.tolist()
    assert answer["recent"].tolist() == BACK["recent"].to_list()


@pytest.mark.parametrize("size", [1, 2, 10, 11, 12])
@pytest.mark.parametrize("layout", ["flat", "padded", "fixed"])
def test_parts_join_to_the_whole(size, layout):
    width = 20 if layout == "fixed" else None
    columns = (*COLUMNS[:3], replace(COLUMNS[3], layout=layout, width=width))
    whole = Contract(columns, columns, (), "", {})
    parts = replace(whole, limits={"max_rows": size})
    rows = ROWS.with_columns(name=pl.col("name").replace("a", None))
    requests = to_requests(parts, rows)
    assert len(requests) == -(-11 // size)
    expected = to_table(whole, rows, to_requests(whole, rows))
    assert expected["name"].null_count() == 1
    assert_frame_equal(to_table(parts, rows, requests), expected)


def uneven(lengths):
    ends = np.cumsum(lengths).tolist()
    spans = list(zip([0, *ends], ends, strict=False))
    return {
        "recent": pl.Series([list(range(*span)) for span in spans], dtype=pl.List(pl.Int64)),
        "name": [[str(n) for n in range(*span)] for span in spans],
        "id": list(range(len(lengths))),
    }


UNEVEN = {
    "the first": [100_000] + [5] * 63,
    "the last": [5] * 63 + [100_000],
    "two": [5] * 20 + [100_000] + [0] * 20 + [90_000] + [5] * 22,
    "in a large table": [3] * 9_000 + [200_000] + [3] * 999,
}


@pytest.mark.parametrize("lengths", UNEVEN.values(), ids=UNEVEN)
@pytest.mark.parametrize("row_limit", [0, 50])
def test_one_long_list_does_not_widen_all_rows(lengths, row_limit):
    """64 rows with a list of 100,000 would be 6.4 million values where there are 0.1 million."""
    columns = (WireColumn("id", "int64"), COLUMNS[3], WireColumn("name", "string", "padded"))
    contract = Contract(columns, columns, (), "", {}, limits={"max_rows": row_limit})
    rows = uneven(lengths)
    requests = to_requests(contract, rows)
    assert len(requests) <= len(lengths) / (row_limit or len(lengths)) + 5
    for request in requests:
        elements = sum(int(request[name + "__nnzs"].sum()) for name in ("recent", "name"))
        assert len(request["id"]) == 1 or request["recent"].size <= 4 * elements + 2 * SPARE_PADDING
    found = [to_table(contract, pl.DataFrame(), [request]) for request in requests]
    assert_frame_equal(pl.concat(found), pl.DataFrame(rows).select("id", "recent", "name"))


def test_lists_of_about_one_length_travel_together():
    columns = (COLUMNS[3], WireColumn("kept", "int64", "padded", width=4))
    rows = {"recent": [[1] * (n % 200) for n in range(4_096)], "kept": [[1]] * 4_095 + [[1] * 9**6]}
    (request,) = to_requests(Contract(columns, columns, (), "", {}), rows)
    assert request["recent"].shape == (4_096, 256)
    assert request["kept"].shape == (4_096, 4)


@pytest.mark.parametrize("layout", ["flat", "padded"])
def test_the_places_of_lists_are_found_once_for_all_parts(layout, monkeypatch):
    asked, offsets = [], Column.offsets
    monkeypatch.setattr(Column, "offsets", lambda own: asked.append(own) or offsets(own))
    columns = (WireColumn("a", "int64", layout), WireColumn("b", "int64", layout))
    contract = Contract(columns, columns, (), "", {}, limits={"max_rows": 1})
    assert len(to_requests(contract, {"a": [[1]] * 100, "b": [[]] * 100})) == 100
    assert len(asked) == 2


def test_the_smaller_limit_counts():
    assert Contract((), (), (), "", {}, max_batch_size=8, limits={"max_rows": 3}).max_rows == 3
    assert Contract((), (), (), "", {}, max_batch_size=8).max_rows == 8
    assert Contract((), (), (), "", {}).max_rows == 0


def test_a_file_for_perf_analyzer(batched, tmp_path):
    path = tmp_path / "input.json"
    assert write_perf_analyzer_input(batched, ROWS, path) == 11
    document = json.loads(path.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    requests = document["data"]
    assert len(requests) == 11
    assert "validation_data" not in document  # It has an output whose shape is open.
    assert requests[2]["name"] == {"content": ["Krimi ü"], "shape": [1]}
    nan = base64.b64decode(requests[1]["score"]["content"]["b64"])
    assert np.isnan(np.frombuffer(nan, np.float32)).tolist() == [True]
    assert requests[3]["recent"] == {"content": [7] * 20 + [0] * 12, "shape": [32]}
    assert requests[3]["recent__nnzs"] == {"content": [20], "shape": [1]}
    with pytest.raises(ClientError, match="Expected rows to write"):
        write_perf_analyzer_input(batched, ROWS.clear(), path)


def test_answers_are_expected_only_where_that_is_asked_for(server, repository, tmp_path):
    """perf_analyzer compares bits, which are not the same where requests are joined."""
    path = tmp_path / "input.json"
    rows = {"x": np.array([0.5, 0.25], np.float32)}
    with (
        served_echo(server, repository, "halves"),
        EnsembleClient(server.grpc_url, "halves") as client,
    ):
        assert write_perf_analyzer_input(client, rows, path) == 2
        asked = json.loads(path.read_text())
        assert write_perf_analyzer_input(client, rows, path, validation_data=False) == 2
    expected = [{"y": {"content": [value], "shape": [1]}} for value in (0.5, 0.25)]
    assert asked["validation_data"] == expected
    assert json.loads(path.read_text()) == {"data": asked["data"]}


def test_an_answer_that_is_no_text():
    """Null among strings is a byte that no text has; a dict is answered with the bytes."""
    columns = (WireColumn("name", "string"), WireColumn("word", "string", nullable=True))
    contract = Contract(columns, columns, (), "", {})
    null, broken = (np.array([[b"\xc3\xbc"], [code]], object) for code in (b"\xff", b"\xfe"))
    asked = {"name": ["a", "b"], "word": ["a", "b"]}
    arrays = to_table(contract, asked, [{"name": broken, "word": null}])
    assert arrays["name"].tolist() == [["ü"], [b"\xfe"]]
    assert arrays["word"].tolist() == [["ü"], [b"\xff"]]
    frame = pl.DataFrame(asked)
    for table in (frame, frame.to_pandas()):
        with pytest.raises(ClientError, match=r"'name' holds bytes.*not UTF-8\. Send a dict"):
            to_table(contract, table, [{"name": broken, "word": null}])
    answer = to_table(contract, frame, [{"name": null[:1].repeat(2, 0), "word": null}])
    assert answer["word"].to_list() == ["ü", None]


def test_what_json_cannot_hold_is_in_base64():
    null = np.array([[b"\xff"], ["ü"]], object)
    assert base64.b64decode(json_content(null)["b64"]) == b"\1\0\0\0\xff\2\0\0\0\xc3\xbc"
    infinite = json_content(np.array([[np.inf]], np.float32))
    assert base64.b64decode(infinite["b64"]) == np.float32(np.inf).tobytes()


def test_rows_are_a_dimension_where_requests_stay_alone(server, tmp_path):
    path = tmp_path / "input.json"
    rows = {"userId": [7], "age": [1.5], "genres": [["Drama", "War"]]}
    with EnsembleClient(server.grpc_url, "movies") as client:
        write_perf_analyzer_input(client, rows, path)
    (request,) = json.loads(path.read_text())["data"]
    assert request["genres__values"] == {"content": ["Drama", "War"], "shape": [2, 1]}
    assert request["age"] == {"content": [1.5], "shape": [1, 1]}


@pytest.mark.parametrize("layout", ["flat", "padded"])
@pytest.mark.parametrize(
    ("values", "reason", "limit"),
    [
        ({"tags": [["a"], ["a"] * 4]}, "tags has a list of more than 3", "list_length"),
        ({"tags": [["a"], ["é", "éé"]]}, "tags has a string of more than 3 bytes", "string_bytes"),
        ({"word": ["four", "a"]}, "word has a string of more than 3 bytes", "string_bytes"),
    ],
)
def test_what_the_server_would_refuse_is_not_sent(layout, values, reason, limit):
    columns = (WireColumn("tags", "string", layout), WireColumn("word", "string", nullable=True))
    limits = {"max_rows": 1, "max_list_length": 3, "max_string_bytes": 3}
    contract = Contract(columns, (), (), "", {}, limits=limits)
    within = {"tags": [["a"] * 3, ["éa", ""]], "word": ["abc", None]}
    assert len(to_requests(contract, within)) == 2
    with pytest.raises(
        ColumnError, match=rf"model.s limits\. Received: {reason}.*ServingOptions\(max_{limit}="
    ) as error:
        to_requests(contract, within | values)
    assert error.value.code == "INVALID_INPUT"
