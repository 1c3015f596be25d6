"""Hostile documents of a workflow, and files in their place."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from spoiling import (
    CATEGORIFY,
    DEEP,
    FILL,
    JOIN,
    LAMBDA,
    NORMALIZE,
    Attack,
    Bomb,
    config,
    edit,
    linked,
    node,
    replaced,
    replaced_by,
    sparse,
    trace,
    verb_of,
    written,
    zipped,
)


def long_graph(document: Any) -> None:
    """As many nodes as the file may hold, the last of them wrong."""
    names = [document["inputs"][0]["name"]]
    document["nodes"] = [{"kind": "select", "names": names, "parents": []}]
    document["nodes"] += [{"kind": "keep", "names": names, "parents": [n]} for n in range(45_000)]
    document["nodes"].append({"kind": "keep", "names": ["nothing"], "parents": [45_000]})


def appended(*entries: Any) -> Attack:
    """Nodes after the last, each over the one before."""

    def change(document: Any) -> None:
        for entry in entries:
            document["nodes"].append({**entry, "parents": [len(document["nodes"]) - 1]})

    return edit(change)


def long_trace(program: Any) -> None:
    step = {"verb": "negate", "operands": [0], "parameters": {}}
    program["steps"] = [verb_of(program, "source")]
    program["steps"] += [dict(step, operands=[n]) for n in range(45_000)]
    program["steps"].append({"verb": "system", "operands": [0], "parameters": {}})


DOCUMENTS: dict[str, Attack] = {
    # Files
    "no document": lambda f: (f / "workflow.json").unlink(),
    "no state": lambda f: (f / "state.safetensors").unlink(),
    "empty document": written("workflow.json", b""),
    "empty state": written("state.safetensors", b""),
    "linked document": linked("workflow.json"),
    "linked state": linked("state.safetensors"),
    "document is a folder": replaced_by("workflow.json", Path.mkdir),
    "document is a pipe": replaced_by("workflow.json", os.mkfifo),
    "document is a zip": replaced_by("workflow.json", zipped),
    "document is a pickle": written("workflow.json", pickle.dumps(Bomb())),
    "state is a pickle": written("state.safetensors", pickle.dumps(Bomb())),
    "document is not UTF-8": written("workflow.json", '{"format": 1}'.encode("utf-16")),
    "document of a gigabyte": sparse("workflow.json", 2**30, b"{"),
    "state of a terabyte of zeros": sparse(
        "state.safetensors", 2**40, (2**39).to_bytes(8, "little")
    ),
    # JSON
    "nested": written("workflow.json", b"[" * DEEP),
    "nested objects": written("workflow.json", b'{"a":' * DEEP),
    "nested within": replaced('"nodes": [', '"nodes": [' + "[" * DEEP),
    "many empty lists": written("workflow.json", b"[" + b"[]," * 1_300_000 + b"[]]"),
    "duplicate key": replaced('"format": 2', '"format": 2, "format": 2'),
    "duplicate key within": replaced('"kind": "operator"', '"kind": "operator", "kind": "select"'),
    "not a number": replaced('"freq_threshold": 0', '"freq_threshold": NaN'),
    "infinite number": replaced('"freq_threshold": 0', '"freq_threshold": 1e999'),
    "number of a million digits": replaced('"format": 2', '"format": 2' + "0" * 1_000_000),
    "a list": written("workflow.json", b"[]"),
    "null": written("workflow.json", b"null"),
    # Sums
    "no sum": edit(lambda d: d.pop("sum")),
    "sum is a number": edit(lambda d: d.update(sum=5)),
    "sum is short": edit(lambda d: d.update(sum="0" * 63)),
    "no sum of the state": edit(lambda d: d.pop("state")),
    "sum of the state is null": edit(lambda d: d.update(state=None)),
    "sum of the state is a path": edit(lambda d: d.update(state="../" + "0" * 61)),
    "sum of the state in capitals": edit(lambda d: d.update(state=d["state"].upper())),
    # Document
    "unknown key": edit(lambda d: d.update(extra=1)),
    "missing key": edit(lambda d: d.pop("inputs")),
    "format of the future": edit(lambda d: d.update(format=3)),
    "format is a list": edit(lambda d: d.update(format=[1])),
    "no nodes": edit(lambda d: d.update(nodes=[])),
    "nodes are an object": edit(lambda d: d.update(nodes={"0": {}})),
    "node is a string": edit(lambda d: d.update(nodes=["Categorify"])),
    "inputs are a string": edit(lambda d: d.update(inputs="userId")),
    "input of an unknown dtype": edit(lambda d: d["inputs"][0].update(dtype="object5")),
    "input of a dtype that numpy trips on": edit(
        lambda d: d["inputs"][0].update(dtype="(2000000000,2000000000)f4")
    ),
    "input with a dtype of code": edit(lambda d: d["inputs"][0].update(dtype="__import__('os')")),
    "input twice": edit(lambda d: d["inputs"].append(d["inputs"][0])),
    "input missing": edit(lambda d: d["inputs"].pop()),
    "input nullable as a word": edit(lambda d: d["inputs"][0].update(nullable="yes")),
    "output dtypes are a list": edit(lambda d: d.update(output_dtypes=["userId"])),
    "output dtype is a number": edit(lambda d: d.update(output_dtypes={"userId": 5})),
    "output dtype is unknown": edit(lambda d: d.update(output_dtypes={"userId": "int33"})),
    "output dtype of no output": edit(lambda d: d.update(output_dtypes={"../x": "int32"})),
    # Graph
    "own parent": edit(
        lambda d: node(d, CATEGORIFY).update(parents=[d["nodes"].index(node(d, CATEGORIFY))])
    ),
    "later parent": edit(lambda d: node(d, CATEGORIFY).update(parents=[len(d["nodes"]) - 1])),
    "negative parent": edit(lambda d: node(d, CATEGORIFY).update(parents=[-1])),
    "parent is true": edit(lambda d: node(d, CATEGORIFY).update(parents=[True])),
    "parents are a number": edit(lambda d: node(d, CATEGORIFY).update(parents=0)),
    "no parents": edit(lambda d: node(d, CATEGORIFY).update(parents=[])),
    "two parents": edit(lambda d: node(d, CATEGORIFY).update(parents=[0, 0])),
    "concat of nothing": edit(lambda d: d["nodes"][-1].update(parents=[])),
    "nodes in disorder": edit(
        lambda d: d["nodes"].insert(1, {"kind": "select", "names": ["userId"], "parents": []})
    ),
    "found columns with a parent": edit(
        lambda d: d["nodes"][-1].update(kind="find", names=["userId"])
    ),
    "found columns in a group": edit(
        lambda d: d["nodes"][0].update(kind="find", names=[["a", "b"]])
    ),
    "unknown kind": edit(lambda d: d["nodes"][0].update(kind="exec")),
    "kind is a list": edit(lambda d: d["nodes"][0].update(kind=["select"])),
    "unknown key of a node": edit(lambda d: d["nodes"][0].update(code="import os")),
    "names are numbers": edit(lambda d: d["nodes"][0].update(names=[1])),
    "name of a path": edit(lambda d: d["nodes"][0].update(names=["../../etc/passwd"])),
    "names are a string": edit(lambda d: d["nodes"][0].update(names="userId")),
    "many nodes": edit(long_graph),
    **{
        f"{entries!r} at the end": appended(*entries)
        for entries in (
            [{"kind": "subgraph"}],
            [{"kind": "subgraph", "name": 5}],
            [{"kind": "subgraph", "name": ""}],
            [{"kind": "subgraph", "name": ["a"]}],
            [{"kind": "subgraph", "name": "a"}, {"kind": "subgraph", "name": "a"}],
            [{"kind": "keep", "names": ["userId", "../x"]}],
            [{"kind": "keep", "names": [["userId", "nothing"]]}],
            [{"kind": "keep", "names": [["userId", 5]]}],
            [{"kind": "keep", "names": [["userId", ["price"]]]}],
            [{"kind": "keep", "names": [[]]}],
            [{"kind": "keep", "names": {"userId": 1}}],
            [{"kind": "drop", "names": [["userId"]]}],
            [{"kind": "drop", "names": ["nothing"]}],
            [{"kind": "drop", "names": None}],
        )
    },
    # Operators and their configuration
    "unknown operator": edit(lambda d: node(d, CATEGORIFY).update(operator="Evil")),
    "dotted operator": edit(lambda d: node(d, CATEGORIFY).update(operator="os.system")),
    "operator with a path": edit(
        lambda d: node(d, CATEGORIFY).update(operator="../ops/categorify")
    ),
    "operator is a base class": edit(lambda d: node(d, CATEGORIFY).update(operator="Operator")),
    "operator is a list": edit(lambda d: node(d, CATEGORIFY).update(operator=["Categorify"])),
    "operator of another state": edit(lambda d: node(d, NORMALIZE).update(operator=CATEGORIFY)),
    "config is a list": edit(lambda d: node(d, CATEGORIFY).update(config=[])),
    "unknown setting": edit(lambda d: node(d, CATEGORIFY)["config"].update(code="x")),
    "missing setting": edit(lambda d: node(d, CATEGORIFY)["config"].pop("dtype")),
    "table as a path": config(JOIN, "df_ext", "/etc/passwd"),
    **{
        f"{operator}.{name}={value!r}": config(operator, name, value)
        for operator, name, values in (
            (
                CATEGORIFY,
                "freq_threshold",
                ["x", [1], None, 1.5, True, -1, {"userId": "x"}, {"userId": -1}],
            ),
            (CATEGORIFY, "max_size", [-2, {"userId": []}, {"userId": {"a": 1}}, "9" * 100]),
            (
                CATEGORIFY,
                "dtype",
                [5, ["int64"], {"a": 1}, "float32", "int33", "M8[ns]", "(2,2)i8", None],
            ),
            (NORMALIZE, "out_dtype", ["int32", "string", 3, None, ["float32"]]),
            (FILL, "fill_val", [[0], {"a": 0}, None, "text"]),
            (FILL, "add_binary_cols", ["yes", 1, None]),
            (JOIN, "on", [5, None, ["movieId", "movieId"], "nothing"]),
            (JOIN, "on_ext", [5, ["movieId", "year"], "year"]),
            (JOIN, "columns_ext", ["genres", [1], [], {"a": 1}]),
            (LAMBDA, "f", ["lambda c: c", None, [], 3, {}, {"rating": "code"}, {"rating": {}}]),
            (LAMBDA, "dtype", [5, "string", "int33", []]),
            (LAMBDA, "tags", ["target", [1], {"a": 1}]),
        )
        for value in values
    },
    # Traces
    "trace with an unknown verb": trace(lambda p: verb_of(p, "greater").update(verb="eval")),
    "trace with a verb that is a list": trace(lambda p: verb_of(p, "greater").update(verb=["add"])),
    "trace with operands forward": trace(lambda p: verb_of(p, "greater").update(operands=[5, 6])),
    "trace with operands negative": trace(lambda p: verb_of(p, "greater").update(operands=[-1, 0])),
    "trace with operands true": trace(
        lambda p: verb_of(p, "greater").update(operands=[True, False])
    ),
    "trace with one operand": trace(lambda p: verb_of(p, "greater").update(operands=[0])),
    "trace with operands an object": trace(lambda p: verb_of(p, "greater").update(operands={})),
    "trace with a thousand operands": trace(
        lambda p: verb_of(p, "greater").update(operands=[0] * 1000)
    ),
    "trace with parameters a list": trace(lambda p: verb_of(p, "greater").update(parameters=[])),
    "trace with more parameters": trace(
        lambda p: verb_of(p, "greater").update(parameters={"x": 1})
    ),
    "trace with a constant list": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(value=[1])
    ),
    "trace with a constant string": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(value="3")
    ),
    "trace with a huge constant": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(value=10**400, dtype="int64")
    ),
    "trace with an infinite float32": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(value=1e300, dtype="float32")
    ),
    "trace with a constant of an unknown dtype": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(dtype="object")
    ),
    "trace with a constant of a dtype that is a list": trace(
        lambda p: verb_of(p, "constant")["parameters"].update(dtype=["float64"])
    ),
    "trace with a table": trace(
        lambda p: p["steps"].append(
            {"verb": "gather", "operands": [0], "parameters": {"table": {"table": "x"}}}
        )
    ),
    "trace with a cast to nonsense": trace(
        lambda p: verb_of(p, "cast")["parameters"].update(dtype="M8[x]")
    ),
    "trace with a cast to a list": trace(
        lambda p: verb_of(p, "cast")["parameters"].update(dtype=["int8"])
    ),
    "trace with crossed bounds": trace(
        lambda p: p["steps"].append(
            {"verb": "clip", "operands": [0], "parameters": {"lower": 3, "upper": 1}}
        )
    ),
    "trace with a bound that is no number": trace(
        lambda p: p["steps"].append(
            {
                "verb": "clip",
                "operands": [0],
                "parameters": {"lower": {"float": "nan"}, "upper": None},
            }
        )
    ),
    "trace of another column": trace(
        lambda p: verb_of(p, "source")["parameters"].update(name="userId")
    ),
    "trace of a column that is a list": trace(
        lambda p: verb_of(p, "source")["parameters"].update(name=["rating"])
    ),
    "trace of a list that is none": trace(lambda p: p["inputs"][0].update(is_list=True)),
    "trace without outputs": trace(lambda p: p.update(outputs=[])),
    "trace with two outputs": trace(lambda p: p["outputs"].append(p["outputs"][0])),
    "trace with an output of another type": trace(
        lambda p: p["outputs"][0]["column"].update(dtype="int64")
    ),
    "trace with an output of another name": trace(
        lambda p: p["outputs"][0]["column"].update(name="x")
    ),
    "trace with steps a string": trace(lambda p: p.update(steps="source")),
    "trace with an unknown key": trace(lambda p: p.update(code="x")),
    "trace of many steps": trace(long_trace),
}
