import subprocess
import sys
from pathlib import Path

import pytest

import hgmem_core

HEAVY = ("ray", "torch", "faiss", "vllm", "onnxruntime", "transformers")

OWNERS = (
    "__init__", "data_parallel", "dense", "frontier_policy", "frontier_training", "hage_training", "ivf",
    "reinforce", "router", "walks",
)  # fmt: skip
"""Modules that load one, and the package itself."""


def loaded_by(code):
    """Which heavy packages a fresh interpreter has after running `code`."""
    script = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_the_core_loads_no_heavy_package():
    folder = Path(hgmem_core.__file__).parent
    modules = [path.relative_to(folder.parent).with_suffix("") for path in folder.rglob("*.py")]
    names = [".".join(module.parts) for module in modules if module.name not in OWNERS]
    assert len(names) > 30
    assert loaded_by(f"import {', '.join(names)}") == []


@pytest.mark.parametrize(
    "job", ["import_logs", "rebuild", "query", "evaluate", "quickstart", "benchmark", "tune", "train"]
)
def test_a_jobs_help_waits_for_no_model(job):
    assert not {"ray", "torch", "transformers"} & set(loaded_by(f"import jobs.{job}"))
