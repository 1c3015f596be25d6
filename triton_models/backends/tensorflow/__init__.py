"""A backend for `platform: "tensorflow_savedmodel"` models on a Triton without a TensorFlow backend."""
