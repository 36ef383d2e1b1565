"""What came out of runs, read from their folders: no torch here."""
