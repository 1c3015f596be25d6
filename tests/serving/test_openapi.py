"""The OpenAPI document is valid, and agrees with real requests and answers of the server."""

import json
import urllib.error
import urllib.request

import jsonschema
import pytest
from openapi_spec_validator import validate

from serving import EnsembleClient
from serving.contract import Contract
from serving.openapi import openapi_document
from workflow.wire.format import WireColumn

# One server for all.
pytestmark = pytest.mark.xdist_group("serving")


@pytest.fixture(scope="module")
def document(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        return openapi_document("movies", client.contract, server.http_url)


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def request():
    """Two rows, written by hand; their answers follow from the network, which repeats its inputs."""
    return {
        "inputs": [
            tensor("userId", "INT64", [2, 1], [7, -(2**63)]),
            tensor("age", "FP32", [2, 1], [30.5, 0.25]),
            tensor("genres__values", "BYTES", [2, 1], ["Drama", "Krimi ü"]),
            tensor("genres__nnzs", "INT64", [2, 1], [2, 0]),
        ]
    }


def fetch(document, path, body=None):
    """The status and the JSON of a path of the document."""
    assert path in document["paths"]
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(document["servers"][0]["url"] + path, data) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def check(document, name, value):
    """Validate a value against a schema of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)


def test_the_document_is_valid(document):
    validate(document)
    # As JSON, without a word that JSON lacks.
    validate(json.loads(json.dumps(document, allow_nan=False)))


def test_every_layout_and_dtype_makes_a_valid_document():
    columns = (
        WireColumn("a", "bool"),
        WireColumn("b", "uint64", nullable=True),
        WireColumn("c", "float64", "padded", nullable=True),
        WireColumn("d", "string", "fixed", nullable=True, width=3),
        WireColumn("e", "int64", "flat", time="Europe/Berlin", nullable=True),
    )
    document = openapi_document("odd name/é", Contract(columns, columns, (), "", {}))
    validate(document)
    assert "/v2/models/odd%20name%2F%C3%A9/infer" in document["paths"]
    text = json.dumps(document)
    for words in ("18446744073709551615", "0xFF", "NaN", "in the zone Europe/Berlin", "3 elements"):
        assert words in text
    named = document["components"]["schemas"]["InferRequest"]["properties"]["inputs"]
    shapes = {
        t["title"]: t["properties"]["shape"]["prefixItems"][1] for t in named["items"]["oneOf"]
    }
    assert shapes["d"] == {"const": 3}
    assert shapes["e__values"] == shapes["e__nnzs"] == {"const": 1}
    assert shapes["c"] == {"type": "integer", "minimum": 0}


def rows_and_width(contract, name):
    """The schemas of the two dimensions of an input."""
    inputs = openapi_document("any", contract)["components"]["schemas"]["InferRequest"]
    tensors = inputs["properties"]["inputs"]["items"]["oneOf"]
    return next(t["properties"]["shape"]["prefixItems"] for t in tensors if t["title"] == name)


def test_limits_of_rows_are_those_of_rows_alone():
    columns = (WireColumn("a", "int64"), WireColumn("b", "int64", "flat"))
    limited = Contract(columns, (), (), "", {}, limits={"max_rows": 300})
    rows = {"type": "integer", "minimum": 0, "maximum": 300}
    for name in ("a", "b__nnzs"):
        assert rows_and_width(limited, name) == [rows, {"const": 1}]
    assert rows_and_width(limited, "b__values")[0] == {"type": "integer", "minimum": 0}
    joining = Contract(columns[:1], (), (), "", {}, max_batch_size=64)
    assert rows_and_width(joining, "a")[0] == rows | {"minimum": 1, "maximum": 64}


def test_it_says_where_a_string_ends_at_a_nul():
    for ends_at_nul in (False, True):
        column = WireColumn("a", "string", ends_at_nul=ends_at_nul)
        document = openapi_document("any", Contract((column,), (), (), "", {}))
        assert ("NUL" in json.dumps(document)) == ends_at_nul


def test_real_requests_and_answers_agree_with_it(document):
    check(document, "InferRequest", request())
    status, answer = fetch(document, "/v2/models/movies/infer", request())
    assert status == 200
    check(document, "InferResponse", answer)
    values = {output["name"]: output["data"] for output in answer["outputs"]}
    assert values["same_user"] == [7, -(2**63)]
    assert values["same_age"] == [30.5, 0.25]
    check(document, "Metadata", fetch(document, "/v2/models/movies")[1])
    assert fetch(document, "/v2/models/movies/ready")[0] == 200


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"name": "user"}),
        (0, {"datatype": "INT32"}),
        (0, {"data": [7, "8"]}),
        (0, {"shape": [2]}),
        (0, {"data": [2**63, 0]}),
        (2, {"data": [None, "b"]}),
    ],
    ids=["name", "datatype", "text", "shape", "range", "null"],
)
def test_a_wrong_request_agrees_with_neither(document, number, change):
    wrong = request()
    wrong["inputs"][number] |= change
    with pytest.raises(jsonschema.ValidationError):
        check(document, "InferRequest", wrong)
    status, answer = fetch(document, "/v2/models/movies/infer", wrong)
    assert str(status) in document["paths"]["/v2/models/movies/infer"]["post"]["responses"]
    assert status >= 400
    check(document, "Error", answer)


def test_a_model_that_is_not_there_is_answered_as_documented(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        document = openapi_document("absent", client.contract, server.http_url)
    for path, operations in document["paths"].items():
        ((method, operation),) = operations.items()
        status, answer = fetch(document, path, request() if method == "post" else None)
        assert status >= 400
        assert operation["responses"][str(status)]["content"]
        check(document, "Error", answer)


def test_a_missing_tensor_agrees_with_neither(document):
    wrong = request()
    wrong["inputs"][0] = wrong["inputs"][1]
    with pytest.raises(jsonschema.ValidationError):
        check(document, "InferRequest", wrong)
    assert fetch(document, "/v2/models/movies/infer", wrong)[0] >= 400
