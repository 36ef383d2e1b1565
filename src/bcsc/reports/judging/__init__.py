"""From runs to the numbers that decide a claim."""
