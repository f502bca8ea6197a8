"""Evolve the skills of a store's current version: prune what does not help, merge what is used alike, publish."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from hgmem_core.config import Config
from hgmem_core.section import ConfigError
from jobs.terminal import Bars, add_config_arguments, console, load_config, now, run_job, summarise, write_json
from pipelines.encoders import open_encoder
from pipelines.feedback_files import Feedback, read_feedback, told_feedback
from pipelines.object_storage import is_url, url_of
from pipelines.skill_evolve import evolve_skills
from pipelines.store import Store
from pipelines.told_outcomes import FOLDER

MOST_CYCLES = 1_000
SHOWN = 3
"""Files of decisions, and namespaces left as they were, that are named; all of them with `--json`."""


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.evolve_skills", description=__doc__)
    parser.add_argument(
        "--feedback", type=Path, metavar="FILE", help="what was shown: .parquet, .jsonl or STORE/feedback"
    )
    parser.add_argument("--replay", action="store_true", help="judge by what would have been shown for the runs learnt")
    parser.add_argument("--cycles", type=int, default=1, metavar="N", help="how often to prune and merge; without it 1")
    add_config_arguments(parser, config_is_optional=False)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    if (arguments.feedback is None) != arguments.replay:
        raise ConfigError("say what to judge skills by: either --feedback FILE or --replay")
    if not 1 <= arguments.cycles <= MOST_CYCLES:
        raise ConfigError(f"--cycles: {arguments.cycles} is not between 1 and {MOST_CYCLES}")
    feedback = None
    if arguments.feedback is not None:
        feedback = _feedback(arguments.feedback, config)
    with Bars() as bars:
        done = evolve_skills(config, open_encoder(config.encoder), feedback, arguments.cycles, now(), bars)
    result: dict[str, object] = {
        "store": config.store.root,
        "version": done.version,
        "evolved_from": done.evolved_from,
        "published": done.is_new,
        "skills_before": done.before,
        "skills_after": done.after,
        "pruned": done.pruned,
        "merged": done.merged,
        "pruned_subtasks": done.pruned_subtasks,
        "kept": done.kept,
    }
    if done.why_kept:
        result["why_kept"] = done.why_kept
    files = [str(path) for path in done.decisions]
    if arguments.json:
        told = {"feedback": done.feedback, "reasons": done.reasons, "left": done.left, "decisions": files}
        write_json({**result, **told, "engine": done.engine.name, "stages": done.report.as_dict()})
        return 0
    summarise(None, done.report, result, str(done.engine), config.llm.prices)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in done.feedback.items())
    console.print(f"[bold]feedback[/] {counts}", highlight=False)
    for reason, count in done.reasons.items():
        console.print(f"  {count} x {escape(reason)}", highlight=False, soft_wrap=True)
    if done.left:
        names = escape(", ".join([*done.left[:SHOWN], *(["…"] if len(done.left) > SHOWN else [])]))
        why = "runs of theirs are forgotten; rebuild, and evolve again"
        console.print(f"[bold]{len(done.left)} namespaces left as they were[/] {names}: {why}", highlight=False)
    for path in files[:SHOWN]:
        console.print(f"[bold]decisions[/] {escape(path)}", highlight=False, soft_wrap=True)
    if len(files) > SHOWN:
        console.print(f"and {len(files) - SHOWN} more files of decisions, named by --json", highlight=False)
    return 0


def _feedback(path: Path, config: Config) -> Feedback:
    if not is_url(path):
        return read_feedback(path, config.imports.max_reject_rate)
    store = Store.open(config.store.root, config.store.cache, config.store.cache_gib)
    if url_of(path) != f"{store}/{FOLDER}":
        raise ConfigError(f"--feedback: of object storage, only {store}/{FOLDER} is read; copy other files to a disk")
    return told_feedback(store, config.imports.max_reject_rate)


if __name__ == "__main__":
    run_job(main)
