"""Measure what the library costs, as ratios taken side by side: absolute times do not compare between machines."""
