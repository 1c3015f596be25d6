"""Predictions through a real server, from and to every kind of table."""

import asyncio
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, ROWS
from tritonclient.grpc import model_config_pb2

from serving import (
    AsyncEnsembleClient,
    ClientError,
    DtypeError,
    EnsembleClient,
    UnknownModelError,
)
from serving.contract import read_contract
from workflow.wire.format import WireColumn


@pytest.fixture(scope="module")
def client(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        yield client


def test_the_contract_is_read_from_the_model(client):
    contract = client.contract
    assert [column.name for column in contract.inputs] == ["userId", "age", "genres"]
    assert contract.label_columns == ("rating",)
    assert contract.generation == "g7"


def test_polars_in_polars_out(client):
    frame = pl.DataFrame(ROWS, schema_overrides={"age": pl.Float32})
    assert_frame_equal(client.predict(frame), EXPECTED)


def test_pandas_in_pandas_out_with_the_index(client):
    frame = pd.DataFrame({**ROWS, "userId": pd.array(ROWS["userId"], "Int64")}, index=[5, 9, 9])
    frame["age"] = frame["age"].astype("float32")
    answer = client.predict(frame)
    assert answer.index.tolist() == [5, 9, 9]
    assert answer["genre_codes"].tolist() == [[3, 4], [], [2]]
    assert answer["probabilities"].tolist() == EXPECTED["probabilities"].to_list()
    assert answer["same_age"].dtype == np.float32
    np.testing.assert_array_equal(answer["same_age"], EXPECTED["same_age"].to_numpy())
    assert answer["same_user"].tolist() == [7, pd.NA, -(2**63) + 1]


def test_a_dict_in_a_dict_of_arrays_out(client):
    answer = client.predict(ROWS)
    assert answer["same_user"].tolist() == [[7], [-(2**63)], [-(2**63) + 1]]
    assert answer["same_age"].dtype == np.float32
    assert answer["probabilities"].shape == (3, 2)
    assert answer["genre_codes__values"].tolist() == [[3], [4], [2]]
    assert answer["genre_codes__nnzs"].tolist() == [[2], [0], [1]]


def test_no_rows_are_no_request(client, monkeypatch):
    monkeypatch.setattr(client, "raw", lambda _: pytest.fail("a request was sent"))
    empty = EXPECTED.clear()
    frame = pl.DataFrame(ROWS, schema_overrides={"age": pl.Float32}).clear()
    assert_frame_equal(client.predict(frame), empty)
    assert client.predict(frame.to_pandas()).columns.tolist() == empty.columns
    answer = client.predict({"userId": [], "age": np.empty(0, np.float32), "genres": []})
    assert answer["probabilities"].shape == (0, 2)
    assert answer["probabilities"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"genres": [["a", None]] * 3}, "Column 'genres' holds a null, and the workflow"),
        ({"userId": [-(2**63)] * 3}, "Column 'userId' holds .*, which is the null code"),
        ({"genres": [["\ud800"]] * 3}, "UTF-8 cannot encode"),
        ({"userId": ["a"] * 3}, "Column 'userId': expected int64"),
    ],
)
def test_what_the_model_cannot_take_is_not_sent(client, monkeypatch, change, reason):
    monkeypatch.setattr(client, "raw", lambda _: pytest.fail("a request was sent"))
    with pytest.raises(ClientError, match=reason) as refusal:
        client.predict({**ROWS, **change})
    assert refusal.value.code == "INVALID_INPUT"
    assert isinstance(refusal.value, DtypeError)


def test_errors_of_the_server_have_its_code(server, client):
    with pytest.raises(ClientError, match=r"INVALID_ARGUMENT: .*missing required input"):
        client.raw({"userId": np.zeros((1, 1), np.int64)})
    with pytest.raises(ClientError, match=r"expected a dtype of Triton.* Received: complex128"):
        client.raw({"userId": np.zeros((1, 1), complex)})
    with pytest.raises(ClientError, match="none") as refusal:
        EnsembleClient(server.grpc_url, "none")
    assert isinstance(refusal.value, UnknownModelError)
    with pytest.raises(ClientError, match="version"):
        EnsembleClient(server.grpc_url, "movies", model_version="2")


@pytest.mark.parametrize("version", [1, np.int64(1), "1"])
def test_a_version_is_a_number_or_its_text(server, client, version):
    async def ask():
        async with AsyncEnsembleClient(
            server.grpc_url, "movies", model_version=version
        ) as of_asyncio:
            return await of_asyncio.predict(ROWS)

    expected = client.predict(ROWS)["probabilities"]
    assert asyncio.run(ask())["probabilities"].tolist() == expected.tolist()
    for url in (server.grpc_url, server.http_url):
        with EnsembleClient(url, "movies", model_version=version) as one:
            assert one.predict(ROWS)["probabilities"].tolist() == expected.tolist()
            assert one.for_model("network", version).model_version == "1"


def test_a_foreign_model_is_read_by_its_names(server):
    with EnsembleClient(server.grpc_url, "network", model_version="1") as client:
        assert list(client.contract.inputs) == [
            WireColumn("user", "int64"),
            WireColumn("years", "float32"),
            WireColumn("codes", "int64", "flat"),
        ]
        answer = client.predict({"user": [1], "years": [2.0], "codes": [[3, 4]]})
    assert answer["genre_codes__values"].tolist() == [[3], [4]]


def test_parameters_of_another_kind_are_refused():
    config = model_config_pb2.ModelConfig(name="m")
    for text in ("{", '[{"name": "a"}]', '[{"name": "a", "dtype": "int65", "layout": "flat"}]'):
        config.parameters["inputs"].string_value = text
        with pytest.raises(ClientError, match="INVALID_CONFIG: Expected the parameters of 'm'"):
            read_contract(config)


def test_a_dtype_that_we_do_not_know_is_refused():
    config = model_config_pb2.ModelConfig(name="m")
    config.input.add(name="x", data_type=model_config_pb2.TYPE_BF16, dims=[1])
    with pytest.raises(ClientError, match="TYPE_BF16 of 'x'"):
        read_contract(config)


def test_what_only_some_need_is_not_imported_for_others():
    names = {"pandas", "tensorflow", "aiohttp"}
    code = f"import sys, serving; sys.exit(not {names}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_http_from_asyncio_says_what_it_needs(server, monkeypatch):
    async def ask():
        async with AsyncEnsembleClient(server.http_url, "movies"):
            pass

    monkeypatch.delitem(sys.modules, "serving.connection.http_async", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ClientError, match=r"Expected the package aiohttp.*tritonclient\[http\]"):
        asyncio.run(ask())
