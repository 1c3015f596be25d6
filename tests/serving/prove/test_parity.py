"""The check of a server, and how a report tells of it."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import keras
import numpy as np
import polars as pl
import pytest
from python_calls import MOST_GROWTH, growth

from serving.errors import ClientError
from serving.prove.parity import call_network, check_parity, features_of, raw_rows
from serving.prove.report import ComparedRow, OutputParity, ParityReport
from workflow import Workflow
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema

NAN = float("nan")


def report(*outputs, rows=3):
    return ParityReport("movies", "5f1d", rows, 1e-5, outputs)


def test_a_report_passes_only_with_rows_and_without_mismatches():
    good = OutputParity("score", "prediction", 3, 0, 1e-7, None)
    bad = OutputParity("id", "feature", 3, 1, 4.0, 2)
    assert report(good)
    assert not report(good, bad)
    assert not report(good, rows=0)


def test_the_text_names_the_first_row_that_differs():
    text = str(report(OutputParity("id", "feature", 3, 1, 4.0, 2)))
    assert text.startswith("Parity FAILED: movies, 3 rows")
    assert text.splitlines()[2].endswith("4  first at row 2")


def test_a_report_says_what_the_difference_is():
    rule = "|served - offline| / max(1, |offline|)"
    made = report(OutputParity("score", "prediction", 3, 0, 1e-7, None))
    assert rule in str(made)
    assert rule in made.to_html()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("<script>", "&lt;script&gt;"), ("a\0b", r"a\x00b"), ("\x1b[2J", r"\x1b[2J")],
)
def test_the_html_shows_names_as_text(name, shown):
    html = report(OutputParity(name, "feature", 3, 0, 0.0, None)).to_html()
    assert name not in html
    assert shown in html


def test_the_page_shows_the_worst_rows_beside_their_raw_values():
    worst = ComparedRow(7, "0.25", "0.75", 0.5, equal=False)
    output = OutputParity("score", "prediction", 9, 1, 0.5, 7, worst=(worst,))
    html = ParityReport("movies", "5f1d", 9, 1e-5, (output,), {7: {"user": "12"}}).to_html()
    cells = re.findall(r"<td>(.*?)</td>", html[html.index('class="worst"') :])
    assert cells == [
        "score",
        "7",
        "<div><code>user</code> <bdi>12</bdi></div>",
        "0.25",
        "0.75",
        "0.5",
    ]


HOSTILE = (
    "<script>alert(1)</script>",
    "a\0b\x1b[2J",
    "\u202egnp.exe",
    "\ud800",
    "שלום",
    "&amp;\"'",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_never_markup(text):
    worst = ComparedRow(0, text, text, np.inf, equal=False)
    output = OutputParity(text, "feature", 1, 1, np.inf, 0, worst=(worst,))
    html = ParityReport(text, text, 1, 1e-5, (output,), {0: {text: text}}).to_html()
    body = ET.fromstring(html)  # noqa: S314 - strict, so that nothing of it can be markup
    assert not body.findall(".//script")
    assert html.isprintable()
    html.encode()
    # Where a text runs from right to left it has to be a part of its own.
    assert len(body.findall(".//bdi")) == 1
    if text.isprintable():
        assert "".join(body.find(".//bdi").itertext()) == text


def whole_numbers(names):
    return Schema(ColumnSchema(name, "int64") for name in names)


@pytest.mark.parametrize("rows", [{"a": [1]}, pl.DataFrame({"a": [1], "c": [2]})])
def test_a_missing_column_is_named(rows):
    with pytest.raises(ClientError, match="Received: rows without b"):
        raw_rows(rows, whole_numbers(["a", "b"]))


@pytest.mark.parametrize("form", [dict, pl.DataFrame, pl.LazyFrame])
def test_the_rows_of_wide_tables_are_read_in_work_that_grows_as_their_columns(form):
    """`Source.names` asks Polars for the types of all columns."""

    def work_of(columns):
        names = [f"c{n}" for n in range(columns)]
        rows = form({name: [1] for name in names})
        return lambda: raw_rows(rows, whole_numbers(names))

    assert growth(work_of) <= MOST_GROWTH


def test_rows_are_read_from_an_object_store(link):
    url = link.put("rows.parquet", pl.DataFrame({"a": [7], "c": [2]}))
    found = raw_rows(url, whole_numbers(["a"]), link.options)
    assert found.to_dict(as_series=False) == {"a": [7]}


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_rows_that_cannot_be_read_are_an_error_of_the_client(content, tmp_path):
    path = tmp_path / "rows.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClientError, match=r"rows\.parquet"):
        raw_rows(path, whole_numbers(["a"]))


def test_no_rows_prove_nothing():
    with pytest.raises(ClientError, match="Expected rows to compare"):
        raw_rows({"a": []}, whole_numbers(["a"]))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tolerance": NAN}, "Expected a finite tolerance, 0 or more. Received: nan"),
        ({"tolerance": float("inf")}, "Received: inf"),
        ({"tolerance": -1e-5}, "Received: -1e-05"),
        ({"batch_size": 0}, "Expected a batch_size of 1 or more. Received: 0"),
    ],
)
def test_settings_within_which_nothing_can_fail(settings, reason):
    with pytest.raises(ClientError, match=reason):
        check_parity(None, None, None, None, **settings)


@pytest.mark.parametrize(
    ("model", "received"),
    [("m.keras", "no such file"), (Path("m.keras"), "no such file"), (None, "None")],
)
def test_a_network_that_is_none_is_refused(model, received):
    with pytest.raises(
        ClientError, match=rf"Expected a Keras model.* of a SavedModel.* Received: {received}"
    ):
        check_parity(None, Workflow(["a"]), model, None)


def test_a_sequential_model_that_was_never_called():
    model = keras.Sequential(
        [keras.Input((1,), name="a"), keras.layers.Rescaling(2.0, name="twice")]
    )
    answer = call_network(
        model, {"a": Column(np.array([1.0, 2.0], np.float32), None, None)}, ["twice"], {}
    )
    assert answer["twice"].tolist() == [[2.0], [4.0]]


@pytest.mark.parametrize("lengths", [None, np.array([1, 0, 2])], ids=["single", "lists"])
def test_a_network_that_takes_strings(lengths):
    tags = keras.Input((1 if lengths is None else 2,), dtype="string", name="tags")
    ids = keras.layers.StringLookup(vocabulary=["a", "b"], name="ids")(tags)
    column = Column(np.array(["b", "?", "a"], object), None, lengths)
    answer = call_network(keras.Model({"tags": tags}, {"ids": ids}), {"tags": column}, ["ids"], {})
    assert answer["ids"].tolist() == (
        [[2], [0], [1]] if lengths is None else [[2, 0], [0, 0], [0, 1]]
    )


class Own(keras.Model):
    """A model without named inputs."""

    def call(self, x):
        return x


@pytest.mark.parametrize("model", [Own(), keras.Sequential([keras.layers.Dense(1)])])
def test_a_network_without_named_inputs_is_refused(model):
    with pytest.raises(
        ClientError, match=r"named inputs\. Received: .*keras\.Model\(inputs, model"
    ):
        features_of(model, Workflow(["a"]), {})
