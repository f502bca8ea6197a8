"""Flips bits in the files of a version and cuts them short: what is damaged is refused by name, or is no difference.

python -m tests.pipelines.damage_marks --trials 1000
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hgmem_core.config import config_from
from hgmem_core.model_config import EncoderConfig
from hgmem_core.stage_config import SkillsConfig
from pipelines.encoders import open_encoder
from pipelines.files import StoreError
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.version_history import Reach
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import HOUSEHOLD, runs, runs_input, write_runs

USERS = ("ana", "bo", "chen")
QUESTIONS = ("the red bicycle", "who was in Lisbon?")
ENCODER = open_encoder(EncoderConfig(name="static"))


def make(folder):
    """A store of messages and of runs in two buckets."""
    log = write_jsonl(folder / "log.jsonl", rows(USERS))
    tree = config_of(folder / "store", log, buckets=2).model_dump()
    ran = runs_input(write_runs(folder / "runs.jsonl", runs(USERS[:2])))
    return run(config_from({**tree, "inputs": [*tree["inputs"], ran]})).store


def kinds_of(store):
    """The files that a version is made of or found by, by kind: a file's name, or the stage that it is of."""
    version = open_version(store)
    found = {
        "store.json": [store.root / "store.json"],
        "pointer": sorted((store.root / "current").glob("*.json")),
        "manifest": [store.root / "versions" / version.id / "manifest.json"],
    }
    for folder in sorted(Reach(store).of(version.manifest)):
        is_served = folder.parent.name.startswith("index")
        for path in sorted(folder.glob("*")):
            found.setdefault(f"{folder.parent.name}/{path.name}" if is_served else folder.parent.name, []).append(path)
    return found


def answers(root):
    """What everybody is told who asks, as text."""
    retriever = Retriever(open_version(Store.open(root)), ENCODER)
    found = []
    for user in USERS:
        for question in QUESTIONS:
            found.append(retriever.search(f"acme/{user}", question, recipe="hybrid").as_dict())
        found.append(retriever.search(f"acme/{user}", QUESTIONS[0]).as_dict())
        for task, _ in HOUSEHOLD.values():
            found.append(retriever.skills(f"acme/{user}", task.format(thing="egg"), SkillsConfig()).as_dict())
    for one in found:
        one.pop("timings_ms", None)
    return json.dumps(found, sort_keys=True)


def damaged(content, chance):
    """The content with one bit flipped, or cut short; and which."""
    if chance.random() < 0.5:
        return "cut", content[: chance.randrange(len(content))]
    place = chance.randrange(8 * len(content))
    altered = bytearray(content)
    altered[place // 8] ^= 1 << place % 8
    return "flipped", bytes(altered)


def trial(store, path, content, wanted):
    """Ask with a damaged file in place; say how that went."""
    before = path.read_bytes()
    path.unlink()  # whoever has mapped the file keeps it
    path.write_bytes(content)
    try:
        return "harmless" if answers(store.root) == wanted else "served"
    except StoreError as error:
        return (
            "refused" if path.relative_to(store.root).as_posix() in str(error) else f"refused without its name: {error}"
        )
    finally:
        path.unlink()
        path.write_bytes(before)


def trials(store, count, seed):
    """Damage files of all kinds in turn; return how often which of them was refused, harmless, or worse."""
    chance = random.Random(seed)
    kinds, wanted = kinds_of(store), answers(store.root)
    found: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for number in range(count):
        kind = list(kinds)[number % len(kinds)]
        path = chance.choice(kinds[kind])
        how, content = damaged(path.read_bytes(), chance)
        found[kind][f"{how}: {trial(store, path, content, wanted)}"] += 1
    assert answers(store.root) == wanted
    return found


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m tests.pipelines.damage_marks", description=__doc__)
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = trials(make(Path(folder)), arguments.trials, arguments.seed)
    sums = sum(found.values(), Counter())
    sys.stdout.write(json.dumps({"kinds": len(found), "all": dict(sums), "by_kind": found}, indent=1) + "\n")
    return 0 if all(how.endswith(("refused", "harmless")) for how in sums) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
