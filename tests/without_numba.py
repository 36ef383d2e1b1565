"""As on a machine without Numba."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from bcsc.data import feeding
from bcsc.kernels import passes
from bcsc.optim.fast import one_pass, outside


@contextmanager
def without_numba(*, really: bool = True) -> Iterator[None]:
    """No compiled loop is found, unless not really."""
    with ExitStack() as patches:
        for module in (passes, one_pass, outside) if really else ():
            patches.enter_context(mock.patch.object(module, "compiled_loops", return_value=None))
        if really:
            patches.enter_context(mock.patch.object(feeding, "can_feed_in_one_pass", return_value=False))
        yield
