"""TensorFlow's feature columns as a workflow, and columns for the layers."""
