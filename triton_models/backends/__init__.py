"""Triton backends written in Python.

Triton reads a backend from one folder, so `tensorflow/model.py` and `onnxruntime/model.py` each
go into a folder of the server's backend directory together with the files of this folder that
they share. `SHARED_FILES` names them.
"""

SHARED_FILES = ("joint_calls.py", "limits.py", "model_backend.py")
BACKENDS = ("tensorflow", "onnxruntime")
