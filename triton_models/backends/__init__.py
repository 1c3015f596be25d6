"""Triton backends written in Python.

Triton reads a backend from one folder, so `tensorflow/model.py` and `onnxruntime/model.py` are each
copied into a folder of the server's backend directory together with the files that they share.
`SHARED_FILES` names these, relative to the folder of our packages; each depends only on those
before it.
"""

SHARED_FILES = (
    "workflow/schema/dtypes.py",
    "workflow/wire/integrity.py",
    "workflow/wire/request_rules.py",
    "triton_models/backends/joint_calls.py",
    "triton_models/backends/model_backend.py",
)
BACKENDS = ("tensorflow", "onnxruntime")
