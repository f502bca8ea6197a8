import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "faiss", "vllm", "onnxruntime", "transformers")


def loaded_by(code):
    """Which heavy packages a fresh interpreter has after running `code`."""
    script = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_the_core_loads_no_heavy_package():
    modules = "config, embeddings, encoding, evaluation, ids, importers, index, lexical, messages, metrics, recipes"
    rest = "schemas, search, tasks.locomo, text, times, tokens, turns"
    names = [f"hgmem_core.{name.strip()}" for name in f"{modules}, {rest}".split(",")]
    assert loaded_by(f"import hgmem_core, {', '.join(names)}") == []


@pytest.mark.parametrize("job", ["import_logs", "rebuild", "query", "evaluate", "quickstart", "benchmark"])
def test_a_jobs_help_waits_for_no_model(job):
    assert not {"ray", "torch", "transformers"} & set(loaded_by(f"import jobs.{job}"))
