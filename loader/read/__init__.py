"""Reading of row groups into blocks of ordered or shuffled rows on the CPU, and damaged row groups."""
