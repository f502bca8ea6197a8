"""A stage whose output changes must raise its revision: stores reuse what has the same name.

If this fails after an intended change, raise the stage's revision constant and write the file anew with
`python -m tests.pipelines.test_golden`.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from hgmem_core.consolidate import CONSOLIDATE_REVISION
from hgmem_core.extract import EXTRACT_REVISION
from hgmem_core.group import GROUP_REVISION
from hgmem_core.index import INDEX_REVISION
from hgmem_core.relate import RELATE_REVISION
from hgmem_core.segment import SEGMENT_REVISION
from hgmem_core.tokens import TOKENS_REVISION
from hgmem_core.turns import MERGE_REVISION
from pipelines.import_stage import IMPORT_REVISION
from pipelines.store import open_arrow
from tests.pipelines.logs import config_of, run, write_jsonl

GOLDEN = Path(__file__).parents[1] / "data" / "golden.json"
TALK = [
    "We moved to Lisbon last Friday, at 3.5 kilometres from the harbour!",
    "How is the new flat? Did Nadia like it?",
    "Tiny, but she loves it. I start at the library on 2 May 2024.",
    "我上周五去了北京大学。",
    "I like tea. By the way, my cello lesson is on Tuesday.",
    "I dislike tea. Café crème for me, please.",
]

# What is compared has no float in it, since those may differ in their last bits from one processor to another.
COLUMNS = {
    "import": ("bucket-*.parquet", "message_id text said_at sequence row attachments", IMPORT_REVISION),
    "merge": ("turns.parquet", "turn_id session_id position text said_at revision", MERGE_REVISION),
    "segment": ("episodes.parquet", "episode_id turn_ids title summary started_at ended_at", SEGMENT_REVISION),
    "extract": (
        "facts.parquet",
        "fact_id text keywords queries entities place time_phrase valid_from valid_to turn_ids",
        EXTRACT_REVISION,
    ),
    "consolidate": ("facts.parquet", "fact_id support superseded_by valid_to turn_ids", CONSOLIDATE_REVISION),
    "group": ("incidences.parquet", "hyperedge_id node_id role", GROUP_REVISION),
    "relate turns": ("turn_relations.parquet", "source_id target_id", RELATE_REVISION),
    "relate facts": ("fact_relations.parquet", "source_id target_id", RELATE_REVISION),
    "index": ("postings.arrow", "token turn_rows window_rows prior_rows session_rows graph_rows", INDEX_REVISION),
}


def outputs():
    """For each stage its revision and a digest of what it makes of a small log."""
    rows = [
        {
            "id": f"m{number}",
            "user": user,
            "session": f"s{number // 6}",
            "time": f"2024-03-{1 + number // 6:02d}T18:{number % 6:02d}:00+00:00",
            "speaker": ("Ana", "Bo")[number % 2],
            "text": f"{TALK[number % 6]} ({user} {number // 12})",
        }
        for user in ("ana", "chen")
        for number in range(36)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        run(config_of(store, write_jsonl(Path(folder) / "log.jsonl", rows), buckets=1))
        found = {}
        for stage, (pattern, columns, revision) in COLUMNS.items():
            [path] = store.glob(f"outputs/{stage.split()[0]}/*/{pattern}")
            table = open_arrow(path) if path.suffix == ".arrow" else pq.read_table(path)
            text = json.dumps(table.select(columns.split()).to_pylist(), default=str, ensure_ascii=False)
            digest = hashlib.sha256(text.encode()).hexdigest()[:32]
            found[stage] = {"revision": revision, "tokens": TOKENS_REVISION, "digest": digest}
    return found


def test_no_output_changes_without_a_new_revision():
    golden = json.loads(GOLDEN.read_text())
    found = outputs()
    assert found.keys() == golden.keys()
    for stage, now in found.items():
        before = golden[stage]
        if now["digest"] != before["digest"]:
            unchanged = (now["revision"], now["tokens"]) == (before["revision"], before["tokens"])
            assert not unchanged, f"stage {stage} gives another output: raise its revision, then write the golden file"
    assert found == golden, "a revision changed: write the golden file anew"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(outputs(), indent=1) + "\n")
