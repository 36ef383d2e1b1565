"""Steps in one pass over memory, for numbers on the CPU; compiled by Numba where it is installed."""
