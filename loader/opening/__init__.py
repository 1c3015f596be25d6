"""Construction of a loader from its arguments: the data, the device and the epochs."""
