"""Benchmarks: one file each, giving questions and judgements. Labels live here and reach no memory and no query."""

from collections.abc import Mapping
from types import MappingProxyType

from hgmem_core.tasks import hotpotqa, locomo, musique
from hgmem_core.tasks.task import Benchmark

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "locomo": Benchmark("LoCoMo", "locomo", False, locomo.read_task),
        "hotpotqa": Benchmark("HotpotQA", "hotpotqa", False, hotpotqa.read_task),
        "musique": Benchmark("MuSiQue", "musique", True, musique.read_task),
    }
)
"""Those that measure retrieval, by the name of their task."""
