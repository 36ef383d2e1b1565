"""More than one process: the same algorithm with each mini-batch split, or several inner steps at once."""
