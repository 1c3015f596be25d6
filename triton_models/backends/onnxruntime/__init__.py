"""A backend for ONNX models on a Triton without an onnxruntime backend."""
