"""Programs: lists of steps, their files, and transformations of them."""
