"""Stand-ins for the few names of `triton_python_backend_utils`, which lives inside Triton."""

import importlib.util
import sys
import types
from pathlib import Path

import triton_models.backends

PACKAGES = Path(triton_models.backends.__file__).parents[2]
BACKENDS = "triton_models/backends"


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
    module.Logger = types.SimpleNamespace(log_error=print, log_warn=print, log_verbose=print)
    return module


def backend_loader(monkeypatch, folder):
    """A function that loads a file of the backends as the server would, for a model in `folder`."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend_utils(folder))

    def load(name, place=BACKENDS):
        spec = importlib.util.spec_from_file_location(name, PACKAGES / place / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    # Their folder on the path would hide the packages of its folders.
    for file in map(Path, triton_models.backends.SHARED_FILES):
        load(file.stem, file.parent)
    return load
