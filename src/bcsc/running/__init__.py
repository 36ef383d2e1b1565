"""From what is to be run to runs: where the evidence half meets the library half."""
