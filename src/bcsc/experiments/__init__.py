"""What to run, as data: no torch here."""
