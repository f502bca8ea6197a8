"""Benchmarks: one file each, giving questions and judgements. Labels live here and reach no memory and no query."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from hgmem_core.tasks import hotpotqa, locomo, longmemeval, musique
from hgmem_core.tasks.task import Benchmark

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "locomo": Benchmark("LoCoMo", "locomo", False, locomo.read_task),
        "longmemeval": Benchmark("LongMemEval", "longmemeval", False, longmemeval.read_task),
        "hotpotqa": Benchmark("HotpotQA", "hotpotqa", False, partial(hotpotqa.read_task, "hotpotqa")),
        "2wiki": Benchmark("2WikiMultihopQA", "2wiki", False, partial(hotpotqa.read_task, "2wiki")),
        "musique": Benchmark("MuSiQue", "musique", True, musique.read_task),
    }
)
"""Those that measure retrieval, by the name of their task."""
