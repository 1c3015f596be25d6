"""Conversions of single operations that tf2onnx lacks, or gets wrong.

Each is a function of tf2onnx's graph, the node to convert, and its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from exporter.write.onnx.from_tensorflow.segments import SEGMENT_OPERATIONS, reduce_segments
from exporter.write.onnx.from_tensorflow.tf2onnx_graph import (
    add,
    cast,
    constant,
    is_known,
    is_whole,
    known_numbers,
    numpy_dtype,
    replace,
)


def _floor_mod(graph: Any, node: Any, name: str, _: Any) -> None:
    """The remainder with the sign of the divisor; tf2onnx's has the sign of the dividend.

    Not by a quotient rounded down, which for 1 and 0.1 is rounded to 10, where no rest is left.
    """
    x, y = node.input
    if is_whole(graph, x):
        replace(graph, node, "Mod", [x, y])
        return
    zero = constant(graph, f"{name}/zero", 0, graph.get_dtype(x))
    rest = add(graph, "Mod", x, y, fmod=1)
    differ = add(graph, "Xor", *(add(graph, "Less", each, zero) for each in (rest, y)))
    any_left = add(graph, "Not", add(graph, "Equal", rest, zero))
    sum_ = add(graph, "Add", rest, y)
    _choose(graph, node, add(graph, "And", differ, any_left), [sum_, rest])


def _truncated_mod(graph: Any, node: Any, *_: Any) -> None:
    """The remainder with the sign of the dividend; tf2onnx' of integers has the sign of the divisor.

    Not by Mod with fmod=1, for which onnxruntime takes whole numbers as float64.
    """
    x, y = node.input
    if is_whole(graph, x):
        replace(graph, node, "Identity", [_rest(graph, x, y, add(graph, "Div", x, y))])
    else:
        replace(graph, node, "Mod", [x, y], fmod=1)


def _floor_divide(graph: Any, node: Any, *_: Any) -> None:
    """The quotient rounded down; tf2onnx rounds quotients of integers towards zero."""
    x, y = node.input
    if not is_whole(graph, x):
        replace(graph, node, "Floor", [add(graph, "Div", x, y)])
        return
    # Where the quotient was rounded up, its rest is another. (x - rest) / y may wrap around.
    quotient, rest = add(graph, "Div", x, y), add(graph, "Mod", x, y)
    is_same = add(graph, "Equal", rest, _rest(graph, x, y, quotient))
    more = add(graph, "Cast", add(graph, "Not", is_same), to=graph.get_dtype(x))
    replace(graph, node, "Sub", [quotient, more])


def _rest(graph: Any, x: str, y: str, quotient: str) -> str:
    return add(graph, "Sub", x, add(graph, "Mul", quotient, y))


def _kept_cast(graph: Any, node: Any, *_: Any) -> None:
    """A cast; tf2onnx drops a cast before another one, even if it rounds, as 0.5 to 0 before a bool."""
    replace(graph, node, KEPT_CAST, [*node.input], to=graph.get_dtype(node.output[0]))


def _compare(graph: Any, node: Any, *_: Any) -> None:
    """A comparison; tf2onnx compares integers as float32, which rounds those from 2**24 on."""
    names = [*node.input]
    if (number := _of_sign_bit(graph, node)) is not None:
        zero, one = (
            constant(graph, f"{node.name}/{value}", value, graph.get_dtype(number))
            for value in (0, 1)
        )
        # Also for -0.0, since 1 / -0.0 is minus infinity.
        inverse = add(graph, "Less", add(graph, "Div", one, number), zero)
        replace(graph, node, "Or", [add(graph, "Less", number, zero), inverse])
        return
    # Also of int32, which tf2onnx makes int64 where a loop counts.
    if is_whole(graph, names[0]):
        names = [_ranked(graph, name) for name in names]
    replace(graph, node, node.type, names)


def _of_sign_bit(graph: Any, node: Any) -> str | None:
    """The float for whose sign bit, of its bits as an integer, a comparison asks: Keras' argmax does.

    ONNX has no operation for the bits of a number.
    """
    masked = graph.get_node_by_output(node.input[0])
    if node.type != "Less" or masked is None or masked.type != "BitwiseAnd":
        return None
    bits, mask = (graph.get_node_by_output(name) for name in masked.input)
    if bits is None or bits.type != "Bitcast" or not (mask is not None and mask.is_const()):
        return None
    return str(bits.input[0]) if mask.get_tensor_value() == np.iinfo(np.int32).min else None


def _ranked(graph: Any, name: str) -> str:
    """Integers as int64 of the same order."""
    signed = cast(graph, name, onnx.TensorProto.INT64)
    return _flipped(graph, signed) if graph.get_dtype(name) == onnx.TensorProto.UINT64 else signed


def _flipped(graph: Any, name: str) -> str:
    """The int64 with the rank of the uint64 of the same bits, and back."""
    sign = constant(graph, f"{name}/sign", -(2**63), onnx.TensorProto.INT64)
    return add(graph, "Add", name, sign)


def _top_k(graph: Any, node: Any, name: str, _: Any) -> None:
    """The largest values, and their places; tf2onnx ranks all as float32, which has few digits."""
    (values, count), outputs = node.input, [*node.output]
    shapes, dtypes = ([of(each) for each in outputs] for of in (graph.get_shape, graph.get_dtype))
    if is_whole(graph, values):
        values = _ranked(graph, values)
    elif dtypes[0] != onnx.TensorProto.DOUBLE:
        values = cast(graph, values, onnx.TensorProto.FLOAT)
    one = constant(graph, f"{name}/one", [1], onnx.TensorProto.INT64)
    count = add(graph, "Reshape", cast(graph, count, onnx.TensorProto.INT64), one)
    graph.remove_node(node.name)
    largest, places = graph.make_node("TopK", [values, count], output_count=2).output
    if dtypes[0] == onnx.TensorProto.UINT64:
        largest = _flipped(graph, largest)
    for made, output, dtype, shape in zip((largest, places), outputs, dtypes, shapes, strict=True):
        attributes = {"attr": {"to": dtype}, "dtypes": [dtype], "shapes": [shape]}
        graph.make_node("Cast", [made], outputs=[output], **attributes)


def _select(graph: Any, node: Any, name: str, _: Any) -> None:
    """A choice; tf2onnx multiplies both operands by 0 or 1, so a NaN that is not chosen counts."""
    condition, *chosen = node.input
    further = (graph.get_rank(chosen[0]) or 0) - (graph.get_rank(condition) or 0)
    if node.type == "Select" and graph.get_rank(condition) and further > 0:  # it chooses rows
        axes = constant(graph, f"{name}/axes", range(-further, 0), onnx.TensorProto.INT64)
        condition = add(graph, "Unsqueeze", condition, axes)
    _choose(graph, node, condition, chosen)


def _choose(graph: Any, node: Any, condition: str, chosen: list[str]) -> None:
    """Replace a node by one of two values."""
    output = node.output[0]
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    carrier = _CHOSEN_AS.get(dtype, dtype)
    chosen = [cast(graph, name, carrier) for name in chosen]
    if carrier == dtype:
        replace(graph, node, "Where", [condition, *chosen])
        return
    graph.remove_node(node.name)
    choice = graph.make_node("Where", [condition, *chosen], dtypes=[carrier], shapes=[shape])
    attributes = {"attr": {"to": dtype}, "dtypes": [dtype], "shapes": [shape]}
    graph.make_node("Cast", [choice.output[0]], outputs=[output], **attributes)


def _one_hot(graph: Any, node: Any, name: str, _: Any) -> None:
    """A mark at the place of each id, none for one outside; ONNX's OneHot counts -1 as the last id."""
    ids, depth, on, off = node.input
    axis = node.get_attr_value("axis", -1)
    beyond = 0 if axis < 0 else graph.get_rank(ids) - axis
    whole = onnx.TensorProto.INT64
    zero, one = (constant(graph, f"{name}/{number}", number, whole) for number in (0, 1))
    axes = constant(graph, f"{name}/axis", [axis], whole)
    shape = constant(graph, f"{name}/shape", [-1, *[1] * beyond], whole)
    every = add(graph, "Reshape", add(graph, "Range", zero, cast(graph, depth, whole), one), shape)
    indices = add(graph, "Unsqueeze", cast(graph, ids, whole), axes)
    _choose(graph, node, add(graph, "Equal", indices, every), [on, off])


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """1 - erf(x), which the gelu activation needs."""
    erf = add(graph, "Erf", node.input[0])
    one = constant(graph, f"{name}/one", [1], graph.get_dtype(node.output[0]))
    replace(graph, node, "Sub", [one, erf])


def _bucketize(graph: Any, node: Any, name: str, _: Any) -> None:
    """The number of boundaries up to a value, all of them for NaN, as `Discretization` needs it."""
    x = node.input[0]
    if is_whole(graph, x):  # as TensorFlow compares them
        x = cast(graph, x, onnx.TensorProto.FLOAT)
    bounds = constant(
        graph, f"{name}/bounds", node.get_attr_value("boundaries"), graph.get_dtype(x)
    )
    last = constant(graph, f"{name}/last", [-1], onnx.TensorProto.INT64)
    below = add(graph, "Less", add(graph, "Unsqueeze", x, last), bounds)
    reached = add(graph, "Cast", add(graph, "Not", below), to=onnx.TensorProto.INT32)
    replace(graph, node, "ReduceSum", [reached, last], keepdims=0)


def _bound(graph: Any, node: Any, name: str, _: Any) -> None:
    """The places of values among sorted numbers: how many are less, or not greater."""
    numbers, values = node.input
    if is_whole(graph, numbers):
        numbers, values = _ranked(graph, numbers), _ranked(graph, values)
    places = [constant(graph, f"{name}/{axis}", [axis], onnx.TensorProto.INT64) for axis in (1, 2)]
    numbers, values = (
        add(graph, "Unsqueeze", *each) for each in zip((numbers, values), places, strict=True)
    )
    pair = (numbers, values) if node.type == "LowerBound" else (values, numbers)
    below = add(graph, "Less", *pair)
    below = below if node.type == "LowerBound" else add(graph, "Not", below)
    count = cast(graph, below, onnx.TensorProto.INT32)
    count = add(graph, "ReduceSum", count, places[1], keepdims=0)
    replace(graph, node, "Cast", [count], to=graph.get_dtype(node.output[0]))


def _log1p(graph: Any, node: Any, name: str, _: Any) -> None:
    """The logarithm of 1 + x, with the digits of an x near 0 that the sum loses.

    Source: Kahan, in the manual of the HP-15C, 1982: the quotient restores them.
    """
    x = node.input[0]
    one = constant(graph, f"{name}/one", 1, graph.get_dtype(x))
    sum_ = add(graph, "Add", x, one)
    back, logarithm = add(graph, "Sub", sum_, one), add(graph, "Log", sum_)
    restored = add(graph, "Mul", logarithm, add(graph, "Div", x, back))
    near = add(graph, "Where", add(graph, "Equal", sum_, one), x, restored)
    # Also of infinity, by which no quotient is a number.
    _choose(graph, node, add(graph, "Equal", back, x), [logarithm, near])


def _softplus(graph: Any, node: Any, name: str, _: Any) -> None:
    """log(1 + e^x), which from 40 on is x to float64's last digit; onnxruntime's overflows at 710 in float64."""
    (x,) = node.input
    soft = add(graph, "Softplus", x)
    bound = constant(graph, f"{name}/bound", 40, graph.get_dtype(x))
    _choose(graph, node, add(graph, "Greater", x, bound), [x, soft])


def _expm1(graph: Any, node: Any, name: str, _: Any) -> None:
    """e^x - 1, near 0 as 2 t / (1 - t) with t = tanh(x / 2), since the difference would have no digits."""
    x = node.input[0]
    half, one, two = (
        constant(graph, f"{name}/{label}", value, graph.get_dtype(x))
        for label, value in (("half", 0.5), ("one", 1), ("two", 2))
    )
    tanh = add(graph, "Tanh", add(graph, "Mul", x, half))
    near = add(graph, "Div", add(graph, "Mul", tanh, two), add(graph, "Sub", one, tanh))
    far = add(graph, "Sub", add(graph, "Exp", x), one)
    _choose(graph, node, add(graph, "Less", add(graph, "Abs", x), one), [near, far])


def _in_a_list(graph: Any, axes: str, name: str) -> str:
    """The axes of a reduction as ONNX takes them; one may be a number alone."""
    flat = constant(graph, f"{name}/flat", [-1], onnx.TensorProto.INT64)
    return add(graph, "Reshape", cast(graph, axes, onnx.TensorProto.INT64), flat)


def _reduce(
    graph: Any, node: Any, name: str, along: list[int], step: Callable[[str, int], str]
) -> None:
    """A reduction by a step along each of some axes, which leaves one number; without any, by ONNX's own."""
    x, axes = node.input
    axes, keeps = _in_a_list(graph, axes, name), node.get_attr_value("keep_dims", 0)
    if not along:
        options = {"keepdims": keeps, "noop_with_empty_axes": 1}
        replace(graph, node, f"Reduce{node.type}", [x, axes], **options)
        return
    for axis in along:
        x = step(x, axis)
    operator, *inputs = ("Identity", x) if keeps else ("Squeeze", x, axes)
    replace(graph, node, operator, inputs)


def _sum(graph: Any, node: Any, name: str, _: Any) -> None:
    """A sum, or a mean; onnxruntime adds whole numbers in float64, so their upper and lower bits are added apart."""
    x, axes = node.input
    axes = _in_a_list(graph, axes, name)
    options = {"keepdims": node.get_attr_value("keep_dims", 0), "noop_with_empty_axes": 1}
    if not is_whole(graph, x):
        replace(graph, node, f"Reduce{node.type}", [x, axes], **options)
        return
    whole, dtype = onnx.TensorProto.INT64, graph.get_dtype(x)
    signed, base = cast(graph, x, whole), constant(graph, f"{name}/base", 2**32, whole)
    low = add(graph, "Mod", signed, base)
    high = add(graph, "Div", add(graph, "Sub", signed, low), base)
    low, high = (add(graph, "ReduceSum", part, axes, **options) for part in (low, high))
    sum_ = cast(graph, add(graph, "Add", add(graph, "Mul", high, base), low), dtype)
    if node.type == "Mean":
        sizes = add(graph, "Gather", add(graph, "Shape", x), axes)
        count = add(graph, "ReduceProd", sizes, keepdims=0)
        sum_ = add(graph, "Div", sum_, cast(graph, count, dtype))
    replace(graph, node, "Identity", [sum_])


def _add_all(graph: Any, node: Any, *_: Any) -> None:
    """A sum of tensors; onnxruntime's Sum takes no whole numbers."""
    first, *others = node.input
    for other in others:
        first = add(graph, "Add", first, other)
    replace(graph, node, "Identity", [first])


def _shift(graph: Any, node: Any, name: str, _: Any) -> None:
    """The bits of an integer shifted by a number within its width; ONNX shifts those of unsigned ones alone."""
    whole, unsigned = onnx.TensorProto.INT64, onnx.TensorProto.UINT64
    (x, by), dtype = node.input, graph.get_dtype(node.output[0])
    numpy = numpy_dtype(dtype)
    zero, minus_one, most = (
        constant(graph, f"{name}/{number}", number, whole)
        for number in (0, -1, 8 * numpy.itemsize - 1)
    )
    for bound, operator in ((zero, "Less"), (most, "Greater")):
        by = cast(graph, by, whole)
        by = add(graph, "Where", add(graph, operator, by, bound), bound, by)
    x = cast(graph, x, whole) if numpy.kind == "i" else x
    is_negative = (
        add(graph, "Less", x, zero) if node.type == "RightShift" and numpy.kind == "i" else ""
    )

    def mirrored(x: str) -> str:
        """The complement of a negative number, whose shifted bits are those of its shift."""
        return (
            add(graph, "Where", is_negative, add(graph, "Sub", minus_one, x), x)
            if is_negative
            else x
        )

    bits, by = cast(graph, mirrored(x), unsigned), cast(graph, by, unsigned)
    bits = add(graph, "BitShift", bits, by, direction=node.type.removesuffix("Shift").upper())
    shifted = mirrored(cast(graph, bits, whole)) if numpy.kind == "i" else bits
    replace(graph, node, "Identity", [cast(graph, shifted, dtype)])


def _product(graph: Any, node: Any, name: str, _: Any) -> None:
    """A product; onnxruntime multiplies whole numbers in float64, so halves of an axis are multiplied."""
    x, axes = node.input
    sizes: Any = graph.get_shape(x) if is_whole(graph, x) else None
    along = known_numbers(graph, axes) if sizes else []
    if any(sizes[axis] < 1 for axis in along):
        along = []
    _reduce(
        graph, node, name, along, lambda x, axis: _product_along(graph, x, axis, sizes[axis], name)
    )


def _product_along(graph: Any, x: str, axis: int, size: int, name: str) -> str:
    """The product along an axis of a known size, which stays as one of size 1."""
    while size > 1:
        half, odd = divmod(size, 2)
        sizes = [half, half, *[1] * odd]
        lengths = constant(graph, f"{name}/{axis}/{size}", sizes, onnx.TensorProto.INT64)
        options = {"attr": {"axis": axis}, "output_count": len(sizes)}
        first, second, *rest = graph.make_node("Split", [x, lengths], **options).output
        x, size = add(graph, "Mul", first, second), half + odd
        x = add(graph, "Concat", x, *rest, axis=axis) if rest else x
    return x


def _of_two(graph: Any, operator: str, a: str, b: str) -> str:
    """`Max` or `Min` of two numbers.

    Not by the kernels of these names for int64: onnxruntime 1.23 to 1.31 compares it by the lower halves if
    the processor has AVX-512.
    """
    if graph.get_dtype(a) != onnx.TensorProto.INT64:
        return add(graph, operator, a, b)
    return add(graph, "Where", add(graph, _TAKES_FIRST[operator], a, b), a, b)


def _extreme(graph: Any, node: Any, *_: Any) -> None:
    """The greater or the lesser of two numbers."""
    replace(graph, node, "Identity", [_of_two(graph, node.type[:3], *node.input)])


def _bounded(graph: Any, node: Any, name: str, _: Any) -> None:
    """A number within bounds."""
    (x,), dtype = node.input, graph.get_dtype(node.input[0])
    bounds = {
        operator: constant(graph, f"{name}/{operator}", bound, dtype)
        for operator, bound in _BOUNDS[node.type].items()
    }
    if dtype != onnx.TensorProto.INT64:
        is_clip = node.type == "Relu6"
        limits = bounds.values() if is_clip else ()
        replace(graph, node, "Clip" if is_clip else node.type, [x, *limits])
        return
    for operator, bound in bounds.items():
        x = _of_two(graph, operator, x, bound)
    replace(graph, node, "Identity", [x])


def _extreme_along(graph: Any, node: Any, name: str, _: Any) -> None:
    """The greatest or the least number along axes; of int64 its place, as in `_of_two`."""

    def extreme(x: str, axis: int) -> str:
        places = add(graph, f"Arg{node.type}", x, axis=axis)
        return add(graph, "GatherElements", x, places, axis=axis)

    x, axes = node.input
    is_long = graph.get_dtype(x) == onnx.TensorProto.INT64
    _reduce(graph, node, name, known_numbers(graph, axes) if is_long else [], extreme)


def _pad(graph: Any, node: Any, name: str, _: Any) -> None:
    """Padding by a constant; tf2onnx takes uint32 and uint64 for float32, which has few digits."""
    data, pads, *value = node.input
    dtype = graph.get_dtype(data)
    carrier = _CHOSEN_AS.get(dtype, dtype)
    flat = constant(graph, f"{name}/flat", [-1], onnx.TensorProto.INT64)
    # First of all axes at their beginnings, then at their ends.
    pads = add(graph, "Transpose", cast(graph, pads, onnx.TensorProto.INT64))
    pads = add(graph, "Reshape", pads, flat)
    data, *value = (cast(graph, each, carrier) for each in (data, *value))
    inputs = [data, pads, *value]
    if carrier == dtype:
        replace(graph, node, "Pad", inputs)
    else:
        replace(graph, node, "Cast", [add(graph, "Pad", *inputs)], to=dtype)


def _reshape(graph: Any, node: Any, *_: Any) -> None:
    """Another shape; ONNX's own sense of a 0 in one is the size of before, which for an empty list is wrong."""
    x, shape = node.input
    allows_zero = int(not is_known(graph, shape))
    shape = cast(graph, shape, onnx.TensorProto.INT64)
    replace(graph, node, "Reshape", [x, shape], allowzero=allows_zero)


def _scatter(graph: Any, node: Any, name: str, _: Any) -> None:
    """Values added at places of zeros; tf2onnx keeps one of several at a place."""
    places, values, shape = node.input
    zero = constant(graph, f"{name}/zero", [0], graph.get_dtype(values))
    zeros = add(graph, "Expand", zero, cast(graph, shape, onnx.TensorProto.INT64))
    places = cast(graph, places, onnx.TensorProto.INT64)
    replace(graph, node, "ScatterND", [zeros, places, values], reduction="add")


def _power(graph: Any, node: Any, *_: Any) -> None:
    """A power; onnxruntime computes powers of whole numbers in float64, so they become products."""
    x, exponent = node.input
    times = known_numbers(graph, exponent) if is_whole(graph, x) else []
    if len(times) != 1 or times[0] < 1:
        replace(graph, node, "Pow", [x, exponent])
        return
    (left,) = times
    power, square = "", x
    while left:
        if left % 2:
            power = add(graph, "Mul", power, square) if power else square
        left //= 2
        square = add(graph, "Mul", square, square) if left else square
    replace(graph, node, "Identity", [power])


_TAKES_FIRST = {"Max": "Greater", "Min": "Less"}
_BOUNDS = {"Relu": {"Max": 0}, "Relu6": {"Max": 0, "Min": 6}, "Sign": {"Max": -1, "Min": 1}}
# The name of a cast until tf2onnx has finished.
KEPT_CAST = "KeptCast"
# onnxruntime's Where has no kernels for these.
_CHOSEN_AS = {
    onnx.TensorProto.BOOL: onnx.TensorProto.UINT8,
    onnx.TensorProto.INT8: onnx.TensorProto.INT32,
    onnx.TensorProto.INT16: onnx.TensorProto.INT32,
    onnx.TensorProto.UINT16: onnx.TensorProto.INT32,
    onnx.TensorProto.UINT32: onnx.TensorProto.INT64,
    onnx.TensorProto.UINT64: onnx.TensorProto.INT64,
    onnx.TensorProto.FLOAT16: onnx.TensorProto.FLOAT,
    onnx.TensorProto.BFLOAT16: onnx.TensorProto.FLOAT,
}
# By TensorFlow's names.
HANDLERS: dict[str, tuple[Any, list[str]]] = {
    "AddN": (_add_all, []),
    "Bucketize": (_bucketize, []),
    "Cast": (_kept_cast, []),
    "Erfc": (_erfc, []),
    "Expm1": (_expm1, []),
    "FloorDiv": (_floor_divide, []),
    "FloorMod": (_floor_mod, []),
    "Greater": (_compare, []),
    "LeftShift": (_shift, []),
    "Less": (_compare, []),
    "Log1p": (_log1p, []),
    "LowerBound": (_bound, []),
    "Max": (_extreme_along, []),
    "Maximum": (_extreme, []),
    "Mean": (_sum, []),
    "Min": (_extreme_along, []),
    "Minimum": (_extreme, []),
    "Mod": (_truncated_mod, []),
    "OneHot": (_one_hot, []),
    "Pad": (_pad, []),
    "PadV2": (_pad, []),
    "Pow": (_power, []),
    "Prod": (_product, []),
    "Relu": (_bounded, []),
    "Relu6": (_bounded, []),
    "Reshape": (_reshape, []),
    "RightShift": (_shift, []),
    "ScatterNd": (_scatter, []),
    "Select": (_select, []),
    "SelectV2": (_select, []),
    "Sign": (_bounded, []),
    **dict.fromkeys(SEGMENT_OPERATIONS, (reduce_segments, [])),
    "Softplus": (_softplus, []),
    "Sum": (_sum, []),
    "TopKV2": (_top_k, []),
    "TruncateMod": (_truncated_mod, []),
    "UpperBound": (_bound, []),
}
