"""Runs an exported preprocessing step as Triton would, in an interpreter that has numpy and no more.

`triton_python_backend_utils` lives inside Triton; here its few names stand in, so that whatever
else the step imports fails. Arguments: the version folder, a folder with numpy, the config as
JSON, the request and the answer as npz. Writes what was imported beyond the standard library.
"""

import importlib.util
import sys
import types


class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, text, code):
        self.text, self.code = text, code


class InferenceResponse:
    def __init__(self, tensors=None, error=None):
        self.tensors, self.error = tensors, error


class Logger:
    log_warn = log_error = log_verbose = staticmethod(print)


class Request:
    def __init__(self, arrays):
        self._arrays = arrays

    def inputs(self):
        # Strings arrive as an array of bytes objects.
        return [
            Tensor(name, array.astype(object) if array.dtype.kind == "S" else array)
            for name, array in self._arrays.items()
        ]


def main(folder, numpy_at, config, request, answer):
    backend = types.ModuleType("triton_python_backend_utils")
    for name in (Tensor, TritonError, InferenceResponse, Logger):
        setattr(backend, name.__name__, name)
    sys.modules["triton_python_backend_utils"] = backend
    sys.path.insert(0, numpy_at)
    import numpy as np

    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("model", folder + "/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_config": config})
    (response,) = model.execute([Request(np.load(request, allow_pickle=False))])
    assert response.error is None, response.error.text
    np.savez(answer, **{tensor.name(): tensor.as_numpy() for tensor in response.tensors})
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    sys.stdout.write(" ".join(sorted(new - set(sys.stdlib_module_names))))


if __name__ == "__main__":
    main(*sys.argv[1:])
