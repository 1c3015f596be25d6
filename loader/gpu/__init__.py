"""The loader's path on an NVIDIA GPU: decoded by cuDF, handed to TensorFlow, never on the host."""
