"""See it work: index the chat log that comes with hgmem and ask it twenty questions."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.padding import Padding

from jobs.terminal import (
    Bars,
    add_config_arguments,
    console,
    load_config,
    now,
    override,
    run_job,
    summarise,
    write_json,
)
from pipelines.encoders import open_encoder
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.versions import open_version

HERE = Path(__file__).parent
NAMESPACE = "demo/friends"
SHOWN = 3


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.quickstart", description=__doc__)
    parser.add_argument("--out", default="quickstart-store", metavar="STORE", help="the store's root")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    arguments.config = arguments.config or str(HERE / "configs" / "quickstart.toml")
    log = override("inputs.0.paths", [str(HERE / "data" / "quickstart_log.jsonl")])
    config = load_config(arguments, [log, override("store.root", arguments.out)])
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        done = rebuild(config, encoder, now(), bars)
    retriever = Retriever(open_version(done.store), encoder)
    lines = (HERE / "data" / "quickstart_questions.jsonl").read_text(encoding="utf-8").splitlines()
    answers = []
    for question in map(json.loads, lines):
        response = retriever.search(NAMESPACE, question["question"], k=SHOWN)
        rank = next((hit.rank for hit in response.hits if hit.source_id in question["answer_turns"]), None)
        answers.append({"question": question["question"], "rank": rank, "hits": response.as_dict()["hits"]})
    found = sum(answer["rank"] is not None for answer in answers)
    seconds = time.perf_counter() - began
    if arguments.json:
        write_json({"answered": found, "questions": len(answers), "seconds": seconds, "answers": answers})
        return 0
    for answer in answers:
        hit = answer["hits"][(answer["rank"] or 1) - 1]
        mark = f"[green]found at {answer['rank']}[/]" if answer["rank"] else "[red]missed[/]"
        console.print(f"[bold]{escape(answer['question'])}[/]  {mark}", highlight=False)
        cited = (
            f"[dim]{hit['said_at'][:10]} {escape(hit['source_id'])}[/] {escape(hit['speaker'])}: {escape(hit['text'])}"
        )
        console.print(Padding(cited, (0, 0, 0, 3)), highlight=False)
    console.print()
    summarise(
        done.imported,
        done.built.report,
        {
            "answered": f"{found} of {len(answers)} with the right turn among the first {SHOWN}",
            "seconds": f"{seconds:.1f}",
            "store": config.store.root,
            "ask more": f"python -m jobs.query 'Where does Tilda work now?' --store {config.store.root} "
            f"--namespace {NAMESPACE}",
        },
    )
    return 0


if __name__ == "__main__":
    run_job(main)
