"""Many runs: what they cost, where they are carried out, and how far they are."""
