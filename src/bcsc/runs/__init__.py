"""From a description of a run to its results: the only place where the library meets the evidence."""
