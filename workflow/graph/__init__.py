"""The graph of operators: nodes, selections, and what each makes of the columns."""
