"""Opening of a loader's data and device."""
