"""The loaders for Keras, PyTorch, JAX and numpy, and Keras callbacks."""
