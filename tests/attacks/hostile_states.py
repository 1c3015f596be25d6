"""Hostile states of a workflow: what was learnt, and the header that describes it."""

from __future__ import annotations

import json
import os

import numpy as np
from spoiling import (
    DEEP,
    Attack,
    arrays,
    first,
    header,
    number_of,
    set_array,
    sparse,
    state,
)

STATES: dict[str, Attack] = {
    # What was learnt
    "state missing for a node": arrays(
        lambda held: [held.pop(n) for n in list(held) if n.endswith(("mean.values", "std.values"))]
    ),
    "state missing for a column": state("genres.utf8"),
    "state for another column": arrays(
        lambda held: held.update(
            {number_of(held, "userId.values").replace("userId", "x"): np.arange(3)}
        )
    ),
    "state for a node that learns nothing": arrays(
        lambda held: held.update({"0.x.values": np.arange(3)})
    ),
    "state for a node that is not there": arrays(
        lambda held: held.update({"999.x.values": np.arange(3)})
    ),
    "state for no node": arrays(lambda held: held.update({"x.values": np.arange(3)})),
    "state for a node of many digits": arrays(
        lambda held: held.update({"9" * 5000 + ".x.values": np.arange(3)})
    ),
    "state for a node in other digits": arrays(
        lambda held: held.update({"\u0661.x.values": np.arange(3)})
    ),
    "state with a path": arrays(lambda held: held.update({"../../x.values": np.arange(3)})),
    "state with an unknown part": arrays(lambda held: held.update({"1.userId.code": np.arange(3)})),
    "vocabulary of floats": set_array("userId.values", [0.5]),
    "vocabulary of booleans": set_array("userId.values", [True]),
    "vocabulary of two dimensions": set_array("userId.values", [[1], [2]]),
    "vocabulary with nulls": arrays(
        lambda held: held.update(
            {number_of(held, "userId.values").replace("values", "valid"): np.zeros(2, bool)}
        )
    ),
    "moments of integers": set_array("mean.values", [1]),
    "moments too many": set_array("mean.values", [1.0, 2.0]),
    "moments of no columns": set_array("mean.values", np.zeros(0)),
    "table of other length": set_array("column.year.values", np.arange(1)),
    "table without a key": state("table.key0.values"),
    "lengths that do not add up": set_array("column.genres.lengths", np.array([5, 5])),
    "lengths that wrap round": set_array("column.genres.lengths", np.array([2**62, 2**62])),
    "lengths of another dtype": set_array("column.genres.lengths", np.array([1.0, 1.0])),
    "text that is none": set_array("genres.utf8", np.frombuffer(b"\xff\xfe", np.uint8)),
    "text of integers": set_array("genres.utf8", np.arange(2)),
    "offsets in disorder": set_array("genres.offsets", np.array([0, 5, -3, 2])),
    "offsets beyond the text": set_array("genres.offsets", np.array([0, 2**40])),
    "offsets that do not start at 0": set_array("genres.offsets", np.array([1, 2])),
    "no offsets": state("genres.offsets"),
    # The state's header
    "header nested": header(lambda _: b"[" * DEEP),
    "header a list": header(lambda _: b"[]"),
    "header not JSON": header(lambda _: b"\x00" * 64),
    "header with a key twice": header(lambda _: b'{"1.a.values": {}, "1.a.values": {}}'),
    "header longer than the file": lambda f: (
        (f / "state.safetensors").write_bytes(b"\xff" * 8 + b"{}") and None
    ),
    "header of a gigabyte": sparse("state.safetensors", 2**31, (2**30).to_bytes(8, "little")),
    "header cut off": lambda f: os.truncate(f / "state.safetensors", 20),
    "header's length cut off": lambda f: os.truncate(f / "state.safetensors", 3),
    "data cut off": lambda f: os.truncate(
        f / "state.safetensors", (f / "state.safetensors").stat().st_size - 1
    ),
    "data too long": lambda f: os.truncate(
        f / "state.safetensors", (f / "state.safetensors").stat().st_size + 8
    ),
    "arrays that overlap": header(
        lambda h: [e.update(data_offsets=[0, 8], shape=[1], dtype="I64") for e in h.values()] and h
    ),
    "array outside the data": header(lambda h: first(h).update(data_offsets=[2**40, 2**40 + 8])),
    "array at negative offsets": header(lambda h: first(h).update(data_offsets=[-8, 0])),
    "array at infinite offsets": header(
        lambda h: json.dumps(h).replace('"data_offsets": [0', '"data_offsets": [1e999').encode()
    ),
    "array of an unknown dtype": header(lambda h: first(h).update(dtype="PICKLE")),
    "array with a dtype that is a list": header(lambda h: first(h).update(dtype=["I64"])),
    "array of another dtype": header(lambda h: first(h).update(dtype="I8")),
    "array with a shape too large": header(lambda h: first(h).update(shape=[2**62, 2**62])),
    "array with a shape that overflows": header(
        lambda h: first(h).update(shape=[0, 2**62, 2**62], data_offsets=[0, 0])
    ),
    "array with a million dimensions": header(lambda h: first(h).update(shape=[2**62] * 190_000)),
    "array with a negative shape": header(lambda h: first(h).update(shape=[-1])),
    "array with a shape of booleans": header(lambda h: first(h).update(shape=[True])),
    "array with more keys": header(lambda h: first(h).update(code="x")),
    "array that is a string": header(lambda h: h.update({next(iter(h)): "x"})),
}
