"""The loaders of Keras, PyTorch, JAX and numpy, and callbacks of Keras."""
