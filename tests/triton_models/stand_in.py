"""Stand-ins for the few names of `triton_python_backend_utils`, which lives inside Triton."""

import types


class StandInTensor:
    def __init__(self, name, array):
        self.name, self.as_numpy = lambda: name, lambda: array


class StandInError:
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, text, code):
        self.text, self.code = text, code


def backend_utils(folder):
    """The module, for a model in `folder`. A response is its tensors and its error."""
    module = types.ModuleType("triton_python_backend_utils")
    module.get_model_dir = lambda: str(folder)
    module.Tensor, module.TritonError = StandInTensor, StandInError
    module.InferenceResponse = lambda tensors=None, error=None: (tensors, error)
    module.Logger = types.SimpleNamespace(log_error=print)
    return module
