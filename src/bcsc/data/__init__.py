"""Data sets, outliers and the order in which samples are visited."""
