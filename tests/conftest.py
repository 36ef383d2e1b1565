"""Settings for every test: one thread per process, as pytest-xdist shares the cores; properties without a clock.

What bcsc keeps between runs goes to ``build``, or to where XDG_CACHE_HOME says; data sets in the user's cache are still
found.
"""

import os
from contextlib import suppress
from pathlib import Path

from hypothesis import Phase, settings

from bcsc.files import user_cache
from bcsc.training.precision import PrecisionError, make_bfloat16_work

os.environ.setdefault("BCSC_DATA", str(user_cache()))
os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path(__file__).parents[1] / "build" / "cache")
with suppress(PrecisionError):  # where nothing helps, the tests of bfloat16 say so
    make_bfloat16_work()  # before torch is loaded

import torch

torch.set_num_threads(1)
settings.register_profile("bcsc", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000)  # `make fuzz`
unshrunk = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile(
    "mutants", deadline=None, derandomize=True, max_examples=20, phases=unshrunk
)  # `make mutants`
settings.load_profile("bcsc")
