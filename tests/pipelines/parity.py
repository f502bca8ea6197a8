"""Both engines on the same logs: every file of the two stores is equal, byte by byte.

`python -m tests.pipelines.parity --data locomo6.json` compares them on LoCoMo and on a synthetic log of 2,000
namespaces; the tests run a small form of it.
"""

import argparse
import tempfile
from pathlib import Path

from hgmem_core.config import Config, InputConfig, StoreConfig
from hgmem_core.run_config import RayConfig, RunConfig
from pipelines.benchmark import synthetic_input
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.static import StaticEncoder
from pipelines.synthetic import SyntheticLog, write_log
from tests.pipelines.logs import NOW, files_of


def compare(folder, logs):
    """Build logs with both engines; return what was built, and the files that differ or that one store lacks."""
    for engine in ("local", "ray"):
        run = RunConfig(engine=engine, ray=RayConfig(address="local"))
        config = Config(store=StoreConfig(root=str(folder / engine)), inputs=[logs], run=run)
        built = rebuild(config, StaticEncoder(), NOW, Silent()).built
    local, on_ray = files_of(folder / "local"), files_of(folder / "ray")
    return built, [name for name in local.keys() | on_ray.keys() if local.get(name) != on_ray.get(name)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="LoCoMo's own file")
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=2_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = {}
        if arguments.data:
            cases["locomo"] = InputConfig(format="locomo", paths=[str(arguments.data)])
        log = SyntheticLog(arguments.turns, arguments.namespaces)
        cases["synthetic"] = synthetic_input(*write_log(folder / "log", log))
        for case, logs in cases.items():
            built, differing = compare(folder / case, logs)
            result = f"{len(differing)} files differ, such as {differing[:3]}" if differing else "all files are equal"
            print(f"{case}: {built.turns} turns, {built.namespaces} namespaces: {result}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
