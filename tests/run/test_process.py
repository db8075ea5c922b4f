"""What a run asks of its process."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from ocil.run.process import set_threads

# 48 MB is more than glibc ever keeps by itself: each such block is 12 000 page faults.
FAULTS = """
import resource
import torch

from ocil.run.process import set_threads
from ocil.run.process import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
for _ in range(40):  # small things settle into the first gaps
    torch.ones(12_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(12_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of glibc")
def test_freed_memory_is_used_again_and_not_fetched_anew():
    def faults(keep: bool) -> int:
        words = [sys.executable, "-c", FAULTS.format(keep=keep)]
        return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    usual = faults(False)
    if usual < 100_000:
        pytest.skip("huge pages or another C library: there is nothing to save here")
    assert faults(True) < usual / 4


def test_every_number_of_a_report_is_looked_at() -> None:
    from ocil.learners import registry
    from ocil.run.process import fault
    from ocil.session import Session

    session = Session("er", registry.get("er").settings_type(width=4), (1, 4, 4))
    sound = {"loss": torch.tensor(1.0), "reverse": torch.tensor(2.0)}
    assert fault(session, sound) == ""
    assert fault(session, sound | {"reverse": torch.tensor(math.nan)}) == "the reverse became nan"


@pytest.mark.parametrize(("wanted", "count"), [(1, 1), (3, 3), ("auto", 5)])
def test_as_many_threads_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, wanted: int | str, count: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    before = torch.get_num_threads()
    try:
        assert set_threads(wanted) == count == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
