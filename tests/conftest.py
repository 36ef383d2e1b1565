"""Settings for every test: one thread per process, as pytest-xdist shares the cores; properties without a clock."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("bcsc", deadline=None, derandomize=True)
settings.load_profile("bcsc")
