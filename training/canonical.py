"""SavedModels independent of the process that writes them.

TensorFlow and Keras number functions, operations, layers and lookup tables in the order in which a
process makes them, and TensorFlow adds random ids. A SavedModel contains all of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2


def make_canonical(folder: Path) -> None:
    """Rewrite a SavedModel for inference, so that equal networks have equal files.

    Functions, operations in functions, and lookup tables are named by the order of their use. Names
    of signatures, inputs, outputs and variables stay. The fingerprint, which contains a random id, is
    removed.
    """
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for model in saved.meta_graphs:
        if _has_own_operations(model.graph_def):
            continue
        _rename_functions(model)
        _rename_tables(model.graph_def)
        for function in model.graph_def.library.function:
            _rename_operations(function)
    path.write_bytes(saved.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def _has_own_operations(graph: Any) -> bool:
    """Whether operations are named as functions, as TensorFlow 1 wrote them; they keep all names."""
    functions = {function.signature.name for function in graph.library.function}
    return any(node.op in functions for node in nodes_of(graph))


def nodes_of(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of its functions."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        yield from nodes


def _rename_functions(model: Any) -> None:
    """Name functions in the order of their use, and drop unused ones."""
    library, objects = model.graph_def.library, model.object_graph_def
    functions = {function.signature.name: function for function in library.function}
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name not in names:
            names[name] = functions[name].signature.name = f"function_{len(names)}"
            rename_calls(functions[name].node_def)
        return names[name]

    def rename_calls(nodes: Iterable[Any]) -> None:
        for call in _calls(nodes):
            call.name = renamed(call.name)

    rename_calls(model.graph_def.node)
    for node in objects.nodes:
        _rename_exported(node, renamed)
    described = {renamed(name): types for name, types in objects.concrete_functions.items()}
    objects.ClearField("concrete_functions")
    for name, types in described.items():
        objects.concrete_functions[name].CopyFrom(types)
    library.ClearField("function")
    library.function.extend(functions[name] for name in names)


def _calls(nodes: Iterable[Any]) -> Iterator[Any]:
    """References to functions, as messages with a name."""
    for node in nodes:
        for key in sorted(node.attr):
            attribute = node.attr[key]
            if attribute.HasField("func"):
                yield attribute.func
            yield from attribute.list.func


def _rename_exported(node: Any, renamed: Callable[[str], str]) -> None:
    """Rename the functions of an object that Python can restore."""
    kind = node.WhichOneof("kind")
    if kind == "function":
        names = node.function.concrete_functions
        names[:] = [renamed(name) for name in names]
    elif kind == "bare_concrete_function":
        bare = node.bare_concrete_function
        bare.concrete_function_name = renamed(bare.concrete_function_name)
    elif kind == "captured_tensor":
        captured = node.captured_tensor
        captured.concrete_function = renamed(captured.concrete_function)


def _rename_tables(graph: Any) -> None:
    """Name lookup tables, which several operations share by name."""
    names: dict[bytes, bytes] = {}
    for node in nodes_of(graph):
        shared = node.attr.get("shared_name")
        if shared is not None and shared.s and node.op != "VarHandleOp":
            shared.s = names.setdefault(shared.s, b"table_%d" % len(names))


def _rename_operations(function: Any) -> None:
    """Name operations, arguments and results of a function by their positions."""
    signature, nodes = function.signature, function.node_def
    names = {argument.name: f"argument_{n}" for n, argument in enumerate(signature.input_arg)}
    names |= {node.name: f"{node.op}_{n}" for n, node in enumerate(nodes)}

    def renamed(reference: str) -> str:
        name, colon, output = reference.removeprefix("^").partition(":")
        return f"{'^' * reference.startswith('^')}{names[name]}{colon}{output}"

    for argument in signature.input_arg:
        argument.name = names[argument.name]
    for node in nodes:
        node.name = names[node.name]
        data = [renamed(name) for name in node.input if not name.startswith("^")]
        controls = [renamed(name) for name in node.input if name.startswith("^")]
        node.input[:] = [*data, *sorted(controls)]
        # The gradient of an operation, which only training needs.
        node.attr.pop("_gradient_op_type", None)
    results = [renamed(function.ret[result.name]) for result in signature.output_arg]
    function.ret.clear()
    for n, result in enumerate(signature.output_arg):
        result.name = f"result_{n}"
        function.ret[result.name] = results[n]
    control_outputs = sorted(renamed(name) for name in function.control_ret.values())
    function.control_ret.clear()
    function.control_ret.update({name: name for name in control_outputs})
    signature.control_output[:] = control_outputs
    _clear_numbers(function.arg_attr)


def _clear_numbers(attributes: Any) -> None:
    """Remove the names of captured arguments: TensorFlow's number of a tensor."""
    for argument in attributes.values():
        name = argument.attr.get("_user_specified_name")
        if name is not None and name.s.isdigit():
            del argument.attr["_user_specified_name"]
