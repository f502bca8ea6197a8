"""An invented result document, of which everything a report shows can be told beforehand."""

import copy

EVIL = "<img src=x onerror=\"alert('run')\"><script>alert('run')</script>"

_MISSED = {
    "turn_id": "t1",
    "source_id": "D1:1",
    "speaker": "Ana",
    "text": f"The wiki says {EVIL}",
    "rank": 427,
    "why": "cut",
    "legs": {"bm25/turn": 5, "dense/turn": None},
}


def row(recipe, group, recall, n=40):
    names = ("recall@5", "recall@10", "recall@20", "recall@30", "ndcg@10", "hit@10", "mrr", "all@10")
    interval = [recall - 4.0, recall + 4.0]
    return {
        "recipe": recipe,
        "group": group,
        "n": n,
        **dict.fromkeys(names, recall),
        "ci95": {"recall@10": interval, "ndcg@10": interval},
    }


def difference(recipe, metric, points, low, high):
    return {
        "recipe": recipe,
        "baseline": "bm25",
        "group": "1-4",
        "metric": metric,
        "difference": points,
        "ci95": [low, high],
        "by_conversation": {"locomo/a": points, "locomo/b": -1.0},
    }


def question(recipe, text, missed):
    return {
        "recipe": recipe,
        "query_id": "q1",
        "namespace": "locomo/a",
        "group": "1",
        "question": text,
        "evidence": 2,
        "not_in_version": 0,
        "missed": missed,
        "first": [{"turn_id": "t9", "source_id": "D9:9", "speaker": "Bo", "text": "No idea.", "is_evidence": False}],
        "recall@10": 50.0,
    }


_RESULT = {
    "schema_version": 1,
    "task": "locomo",
    "data_sha256": "0" * 64,
    "index_version": "abcdefabcdefabcd",
    "software_version": "0.1.0",
    "commit": None,
    "encoder": {"name": "static", "weights_sha256": "1" * 64, "dimension": 256},
    "config": {"store": {"root": EVIL}},
    "config_sha256": "2" * 64,
    "prompts_sha256": None,
    "evidence": {
        "questions": 41,
        "questions_left_out": 1,
        "evidence": 80,
        "evidence_repaired": 0,
        "evidence_dropped": 0,
    },
    "warnings": ["locomo/a has 15 turns: recall@20 and deeper is 100 there whatever the recipe"],
    "results": [
        row("bm25", "1-4", 50.0),
        row("bm25", "1", 30.0, 10),
        row("bm25", "4", 60.0, 30),
        row("hypergraph", "1-4", 70.0),
        row("hypergraph", "1", 44.5, 10),
        row("hypergraph", "4", 80.0, 30),
        row("hypermem", "1-4", 51.0),
        row("hypermem", "1", 31.0, 10),
        row("hypermem", "4", 61.0, 30),
    ],
    "differences": [
        difference("hypergraph", "recall@10", 20.0, 15.0, 25.0),
        difference("hypergraph", "ndcg@10", 20.0, 15.0, 25.0),
        difference("hypermem", "recall@10", 1.0, -2.0, 4.0),
        difference("hypermem", "ndcg@10", 1.0, -2.0, 4.0),
    ],
    "worst": {
        "k": 10,
        "group": "1-4",
        "ranked": 1000,
        "evidence_by_rank": [
            {"recipe": "bm25", "1-10": 40, "11-30": 20, "31-100": 10, "101-": 8, "never": 2},
            {"recipe": "hypergraph", "1-10": 60, "11-30": 10, "31-100": 6, "101-": 4, "never": 0},
        ],
        "questions": [
            question("bm25", "Who plays the violin?", [{**_MISSED, "rank": None, "why": "never_found"}]),
            question("hypergraph", f"What does {EVIL} mean?", [_MISSED]),
            question("hypermem", "Where is Pip?", [{**_MISSED, "rank": None, "why": "topic_missed", "legs": {}}]),
        ],
    },
    "gate": {
        "passed": False,
        "floors": [
            {
                "recipe": "hypergraph",
                "group": "1-4",
                "metric": "recall@10",
                "at_least": 75.0,
                "value": 70.0,
                "passed": False,
            }
        ],
        "comparisons": [],
    },
}


def invented_result(**changes):
    """Return the document with some parts changed; a part that is None is left out."""
    changed = copy.deepcopy(_RESULT) | changes
    return {name: value for name, value in changed.items() if value is not None or name in ("commit", "prompts_sha256")}
