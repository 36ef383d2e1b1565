"""One module per goal of docs/performance.md: what is timed against what."""
