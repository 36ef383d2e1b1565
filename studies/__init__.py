"""Questions that go beyond the paper, and the programs that ask them; beside the package, not in the wheel."""
