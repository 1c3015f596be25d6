"""TensorFlow's feature columns, converted to a workflow and to arguments of the layers."""
