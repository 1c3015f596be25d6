"""Writers of model files: Python steps, SavedModels and ONNX."""
