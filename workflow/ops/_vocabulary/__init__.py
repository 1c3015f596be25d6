"""What Categorify is made of: the values that have ids, how they are counted, and where ids lie."""
