"""Any optimizer as a base: what it does to its parameters and state, and whether it can be stepped block by block."""
