"""The loader's path on an NVIDIA GPU: cuDF decodes, TensorFlow takes over; rows stay on the GPU."""
