"""The report as a page: everything that the plan says, readable as HTML, and nothing from outside."""

import re
from importlib.metadata import version
from xml.etree import ElementTree as ET

import keras
import pytest
from small_export import rows

from exporter import ServingOptions
from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import Latency
from exporter.report.page import how_to_serve
from serving.prove.parity import OutputParity, ParityReport
from training import models
from workflow import Workflow, ops


@pytest.fixture
def export(written_once):
    return written_once


def text_of(page):
    """The text of a page, which has to be as strict as XML once its head is cut off."""
    body = page[page.index("<body>") : page.index("</body>")] + "</body>"
    return " ".join(" ".join(ET.fromstring(body).itertext()).split())  # noqa: S314


def test_the_page_says_what_the_plan_says(export):
    options = ServingOptions(max_batch_size=32, response_cache=True, max_rows=9)
    report = export(serving=options)
    page = report.to_html()
    text = text_of(page)
    for name, word in report.settings.items():
        assert f"{name} {word}" in text
    for model in report.plan.models:
        for tensor in (*model.inputs, *model.outputs):
            assert f"{tensor.name} {tensor.dtype} {tensor.shape}" in text
    for words in (
        "Ensemble movies",
        report.generation,
        "userId: int64 -> int32",
        "labels, not served rating",
        "ensemble serve",
        "--load-model=movies",
        "--cache-config=local",
    ):
        assert words in text
    assert re.search(r"movies_tf : tensorflow, [\d.]+ kB", text)
    assert "<svg" in page


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, "65,536"), ({"max_rows": 9}, "9"), ({"max_batch_size": 32, "max_rows": 9}, "9")]
    + [({"max_batch_size": 32}, "32")],
)
def test_the_picture_has_the_most_rows_of_a_request(export, options, most):
    report = export(serving=ServingOptions(**options))
    assert f">up to {most} rows<" in EnsembleDrawing.of_plan(report.plan).to_svg()


def test_a_cache_of_several_outputs_is_remarked(export, model):
    said = "Triton keeps the outputs that the first of equal requests asks for"
    both = keras.Model(model.inputs, {"score": model.outputs[0], "half": model.outputs[0] / 2})
    cached = ServingOptions(response_cache=True)
    assert any(said in remark for remark in export(both, serving=cached).remarks)
    assert not any(said in remark for remark in export(both, name="plain").remarks)
    assert not any(said in remark for remark in export(name="one", serving=cached).remarks)


def test_options_that_do_nothing_are_not_told(export):
    steps = export(serving=ServingOptions(max_batch_size=8)).settings
    assert steps["preprocess_instances"] == "1"
    assert steps["max_queue_delay_us"] == "0"
    alone = export(name="alone", serving=ServingOptions(runtime="fused_onnx", warm_up=False))
    assert "preprocess_instances" not in alone.to_html() + str(alone)
    queue = {"max_queue_delay_us", "max_queue_size", "queue_timeout_us"}
    idle = queue | {"preprocess_instances", "pack", "response_cache"}
    assert steps.keys() - alone.settings.keys() == idle | {"golden_rows"}


def test_the_page_needs_no_other_file(export):
    links = re.findall(r"""(?:src|href|url|@import)\b.{20}""", export().to_html())
    assert not links


def test_the_proof_can_stand_in_the_page(export):
    report = export(serving=ServingOptions(runtime="fused_onnx"))
    assert "Not checked in this page" in text_of(report.to_html())
    parity = ParityReport(
        "movies", "g", 4, 1e-5, (OutputParity("output", "prediction", 4, 1, 0.5, 2),)
    )
    text = text_of(report.to_html(parity))
    assert "Parity failed : movies, 4 rows" in text
    assert "Model movies" in text


def test_response_times_are_bars_from_zero(export):
    slow, fast = Latency(1, 1, (1.0, 2.0, 8.0), 900.0), Latency(4, 64, (0.5, 1.0, 4.0), 100.0)
    page = export().to_html(latency=[slow, fast])
    text = text_of(page)
    assert "1 row 1.00 / 2.00 / 8.00 ms, 900 rows/s" in text
    assert "64 rows, 4 clients 0.50 / 1.00 / 4.00 ms, 6,400 rows/s" in text
    widths = [float(width) for width in re.findall(r'<i style="width:([\d.]+)%">', page)]
    assert widths == [100, 25, 12.5, 50, 12.5, 6.25]
    assert "Not measured in this page" in text_of(export().to_html())


def test_the_page_names_versions(export):
    assert f"numpy {version('numpy')}" in text_of(export().to_html())


def test_commands_take_any_path():
    commands = how_to_serve("movies", "mes modèles; rm -rf", "backends: python")
    assert "--model-repository=&#x27;mes modèles; rm -rf&#x27; " in commands


def test_triton_is_told_a_path_of_azure_as_it_takes_it():
    commands = how_to_serve(
        "movies", "models", "", url="abfss://shop@account.dfs.core.windows.net/m"
    )
    assert "--model-repository=as://account/shop/m " in commands


def test_a_notebook_shows_a_part_of_a_page(export):
    part = export()._repr_html_()
    assert part.startswith("<div")
    assert "<body" not in part


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
def test_names_are_never_markup(runtime, export):
    data = rows().rename({"price": "<b>&price"})
    workflow = Workflow(["<b>&price"] >> ops.FillMissing(0.0) >> ops.Rename(name="price"))
    price = keras.Input((1,), name="price")
    network = keras.Model({"price": price}, keras.layers.Dense(1, name="score")(price))
    report = export(network, workflow.fit(data), labels=[], serving=ServingOptions(runtime))
    assert "<b>" not in report.to_html()
    assert "<b>&price float64 [N, 1]" in text_of(report.to_html())


def test_the_text_shows_names_as_they_are_written_in_python(export):
    """A name in a terminal neither colours it nor begins a line."""
    data = {"red\x1b[31m": [1, 2], "two\nlines": [3, 4]}
    names = {name: f"x{number}" for number, name in enumerate(data)}
    pipeline = Workflow([*data] >> ops.Categorify() >> ops.Rename(names)).fit(data)
    text = str(export(models.mlp(pipeline.output_schema, hidden=(2,)), pipeline, labels=[]))
    assert text.replace("\n", "").isprintable()
    assert r"takes red\x1b[31m int64" in text
    assert r"may be null: red\x1b[31m, two\nlines" in text
