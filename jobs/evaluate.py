"""Evaluate retrieval, segmentation, abstention, skills or the times of texts on a benchmark's own data.

`python -m jobs.evaluate locomo --data locomo.json --recipes bm25,hybrid --out r.json`
`python -m jobs.evaluate locomo --data locomo.json --cv --seeds 3 --recipes hypergraph,learned-flat --out cv.json`
`python -m jobs.evaluate locomo --data locomo.json --cv --tune encoder --recipes hypergraph,routed:tuned --out cv.json`
`python -m jobs.evaluate hotpotqa --data hotpot_dev_distractor_v1.json --recipes bm25,hybrid --out r.json`
`python -m jobs.evaluate musique --data musique.json --corpus musique_corpus.json --recipes bm25,hybrid --out r.json`
`python -m jobs.evaluate longmemeval --data longmemeval_s.json --recipes bm25,hypergraph --out r.json`
`python -m jobs.evaluate questions --data mine.jsonl --config memory.toml --min recall@10=70 --not-worse-than VERSION`
`python -m jobs.evaluate locomo --data locomo.json --config memory.toml --protocol hypermem --answers a.jsonl`
`python -m jobs.evaluate segmentation --data tiage --split dev --out r.json`
`python -m jobs.evaluate abstention --data locomo.json --out r.json`
`python -m jobs.evaluate skills --data trajectories --recipes skills/full,skills/dense --out r.json`
`python -m jobs.evaluate time --data locomo.json --out r.json`
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgmem_core import segmentation_metrics, skill_metrics
from hgmem_core.answer import PROMPTS
from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.gate import GateFailed, failures, gated, read_floor
from hgmem_core.metrics import METRICS
from hgmem_core.protocols import PROTOCOLS, find_protocol
from hgmem_core.section import ConfigError
from hgmem_core.tasks import BENCHMARKS, own_questions
from hgmem_core.tasks.task import Task
from jobs.terminal import (
    Bars,
    add_config_arguments,
    cache_folder,
    console,
    load_config,
    now,
    plain_table,
    run_job,
    training_packages,
    write_json,
)
from pipelines.abstention_evaluation import evaluate_abstention
from pipelines.answer_evaluation import evaluate_answers
from pipelines.answer_models import opened_models
from pipelines.encoders import open_encoder
from pipelines.evaluation import evaluate_task, open_task, task_version
from pipelines.model_store import stored_for
from pipelines.own_questions import open_own_questions
from pipelines.rerankers import open_reranker
from pipelines.segmentation_evaluation import evaluate_segmentation
from pipelines.skill_evaluation import evaluate_skills
from pipelines.store import Store
from pipelines.time_evaluation import evaluate_times
from pipelines.versions import Version, open_version

if TYPE_CHECKING:
    from pipelines.cross_tuning import View
    from pipelines.training import Example


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.evaluate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=[*BENCHMARKS, own_questions.NAME, *_OTHERS])
    parser.add_argument(
        "--data",
        required=True,
        type=Path,
        metavar="PATH",
        help="the benchmark's own file, or one of your own questions; for segmentation and skills a folder",
    )
    parser.add_argument(
        "--corpus", type=Path, metavar="FILE", help="musique: the paragraphs, if not those of the questions"
    )
    parser.add_argument("--recipes", default="default", metavar="A,B", help="retrieval, skills: recipes to compare")
    parser.add_argument("--split", default="dev", choices=["dev", "train"], help="segmentation: which part of the data")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result document")
    parser.add_argument("--version", help="retrieval: read this version of store.root instead of building one")
    parser.add_argument("--baseline", metavar="A", help="retrieval: report paired differences from this recipe")
    parser.add_argument(
        "--cv", action="store_true", help="retrieval: train recipes with one namespace left out, compare with the first"
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="with --cv: how often each model is trained (1)")
    parser.add_argument(
        "--tune",
        choices=["encoder", "heads"],
        help="with --cv: what makes the tuned vectors of recipes that read some; tuned without what is asked about",
    )
    parser.add_argument(
        "--context-tokens", type=int, metavar="N", help="retrieval: measure all@context under this budget"
    )
    parser.add_argument(
        "--evolve", type=int, default=1, metavar="N", help="skills: cycles of evolution whose loss is measured (1)"
    )
    parser.add_argument(
        "--protocol",
        choices=[*PROTOCOLS],
        help="retrieval: answer the questions, too, and mark the answers so",
    )
    parser.add_argument("--style", choices=[*PROMPTS], help="with --protocol: how answers are worded")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="with --protocol: write each question's answer, marks and tokens"
    )
    parser.add_argument(
        "--min",
        action="append",
        default=[],
        metavar="METRIC=PERCENT",
        dest="floors",
        help="retrieval: fail if a recipe does not reach it; GROUP/METRIC=PERCENT for a group of questions",
    )
    parser.add_argument(
        "--not-worse-than", metavar="VERSION", help="retrieval: fail if a recipe is worse than in this version"
    )
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    is_retrieval = arguments.task not in _OTHERS
    if (arguments.floors or arguments.not_worse_than) and (not is_retrieval or arguments.cv):
        raise ConfigError("--min and --not-worse-than: go with retrieval alone, and not with --cv")
    if arguments.protocol and (not is_retrieval or arguments.cv):
        raise ConfigError("--protocol: goes with retrieval alone, and not with --cv")
    if (arguments.style or arguments.answers) and not arguments.protocol:
        raise ConfigError("--style and --answers: go with --protocol")
    if arguments.corpus and not (arguments.task in BENCHMARKS and BENCHMARKS[arguments.task].takes_corpus):
        raise ConfigError(f"--corpus: {arguments.task} has all in one file; leave it out")
    evaluate, show = _OTHERS.get(arguments.task, (_retrieval, _show_retrieval))
    result = {**evaluate(arguments, config), "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if arguments.json:
        write_json(result)
    else:
        show(result)
        console.print(f"[bold]result[/] {arguments.out or 'not written; name a file with --out'}", highlight=False)
    if failed := failures(result.get("gate", _NO_GATE)):
        raise GateFailed("\n".join(failed))
    return 0


def source_commit() -> str | None:
    """Return the commit of the source tree that this job runs from, or None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _retrieval(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    recipes = _recipes(arguments)
    floors = [read_floor(text) for text in arguments.floors]
    protocol = find_protocol(arguments.protocol, arguments.task) if arguments.protocol else None
    if arguments.context_tokens is not None and arguments.context_tokens < 1:
        raise ConfigError(f"--context-tokens: {arguments.context_tokens} is not at least 1")
    if arguments.seeds is not None and (not arguments.cv or arguments.seeds < 1):
        raise ConfigError("--seeds: goes with --cv, and is at least 1")
    if arguments.tune and (not arguments.cv or arguments.version or config.encoder.tuned):
        raise ConfigError("--tune: goes with --cv, and with neither --version nor encoder.tuned")
    if arguments.tune and arguments.task == own_questions.NAME:
        raise ConfigError("--tune: makes a store of a benchmark's logs; your own questions have none")
    if arguments.cv and (arguments.baseline or arguments.context_tokens):
        raise ConfigError("--cv: takes neither --baseline nor --context-tokens; recipes are compared with the first")
    if arguments.cv and config.rerank.engine != "none":
        raise ConfigError("--cv: compares recipes as they are; leave rerank.engine out")
    encoder = open_encoder(config.encoder)
    reranking = open_reranker(config.rerank)
    with Bars() as bars, opened_models(config, protocol) if protocol else nullcontext() as asked:
        task, version = _asked(arguments, config, encoder, bars)
        if arguments.cv:
            # Imported here, since training brings in torch and scikit-learn, which nothing else of this job needs.
            with training_packages():
                from pipelines.cross_tuning import tuned_views
                from pipelines.cross_validation import cross_validate

            def tune(examples: Sequence["Example"]) -> list["View"]:
                cache = cache_folder("evaluations")
                return tuned_views(arguments.tune, task, examples, config, encoder, cache, now(), bars)

            seeds, views = arguments.seeds or 1, tune if arguments.tune else None
            return cross_validate(task, version, config, encoder, recipes, seeds, bars, views)
        earlier = open_version(version.store, arguments.not_worse_than) if arguments.not_worse_than else None
        models = stored_for(config.retrieve.models, version)
        tokens = arguments.context_tokens
        result = evaluate_task(
            task, version, config, encoder, recipes, bars, arguments.baseline, tokens, reranking, models, earlier
        )
        if protocol and asked:
            answered, rows = evaluate_answers(
                task, version, config, encoder, recipes, protocol, asked, bars,
                arguments.style, tokens, reranking, models,
            )  # fmt: skip
            result |= {**answered, "warnings": [*result["warnings"], *answered["warnings"]]}
            _write_answers(arguments.answers, rows)
    return gated(result, floors, task.learned_from) if floors or earlier else result


def _write_answers(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _asked(arguments: argparse.Namespace, config: Config, encoder: Encoder, bars: Bars) -> tuple[Task, Version]:
    """Return the questions, and the version that is to answer them."""
    if arguments.task == own_questions.NAME:
        version = open_version(Store.open(config.store.root, config.store.cache), arguments.version)
        return open_own_questions(arguments.data, version, encoder), version
    task = open_task(arguments.task, arguments.data, arguments.corpus)
    return task, _version(arguments, task, config, encoder, bars)


def _recipes(arguments: argparse.Namespace) -> list[str]:
    recipes = [name.strip() for name in arguments.recipes.split(",") if name.strip()]
    if not recipes:
        raise ConfigError("--recipes names no recipe")
    return recipes


def _version(arguments: argparse.Namespace, task: Task, config: Config, encoder: Encoder, bars: Bars) -> Version:
    if arguments.version:
        return open_version(
            Store.open(config.store.root, config.store.cache, config.store.cache_gib), arguments.version
        )
    return task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)


def _segmentation(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        return evaluate_segmentation(arguments.data, arguments.split, config, encoder, now(), bars)


def _abstention(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    if arguments.seeds is not None or arguments.cv:
        raise ConfigError("abstention: --cv and --seeds have no place; each conversation is left out, nothing is drawn")
    if arguments.tune or arguments.baseline or arguments.context_tokens is not None or arguments.recipes != "default":
        raise ConfigError("abstention: takes none of --recipes, --tune, --baseline and --context-tokens")
    task = open_task("locomo", arguments.data)
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        version = _version(arguments, task, config, encoder, bars)
        return evaluate_abstention(task, version, config, encoder, bars)


def _skills(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    if arguments.evolve < 0:
        raise ConfigError(f"--evolve: {arguments.evolve} is not at least 0")
    recipes = [config.skills.recipe if name == "default" else name for name in _recipes(arguments)]
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        return evaluate_skills(arguments.data, recipes, arguments.evolve, config, encoder, now(), bars)


def _time(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    return evaluate_times(arguments.data, config)


_NO_GATE: Mapping[str, Any] = {"floors": (), "comparisons": ()}

_SHORT = {f"recall@{k}": f"R@{k}" for k in (2, 5, 10, 20, 30)} | {"ndcg@10": "nDCG", "all@context": "context"}


def _show_retrieval(result: Mapping[str, Any]) -> None:
    metrics = [name for name in (*METRICS, "all@context") if name in result["results"][0]]
    table = plain_table("recipe", "group", "n", *(_SHORT.get(name, name) for name in metrics))
    for row in result["results"]:
        table.add_row(row["recipe"], row["group"], str(row["n"]), *(f"{row[name]:.1f}" for name in metrics))
    console.print(table)
    if "differences" in result:
        table = plain_table("difference", "group", "metric", "points", "95 % interval")
        for row in result["differences"]:
            low, high = row["ci95"]
            points = f"{row['difference']:+.1f}"
            table.add_row(row["recipe"], row["group"], row["metric"], points, f"{low:+.1f} .. {high:+.1f}")
        console.print(table)
    if "answers" in result:
        _show_answers(result["answers"])
    console.print(", ".join(f"{name} {count}" for name, count in result["evidence"].items()), highlight=False)
    for warning in result["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", highlight=False)


def _show_answers(answers: Mapping[str, Any]) -> None:
    metrics = [name for name in ("judge", "f1", "em") if name in answers["results"][0]]
    counted = ("asked", "answered", "abstained", "failed")
    table = plain_table(answers["protocol"], "group", *counted, *metrics, "tokens", "s")
    for row in answers["results"]:
        counts = (str(row[name]) for name in counted)
        spent = f"{row['tokens']['prompt']['mean']:.0f}", f"{row['seconds']['answer']['p50']:.1f}"
        table.add_row(row["recipe"], row["group"], *counts, *(f"{row[name]:.1f}" for name in metrics), *spent)
    console.print(table)


def _show_segmentation(result: Mapping[str, Any]) -> None:
    table = plain_table("system", *segmentation_metrics.METRICS)
    for row in result["results"]:
        table.add_row(row["system"], *(f"{row[name]:.1f}" for name in segmentation_metrics.METRICS))
    console.print(table)
    console.print(
        f"{result['conversations']} conversations, {result['turns']} turns, {result['gold_boundaries']} boundaries",
        highlight=False,
    )


def _show_abstention(result: Mapping[str, Any]) -> None:
    columns = ("system", "AUROC", "95 % interval", "Brier", "calibration error", "abstained", "of the unanswerable")
    table = plain_table(*columns)
    for row in result["results"]:
        low, high = row["ci95"]
        shares = (f"{100 * row[name]:.1f} %" for name in ("abstained_of_answerable", "abstained_of_unanswerable"))
        errors = (f"{row[name]:.3f}" for name in ("brier", "calibration_error"))
        table.add_row(row["system"], f"{row['auroc']:.3f}", f"{low:.3f} .. {high:.3f}", *errors, *shares)
    console.print(table)
    low, high = result["auroc_difference"]["ci95"]
    difference = f"{result['auroc_difference']['difference']:+.3f}"
    console.print(f"difference in AUROC {difference}, {low:+.3f} .. {high:+.3f}", highlight=False)


def _show_skills(result: Mapping[str, Any]) -> None:
    first = result["results"][0]["system"]
    less = {
        (row["dataset"], row["system"]): (row["difference"], *row["ci95"])
        for row in result["skill_differences"]
        if row["metric"] == skill_metrics.COVERAGE
    }
    for dataset in result["datasets"]:
        console.print(f"[bold]{dataset}[/]", highlight=False)
        table = plain_table(
            "system", *(name.partition("_")[0] for name in skill_metrics.SKILL_METRICS), "", "", "tokens"
        )
        for row in result["results"]:
            if row["dataset"] == dataset:
                own = less.get((dataset, row["system"]))
                cells = ("" if row[name] is None else f"{row[name]:.1f}" for name in skill_metrics.SKILL_METRICS)
                beside = ("", "") if own is None else (f"{own[0]:+.1f}", f"{own[1]:+.1f} .. {own[2]:+.1f}")
                table.add_row(row["system"], *cells, *beside, f"{row['context_tokens']:.0f}")
        console.print(table)
    console.print(f"{', '.join(skill_metrics.SKILL_METRICS)}; coverage beside {first}, 95 % interval", highlight=False)
    for row in result["evolution"]:
        for lessons, own in row[skill_metrics.COVERAGE].items():
            low, high = own["ci95"]
            console.print(
                f"{row['dataset']}: evolution takes {row['removed_share']:.0%} of {row['skills']} skills; coverage"
                f" {lessons.replace('_', ' ')} {own['before']:.1f} to {own['after']:.1f}, {own['difference']:+.1f}"
                f" ({low:+.1f} .. {high:+.1f}) beside as many taken at random",
                highlight=False,
            )
    for warning in result["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", highlight=False)


def _show_time(result: Mapping[str, Any]) -> None:
    table = plain_table("words", "n", "placed")
    for row in result["results"]:
        table.add_row(row["kind"], str(row["n"]), f"{row['placed']:.1f} %")
    console.print(table)
    for row in result["results"]:
        shapes = ", ".join(f"{one['shape']} {one['n']}" for one in row["unplaced"][:8])
        console.print(f"{row['kind']}, not placed: {shapes or 'none'}", highlight=False)
    console.print(f"{result['turns']} turns", highlight=False)


_OTHERS = {
    "segmentation": (_segmentation, _show_segmentation),
    "abstention": (_abstention, _show_abstention),
    "skills": (_skills, _show_skills),
    "time": (_time, _show_time),
}
"""Tasks that are no retrieval: what evaluates each, and what shows its result."""

if __name__ == "__main__":
    run_job(main)
