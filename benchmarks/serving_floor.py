"""The least that an ensemble of two Python models can take: the same tensors, and no work."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

# Reads what it is sent, as any model must, and answers with zeros.
MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.answer = {}
        for tensor in config["output"]:
            width = abs(int(tensor["dims"][0]))
            dtype = pb_utils.triton_string_to_numpy(tensor["data_type"])
            self.answer[tensor["name"]] = np.zeros((1, width), dtype)

    def execute(self, requests):
        responses = []
        for request in requests:
            for tensor in request.inputs():
                tensor.as_numpy()
            tensors = [pb_utils.Tensor(*item) for item in self.answer.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
"""


def write_floor(repository: Path, name: str, floor: str) -> None:
    """Copies the configs of an ensemble of runtime "tensorflow", for requests of one row.

    Args:
        repository: the model repository.
        name: the ensemble.
        floor: the name of the copy.
    """
    for suffix in ("_nvt", "_tf", ""):
        config = model_config_pb2.ModelConfig()
        text_format.Parse((repository / f"{name}{suffix}" / "config.pbtxt").read_text(), config)
        config.name = f"{floor}{suffix}"
        config.ClearField("model_warmup")
        for step in config.ensemble_scheduling.step:
            step.model_name = floor + step.model_name.removeprefix(name)
        for group in config.instance_group:
            group.name = config.name
            group.kind = model_config_pb2.ModelInstanceGroup.KIND_CPU
        version = repository / config.name / "1"
        version.mkdir(parents=True)
        if suffix:
            config.ClearField("platform")
            config.backend = "python"
            (version / "model.py").write_text(MODEL)
        (version.parent / "config.pbtxt").write_text(text_format.MessageToString(config))
