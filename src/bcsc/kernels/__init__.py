"""Loops that go over memory once; compiled by Numba where it is installed."""
