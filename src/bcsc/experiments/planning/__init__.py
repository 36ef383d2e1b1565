"""Plans: what may stand in one, and how it is read."""
