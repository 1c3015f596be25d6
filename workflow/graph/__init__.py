"""The graph of operators: nodes, selections, and the columns that each node makes."""
