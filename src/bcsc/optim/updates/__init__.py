"""What an update mask may do with a move besides making it or not."""
