"""ONNX models of the preprocessing and of the network."""
