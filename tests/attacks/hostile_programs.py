"""Hostile edits of a saved program, which is what lies beside the model inside the server."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from spoiling import DEEP, Attack, Bomb, linked, sparse, written

from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.safetensors_file import read_arrays, write_arrays


def edit(change: Callable[[Any], Any]) -> Attack:
    """Change the document."""

    def attack(folder: Path) -> None:
        document = json.loads((folder / "program.json").read_text())
        change(document)
        (folder / "program.json").write_text(json.dumps(document))

    return attack


def step(of: str, **changes: Any) -> Attack:
    """Change the first step of a verb."""
    return edit(lambda d: next(s for s in d["steps"] if s["verb"] == of).update(changes))


def parameter(verb: str, **changes: Any) -> Attack:
    """Change the parameters of the first step of a verb."""
    return edit(
        lambda d: next(s for s in d["steps"] if s["verb"] == verb)["parameters"].update(changes)
    )


def append(verb: str, operands: list[int], **parameters: Any) -> Attack:
    new = {"verb": verb, "operands": operands, "parameters": parameters}
    return edit(lambda d: d["steps"].append(new))


def tables(change: Callable[[dict[str, np.ndarray]], Any]) -> Attack:
    def attack(folder: Path) -> None:
        path = folder / "program.safetensors"
        held = {name: array.copy() for name, array in read_arrays(path).items()}
        change(held)
        write_arrays(path, held)

    return attack


def elements_beside_rows(document: Any) -> None:
    """Add the length of a list to its elements, which no row of the two shares."""
    lists = next(i for i, s in enumerate(document["steps"]) if s["verb"] == "lookup")
    made = len(document["steps"])
    genres = next(i for i, s in enumerate(document["steps"]) if s["verb"] == "gather")
    document["steps"] += [
        {"verb": "list_length", "operands": [genres], "parameters": {}},
        {"verb": "is_null", "operands": [genres], "parameters": {}},
        {"verb": "cast", "operands": [made + 1], "parameters": {"dtype": "int64"}},
        {"verb": "add", "operands": [made, made + 2], "parameters": {}},
    ]
    assert lists >= 0


def repeated(document: Any, of: str, beside: str) -> None:
    """Repeat the first step of a verb for the elements of the first one of another verb."""
    places = [
        next(i for i, s in enumerate(document["steps"]) if s["verb"] == n) for n in (of, beside)
    ]
    document["steps"].append({"verb": "repeat_as", "operands": places, "parameters": {}})


def over_lists(document: Any, verb: str, padding: Any = None, **parameters: Any) -> None:
    """Add a verb over the program's lists, with a constant beside them or else a column."""
    steps = document["steps"]
    genres = next(i for i, s in enumerate(steps) if s["verb"] == "gather")
    ids = next(i for i, s in enumerate(steps) if s["operands"] == [genres])
    operands = [ids]
    if verb == "list_pad":
        operands.append(next(i for i, s in enumerate(steps) if s["verb"] == "source"))
        if padding is not None:
            operands[1] = len(steps)
            constant = {"value": padding, "dtype": "int64"}
            steps.append({"verb": "constant", "operands": [], "parameters": constant})
    steps.append({"verb": verb, "operands": operands, "parameters": parameters})


def descending_boundaries(folder: Path) -> None:
    append("bucketize", [0], boundaries={"table": "table0"})(folder)
    tables(lambda held: held.update({"table0.values": held["table0.values"][::-1]}))(folder)


def of_each_verb() -> Iterator[tuple[str, Attack]]:
    """Each verb with operands and parameters that are not as its row says."""
    for name, verb in VERBS.items():
        operands = [0] * verb.arity
        fine = dict(verb.examples[0]) | {table: {"table": "table0"} for table in verb.tables}
        yield f"{name} of an operand too many", append(name, [*operands, 0], **fine)
        yield f"{name} of nothing", append(name, [], **fine)
        yield f"{name} with an unknown parameter", append(name, operands, **fine, code="x")
        for parameter in verb.parameters:
            others = {n: value for n, value in fine.items() if n != parameter}
            yield f"{name} without {parameter}", append(name, operands, **others)
            for wrong in (["__import__"], {"dtype": "object"}):
                spoilt = others | {parameter: wrong}
                yield f"{name} with {parameter} {wrong}", append(name, operands, **spoilt)


PROGRAMS: dict[str, Attack] = {
    **dict(of_each_verb()),
    "no document": lambda f: (f / "program.json").unlink(),
    "no tables": lambda f: (f / "program.safetensors").unlink(),
    "linked document": linked("program.json"),
    "linked tables": linked("program.safetensors"),
    "document is a pickle": written("program.json", pickle.dumps(Bomb())),
    "document of a gigabyte": sparse("program.json", 2**30, b"{"),
    "nested": written("program.json", b"[" * DEEP),
    "a list": written("program.json", b"[]"),
    "tables cut off": lambda f: os.truncate(f / "program.safetensors", 30),
    "unknown key": edit(lambda d: d.update(code="x")),
    "format of the future": edit(lambda d: d.update(format=2)),
    "inputs an object": edit(lambda d: d.update(inputs={})),
    "steps an object": edit(lambda d: d.update(steps={})),
    "outputs a number": edit(lambda d: d.update(outputs=3)),
    "outputs of one name": edit(lambda d: d["outputs"].append(d["outputs"][0])),
    "output of a later step": edit(lambda d: d["outputs"][0].update(step=10**9)),
    "output of another dtype": edit(lambda d: d["outputs"][0]["column"].update(dtype="float32")),
    "output that says it is never null": edit(
        lambda d: [o["column"].update(nullable=not o["column"]["nullable"]) for o in d["outputs"]]
    ),
    "verb unknown": step("lookup", verb="__import__"),
    "verb a list": step("lookup", verb=[]),
    "verb is the name of a method": step("lookup", verb="__class__"),
    "operands of a source": step("source", operands=[0]),
    "operand of itself": edit(lambda d: d["steps"][-1].update(operands=[len(d["steps"]) - 1])),
    "source of no input": parameter("source", name="../x"),
    "source of a list": parameter("source", name=[]),
    "lookup without a table": parameter("lookup", keys="x"),
    "lookup in a table that is not there": parameter("lookup", keys={"table": "../x"}),
    "lookup in a table of a list": parameter("lookup", keys={"table": []}),
    "values of an unknown dtype": parameter("lookup", keys={"dtype": "object", "values": [1]}),
    "values of no dtype": parameter("lookup", keys={"dtype": ["int64"], "values": [1]}),
    "values that are a text": parameter("lookup", keys={"dtype": "int64", "values": "12"}),
    "values beyond their dtype": parameter("lookup", keys={"dtype": "int8", "values": [300]}),
    "values that are null": parameter("lookup", keys={"dtype": "int64", "values": [None]}),
    "values that are lists": parameter("lookup", keys={"dtype": "string", "values": [["a"]]}),
    "values with another key": parameter("lookup", keys={"dtype": "int64", "values": [], "x": 1}),
    "lookup at a huge start": parameter("lookup", first=2**63),
    "lookup at a start that is true": parameter("lookup", first=True),
    "lookup at a fraction": parameter("lookup", first=1.5),
    "lookup with a huge miss": parameter("lookup", missing=-(10**300)),
    "lookup among floats": tables(lambda held: held.update({"table0.values": np.array([0.5])})),
    "lookup among nulls": tables(lambda held: held.update({"table0.valid": np.zeros(2, bool)})),
    "lookup among lists": tables(lambda held: held.update({"table0.lengths": np.array([2])})),
    "gather with another parameter": parameter("gather", code=1),
    "gather of no table": parameter("gather", table=None),
    "gather at fractions": append("gather", [0], table={"table": "table0"}, more=1),
    "cast to nonsense": parameter("cast", dtype="(2000000000,2000000000)f4"),
    "cast to a number": parameter("cast", dtype=5),
    "clip of a string bound": append("clip", [0], lower="0", upper=None),
    "clip of true": append("clip", [0], lower=True, upper=None),
    "clip without bounds": append("clip", [0], lower=None, upper=None),
    "hash with a negative seed": append("hash", [0], seed=-1),
    "hash with a huge seed": append("hash", [0], seed=2**63),
    "hash with a seed that is true": append("hash", [0], seed=True),
    "boundaries that are lists": append("bucketize", [0], boundaries={"table": "table2"}),
    "boundaries that are strings": append("bucketize", [0], boundaries={"table": "table5"}),
    "boundaries that are null": append("bucketize", [0], boundaries={"table": "table7"}),
    "boundaries that descend": descending_boundaries,
    "boundaries that are a list": append("bucketize", [0], boundaries=[1, 2]),
    "slice from beyond": edit(lambda d: over_lists(d, "list_slice", start=2**63, end=None)),
    "slice from a fraction": edit(lambda d: over_lists(d, "list_slice", start=0.5, end=None)),
    "padding to a billion": edit(lambda d: over_lists(d, "list_pad", padding=0, length=10**9)),
    "padding to nothing": edit(lambda d: over_lists(d, "list_pad", padding=0, length=0)),
    "padding with a column": edit(lambda d: over_lists(d, "list_pad", length=3)),
    "constant too large": append("constant", [], value=2**64, dtype="uint64"),
    "constant that is an object": append("constant", [], value={"table": "table0"}, dtype="int64"),
    "constant that is null": append("constant", [], value=None, dtype="int64"),
    "constant of bytes": append("constant", [], value=[1, 2], dtype="string"),
    "elements beside rows": edit(elements_beside_rows),
    "a constant repeated": edit(lambda d: repeated(d, "constant", "gather")),
    "lists repeated": edit(lambda d: repeated(d, "gather", "gather")),
    "rows repeated as rows": edit(lambda d: repeated(d, "source", "source")),
    "table that is unknown text": tables(
        lambda held: held.update(
            {"evil.utf8": np.array([255], np.uint8), "evil.offsets": np.array([0, 1])}
        )
    ),
    "table that is cut within a character": tables(
        lambda held: held.update(
            {
                "evil.utf8": np.frombuffer("é".encode(), np.uint8),
                "evil.offsets": np.array([0, 1, 2]),
            }
        )
    ),
}
