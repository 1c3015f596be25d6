"""Between host and GPU a step sends nothing but numbers that stay in the host's memory.

TensorFlow sends a control edge from one to the other as a tensor behind all queued work, so that the
host waits for the GPU in each step.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, types_pb2

HOST_ONLY = {types_pb2.DT_INT32, types_pb2.DT_BOOL}


@pytest.mark.long
@pytest.mark.parametrize("lengths", ["known", "unknown"])
@pytest.mark.parametrize("kind", ["ids", "lists"])
@pytest.mark.parametrize("shard", ["none", "row"])
def test_only_the_hosts_numbers_pass_between_its_devices(shard, kind, lengths, tmp_path):
    graphs = divided_graphs(tmp_path, shard, kind, lengths)
    # The step's are the largest; a batch comes from the host here, and from the GPU's loader there.
    step = max((file for file in graphs if "CPU:1" in file.name), key=lambda f: f.stat().st_size)
    host = max((file for file in graphs if "CPU:0" in file.name), key=lambda f: f.stat().st_size)
    sent = [node for file in (step, host) for node in sends(file)]
    assert len(sent) > 2
    assert [node.name for node in sent if node.attr["T"].type not in HOST_ONLY] == []


def divided_graphs(folder, *arguments):
    """The files of a worker's graphs, one for each function and device."""
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(2)]
        for port in ports:
            port.bind(("localhost", 0))
        addresses = [f"localhost:{port.getsockname()[1]}" for port in ports]
    processes = []
    for rank in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        (folder / str(rank)).mkdir()
        environment = os.environ | {
            "TF_CONFIG": json.dumps(task),
            "TF_DUMP_GRAPH_PREFIX": str(folder / str(rank)),
            "TF_CPP_VMODULE": "graph_partition=5,process_function_library_runtime=5",
            "TF_CPP_MAX_VLOG_LEVEL": "0",
            "TF_CPP_MIN_LOG_LEVEL": "0",
        }
        command = [sys.executable, str(Path(__file__).with_name("two_devices.py")), *arguments]
        with (folder / f"{rank}.log").open("w") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    codes = [process.wait(120) for process in processes]
    assert codes == [0, 0], (folder / "0.log").read_text(errors="replace")[-2000:]
    return [*(folder / "0").glob("partition*")]


def sends(file):
    """The nodes that send to the other device, besides those of the batch."""
    graph = graph_pb2.GraphDef()
    text_format.Parse(file.read_text(), graph)
    return [n for n in graph.node if "Send" in n.op and "IteratorGetNext" not in n.name]
