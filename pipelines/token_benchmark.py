"""How fast texts become search terms, beside bm25s's own tokeniser on the same texts."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from hgmem_core.config import Config, InputConfig, StoreConfig
from hgmem_core.languages import stemmer
from hgmem_core.tokens import tokenizer
from pipelines.benchmark import NOW, spread
from pipelines.import_stage import import_logs
from pipelines.progress import Silent
from pipelines.run import open_run


def log_texts(one: InputConfig, folder: Path) -> list[str]:
    """Return the texts of a log's messages, with who said them in front, by importing it into `folder`."""
    config = Config(store=StoreConfig(root=str(folder / "texts"), buckets=1), inputs=[one])
    with open_run("import", config, NOW, Silent()) as run:
        import_logs(run, config.inputs, config.imports, NOW)
        tables = [
            pq.read_table(path) for path in run.store.files(run.store.root / "outputs", "import/*/bucket-*.parquet")
        ]
    said = [(row["speaker"], row["text"]) for table in tables for row in table.select(["speaker", "text"]).to_pylist()]
    return [f"{speaker}: {text}" if speaker else text for speaker, text in said]


def benchmark_tokens(texts: Sequence[str], repeats: int) -> dict[str, Any]:
    """Measure in one thread, turn by turn, so that what slows one slows the others.

    `hgmem` is what an index does with a text: NFKC where needed, language, stop words, stems, parts of compounds.
    `bm25s` does as much of that as it can: stop words and stems, as words. `bm25s plain` leaves out the stems and
    gives numbers, which is its fastest. The first pass of hgmem, into empty caches, is told apart.

    Args:
        texts: English.
        repeats: Of each, after one that warms up.

    Returns:
        Megabytes (10⁶ characters) a second of CPU: median, least and largest; ratios of the medians.
    """
    # Imported here because it brings in numba where there is one.
    import bm25s

    some = list(texts)
    settings = {"stopwords": "en", "show_progress": False}
    stem = stemmer("english")
    tokenize = tokenizer("english")

    def stemmed(words: list[str]) -> list[str]:
        return [stem(word) for word in words]

    ways: dict[str, Callable[[], object]] = {
        "hgmem": lambda: [tokenize(text) for text in some],
        "bm25s": lambda: bm25s.tokenize(some, stemmer=stemmed, return_ids=False, **settings),
        "bm25s plain": lambda: bm25s.tokenize(some, **settings),
    }
    size = sum(map(len, some)) / 1e6
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, work in ways.items():
            began = time.process_time()
            work()
            speeds[name].append(size / (time.process_time() - began))
    middle = {name: median(found[1:]) for name, found in speeds.items()}
    return {
        "case": "tokens",
        "texts": len(some),
        "characters": sum(map(len, some)),
        "repeats": repeats,
        "first_pass": round(speeds["hgmem"][0], 2),
        "ratio": round(middle["hgmem"] / middle["bm25s"], 2),
        "ratio_to_plain": round(middle["hgmem"] / middle["bm25s plain"], 2),
        "mb_a_cpu_second": {name: spread(found[1:], 2) for name, found in speeds.items()},
    }
