"""What a step does with a block beside letting the base step: put back what it must not change, and scale moves."""
