"""Progress of long work: stages that count rows, and one line on standard error that shows them."""
