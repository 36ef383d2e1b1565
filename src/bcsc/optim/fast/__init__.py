"""Fast ways of a step, for numbers on the CPU. Each gives the bits of the general way, or says that it did nothing."""
