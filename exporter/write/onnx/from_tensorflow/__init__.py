"""A network of TensorFlow as an ONNX model."""
