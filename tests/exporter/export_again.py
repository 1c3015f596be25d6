"""Exports saved networks in a process of its own, which has made other networks before.

Arguments: the folder with a workflow in `workflow` and networks in `<name>.keras`, the folder for the
repositories, and names of networks with their runtimes, such as `mlp:onnx:64`.
"""

import sys
from pathlib import Path

import user_networks

from exporter import ServingOptions, export_tensorflow_ensemble
from training import save_model
from workflow import Workflow


def export_all(folder, repositories, exports):
    """One repository for each of the exports, named as it is."""
    workflow = Workflow.load(folder / "workflow")
    for name in exports:
        network, runtime, batch = name.split(":")
        export_tensorflow_ensemble(
            folder / f"{network}.keras",
            workflow,
            "movies",
            repositories / name.replace(":", "-"),
            [],
            serving=ServingOptions(runtime=runtime, max_batch_size=int(batch)),
        )


if __name__ == "__main__":
    folder, repositories, *exports = sys.argv[1:]
    # Moves the numbers that Keras and TensorFlow give to layers, functions and tables.
    save_model(user_networks.regularised(), Path(repositories) / "other")
    export_all(Path(folder), Path(repositories), exports)
