"""Before a server calls a model ready it asks it for golden rows, as a client would send them."""

import shutil
import time
from itertools import cycle

import numpy as np
import polars as pl
import pytest
from small_export import configs, rows, tree
from tritonclient.grpc import InferenceServerClient

from exporter import ExportError, ServingOptions, verify
from exporter.plan.runtime import RUNTIMES
from serving import TritonServer
from serving.connection.tensors import from_bytes
from workflow.expressions.polars.series import to_column
from workflow.wire.format import decode, encode
from workflow.wire.packed_tensor import parse_packing, unpack

# One object, by which exports with it are known.
GOLDEN = rows()


@pytest.fixture
def export(written_once):
    return written_once


def sent(report, model, number):
    """The tensors of a request that the server makes of a model, read as Triton reads them."""
    config = configs(report)[model]
    names = {8: "INT32", 9: "INT64", 11: "FP32", 12: "FP64", 13: "BYTES"}
    tensors = {}
    for name, entry in config.model_warmup[number].inputs.items():
        data = (report.repository / model / "warmup" / entry.input_data_file).read_bytes()
        # Triton puts the one row before the dimensions of a model that joins requests.
        shape = ([1] if config.max_batch_size else []) + list(entry.dims)
        tensors[name] = from_bytes(names[entry.data_type], shape, data)
    return tensors


@pytest.mark.parametrize(("runtime", "batch"), list(zip(RUNTIMES, cycle([0, 8, 8, 0]))))
def test_every_model_that_computes_is_asked_for_each_golden_row(runtime, batch, export):
    options = ServingOptions(runtime=runtime, max_batch_size=batch, golden_rows=GOLDEN)
    report = export(serving=options)
    for config in configs(report).values():
        asked = [set(request.inputs) for request in config.model_warmup]
        wanted = [{tensor.name for tensor in config.input}] * rows().height
        assert asked == (wanted if config.platform != "ensemble" else [])
        assert all(request.batch_size == 1 for request in config.model_warmup)
    columns = report.plan.pipeline.client_columns
    first = report.plan.models[0].name
    for number in range(rows().height):
        tensors = sent(report, first, number)
        for column in columns:
            expected = encode(column, to_column(rows()[column.name][number : number + 1]))
            for name, tensor in expected.items():
                np.testing.assert_array_equal(tensors[name], tensor, name)
    assert verify(report.repository, "movies") == report.generation


@pytest.mark.parametrize("runtime", ["tensorflow", "onnx"])
def test_the_network_is_asked_for_what_the_rows_become(runtime, export, workflow):
    options = ServingOptions(runtime=runtime, max_batch_size=8, golden_rows=GOLDEN)
    report = export(serving=options)
    offline = workflow.transform(rows()).collect()
    packing = parse_packing(report.plan.steps[0].parameters["packing"])
    for number in range(rows().height):
        tensors = unpack(sent(report, report.plan.steps[1].name, number), packing)
        for column in report.plan.pipeline.step_columns:
            made = decode(column, tensors).array.tolist()
            (value,) = offline[column.name][number : number + 1].to_list()
            assert made == (value if column.is_list else [value]), column.name


def test_without_golden_rows_it_is_one_row_of_nothing_and_may_be_none(export):
    report = export()
    assert {n: t.tolist() for n, t in sent(report, "movies_nvt", 0).items()} == {
        "userId": [[0]],
        "genres__values": [[b""]],
        "genres__nnzs": [[1]],
        "price": [[0.0]],
    }
    # Whatever the workflow has learnt: Categorify's empty string is an id of its own.
    packing = parse_packing(report.plan.steps[0].parameters["packing"])
    numbers = unpack(sent(report, "movies_tf", 0), packing)
    assert {name: tensor.tolist() for name, tensor in numbers.items()} == {
        "userId": [[0]],
        "genres__values": [[0]],
        "genres__nnzs": [[1]],
        "price": [[0.0]],
    }
    without = export(version=2, serving=ServingOptions(warm_up=False))
    assert not any(config.model_warmup for config in configs(without).values())
    # Version 1 keeps its own, and the new steps are of another config.
    assert {path.parents[1].name for path in report.repository.glob("*/warmup/*")} == {
        "movies_nvt",
        "movies_tf",
    }


def test_a_server_has_asked_before_it_is_ready(export, tmp_path):
    """Strings, nulls and lists, flat and padded, through two steps in Python and in ONNX."""
    cases = [("tensorflow", 0), ("onnx", 8)]
    for runtime, batch in cases:
        options = ServingOptions(runtime=runtime, max_batch_size=batch, golden_rows=rows())
        export(name=runtime, serving=options)
    with (
        TritonServer(tmp_path / "models") as server,
        InferenceServerClient(server.grpc_url) as client,
    ):
        # The ensemble is not asked but by the server's owner, who wants to see an answer.
        probes = 1
        steps = ["onnx_nvt", "onnx_onnx", "tensorflow_nvt", "tensorflow_tf"]
        expected = dict.fromkeys(steps, rows().height + probes)
        expected |= dict.fromkeys(["onnx", "tensorflow"], probes)
        # Triton counts a request after its answer.
        deadline = time.monotonic() + 30
        while True:
            models = client.get_inference_statistics().model_stats
            asked = {model.name: model.inference_stats.success.count for model in models}
            if asked == expected or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    assert asked == expected
    assert not any(model.inference_stats.fail.count for model in models)


@pytest.mark.parametrize(
    ("golden", "options", "reason"),
    [
        (
            rows().drop("genres"),
            {},
            r"Expected golden_rows that a client can send.*Missing: genres",
        ),
        (rows().head(0), {}, "Expected golden_rows with at least one row"),
        (rows().with_columns(price=pl.lit("x")), {}, "Column 'price'"),
        (7, {}, "Received: 7"),
        ("no/such.parquet", {}, "no/such.parquet"),
        (rows(), {"max_list_length": 1}, "row 0, where genres has a list of more than 1"),
        (
            rows().with_columns(genres=pl.lit(["too long"])),
            {"max_string_bytes": 3},
            "row 0, where genres has a string of more than 3 bytes",
        ),
    ],
)
def test_golden_rows_that_the_server_would_stumble_over(golden, options, reason, export, tmp_path):
    with pytest.raises(ExportError, match=reason):
        export(serving=ServingOptions(golden_rows=golden, **options))
    assert not (tmp_path / "models").exists()


def test_the_first_eight_rows_of_parquet_are_enough(export, tmp_path):
    pl.concat([rows()] * 5).write_parquet(tmp_path / "rows.parquet")
    report = export(serving=ServingOptions(golden_rows=tmp_path / "rows.parquet"))
    assert [len(m.model_warmup) for m in configs(report).values()] == [8, 8, 0]


def test_a_version_that_was_removed_by_hand_can_be_exported_again(export):
    """Its warm-up lies beside it, where Triton wants it."""
    report = export()
    before = tree(report.repository)
    for folder in report.paths.values():
        shutil.rmtree(folder)
    export(version=1)
    assert tree(report.repository).keys() == before.keys()
    assert verify(report.repository, "movies")
