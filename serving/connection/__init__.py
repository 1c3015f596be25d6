"""The ways to a server: tensors as bytes, gRPC, HTTP and shared memory."""
