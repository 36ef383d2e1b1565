import resource
import subprocess
import sys

import pytest

FAULTS_OF_A_LARGE_TENSOR = """
import resource, sys, torch
from bcsc.training.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for step in range(20):  # the heap settles after a few
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_freed_tensor_is_used_again_without_page_faults() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS_OF_A_LARGE_TENSOR, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    pages = 2**26 // resource.getpagesize()
    assert faults("keep") < pages / 100 < faults("leave")
