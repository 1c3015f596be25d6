"""A network of PyTorch: `python torch_network.py FOLDER`, in an environment that has PyTorch alone.

Reads `ids.npy` and `dense.npy`, and writes the network by both exporters of `torch.onnx`, its answers
`clicks.npy`, and one whose rows are fixed.
"""

import sys
from pathlib import Path

import numpy as np
import torch


class Network(torch.nn.Module):
    """A table of users and a dense layer, to a number for each row."""

    def __init__(self, users, width):
        super().__init__()
        self.users = torch.nn.Embedding(users, 4)
        self.hidden = torch.nn.Linear(4 + width, 8)
        self.last = torch.nn.Linear(8, 1)

    def forward(self, ids, dense):
        joined = torch.cat([self.users(ids[:, 0]), dense], dim=1)
        return torch.sigmoid(self.last(torch.relu(self.hidden(joined)))).squeeze(1)


def main(folder):
    torch.manual_seed(0)
    given = [torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("ids", "dense")]
    network = Network(int(given[0].max()) + 1, given[1].shape[1]).eval()
    with torch.no_grad():
        np.save(folder / "clicks.npy", network(*given).numpy())
    names = {"input_names": ["ids", "dense"], "output_names": ["click"]}
    rows = torch.export.Dim("rows")
    shapes = {"ids": {0: rows}, "dense": {0: rows}}
    target = folder / "program.onnx"
    torch.onnx.export(network, tuple(given), target, dynamo=True, dynamic_shapes=shapes, **names)
    axes = {name: {0: "rows"} for name in ("ids", "dense", "click")}
    traced = {"dynamo": False, "opset_version": 17}
    torch.onnx.export(
        network, tuple(given), folder / "traced.onnx", dynamic_axes=axes, **traced, **names
    )
    torch.onnx.export(network, tuple(given), folder / "fixed.onnx", **traced)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
