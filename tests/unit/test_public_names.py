"""What users may touch: every public name can be had, and is where its package says."""

import subprocess
import sys
from importlib import import_module

import pytest

import bcsc

PACKAGES = ("bcsc", "bcsc.optim", "bcsc.data", "bcsc.distributed", "bcsc.integrations", "bcsc.models")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_had(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_and_class_tells_what_it_is_for(package: str) -> None:
    module = import_module(package)
    silent = [name for name in module.__all__ if callable(getattr(module, name)) and not getattr(module, name).__doc__]
    assert silent == []


def test_a_name_that_is_not_there_is_an_attribute_error_as_everywhere() -> None:
    with pytest.raises(AttributeError, match="module 'bcsc' has no attribute 'BlockCyclical'"):
        _ = bcsc.BlockCyclical  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from bcsc.data import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_importing_bcsc_loads_no_torch() -> None:
    probe = "import sys, bcsc; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0
