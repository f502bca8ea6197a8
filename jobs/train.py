"""Train on a benchmark's own data: the model of a recipe, the one that tells when to abstain, or tuned vectors.

`python -m jobs.train locomo --data locomo.json --recipe learned-flat --out models`
`python -m jobs.train musique --data musique.json --corpus musique_corpus.json --recipe hage --out models`
`python -m jobs.train locomo --data locomo.json --recipe hage --out models --set run.train.workers=4`
`python -m jobs.train locomo --data locomo.json --recipe abstention --out models`
`python -m jobs.train locomo --data locomo.json --recipe encoder --licence "CC BY-NC 4.0" --out tuned`
`python -m jobs.train locomo --data locomo.json --recipe heads --licence "CC BY-NC 4.0" --out heads`
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hgmem_core.abstention import ABSTENTION
from hgmem_core.config import Config
from hgmem_core.recipes import RECIPES, model_name
from hgmem_core.section import ConfigError
from hgmem_core.tasks import BENCHMARKS
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
from pipelines.abstention_training import train_abstention
from pipelines.encoders import open_encoder
from pipelines.evaluation import open_task, task_version

if TYPE_CHECKING:
    from pipelines.model_training import Made

TRAINED = [name for name, recipe in RECIPES.items() if model_name(recipe) == name]
"""The recipes under whose names models are trained and kept."""

TUNED = ("encoder", "heads")
"""What `encoder.tuned` names, each in a folder of its own."""


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=list(BENCHMARKS))
    parser.add_argument("--data", required=True, type=Path, metavar="PATH", help="the benchmark's own file")
    parser.add_argument(
        "--corpus", type=Path, metavar="FILE", help="musique: the paragraphs, if not those of the questions"
    )
    parser.add_argument("--recipe", required=True, choices=[*TRAINED, ABSTENTION, *TUNED])
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FOLDER", help="of models to train into; of encoder or heads alone"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn (0)")
    parser.add_argument(
        "--validation", metavar="NAMESPACE", help="whose questions are held back; without one, the last namespace's"
    )
    parser.add_argument("--licence", metavar="NAME", help="encoder, heads: of the data, for what is made of it")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    if arguments.corpus and not BENCHMARKS[arguments.task].takes_corpus:
        raise ConfigError(f"--corpus: {arguments.task} has all in one file; leave it out")
    if not 0 <= arguments.seed < 1 << 32:
        raise ConfigError(f"--seed: {arguments.seed} is not between 0 and {(1 << 32) - 1}")
    if (arguments.recipe in TUNED) != bool(arguments.licence):
        raise ConfigError("--licence: names that of the data for --recipe encoder and heads, and goes with no other")
    if arguments.recipe == ABSTENTION:
        return _train_abstention(arguments, config)
    if arguments.recipe in TUNED:
        return _train_tuned(arguments, config)
    # Imported here because the job's help need not wait for torch; scikit-learn and matplotlib are an extra.
    with training_packages():
        from pipelines.model_training import train_model
    task = _task(arguments)
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        version = task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)
        made = train_model(
            task,
            version,
            config,
            encoder,
            arguments.recipe,
            arguments.validation,
            arguments.seed,
            arguments.out,
            bars,
        )
    if arguments.json:
        write_json(json.loads((made.folder / "manifest.json").read_text(encoding="utf-8")))
    else:
        _show(made, arguments.recipe, arguments.out)
    return 0


def _task(arguments: argparse.Namespace) -> Task:
    """Open the task, which has the namespace that is held back."""
    task = open_task(arguments.task, arguments.data, arguments.corpus)
    namespaces = sorted(set(task.questions.queries.column("namespace").to_pylist()))
    if arguments.validation is not None and arguments.validation not in namespaces:
        raise ConfigError(f"--validation: {arguments.validation!r} is none of {', '.join(namespaces)}")
    return task


def _train_tuned(arguments: argparse.Namespace, config: Config) -> int:
    with training_packages():
        from pipelines.tuned_training import check_folder, encoder_to_tune, train_encoder, train_heads
    check_folder(arguments.out)
    task = _task(arguments)
    encoder = open_encoder(config.encoder)
    base = encoder_to_tune(encoder) if arguments.recipe == "encoder" else None
    how = arguments.validation, arguments.seed, arguments.licence, arguments.out
    with Bars() as bars:
        version = task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)
        if base is None:
            made = train_heads(task, version, config, encoder, *how, bars)
        else:
            made = train_encoder(task, version, config, encoder, base, *how, bars)
    if arguments.json:
        write_json(json.loads((made.folder / "manifest.json").read_text(encoding="utf-8")))
        return 0
    before, after = (made.metrics[when]["recall@10"] for when in ("before", "after"))
    console.print(
        f"{made.metrics['questions']} questions held back: recall@10 {before:.1f} before, {after:.1f} after",
        highlight=False,
    )
    console.print(
        f"[bold]{arguments.recipe}[/] {made.folder} [dim]trained in {made.seconds:,.1f} s[/]", highlight=False
    )
    use = f"--set encoder.tuned={made.folder.resolve()}"
    console.print(f"[bold]use[/] {use}, and rebuild", highlight=False, soft_wrap=True)
    return 0


def _train_abstention(arguments: argparse.Namespace, config: Config) -> int:
    if arguments.validation is not None:
        raise ConfigError(f"--validation: {ABSTENTION} holds back every namespace once; leave it out")
    task = open_task(arguments.task, arguments.data, arguments.corpus)
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        version = task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)
        made = train_abstention(task, version, encoder, arguments.out, bars)
    if arguments.json:
        write_json(json.loads((made.folder / "manifest.json").read_text(encoding="utf-8")))
        return 0
    measured = made.metrics
    console.print(
        f"{measured['questions']} questions, {measured['unanswerable']} of them without an answer; "
        f"namespaces left out: AUROC {measured['auroc']:.3f}, calibration error {measured['calibration_error']:.3f}",
        highlight=False,
    )
    console.print(f"[bold]model[/] {made.folder}", highlight=False)
    use = f"--set retrieve.models={arguments.out.resolve()} --set retrieve.abstain_below=0.5"
    console.print(f"[bold]use[/] {use}", highlight=False, soft_wrap=True)
    return 0


_SHOWN = ("recall@5", "recall@10", "ndcg@10", "mrr", "all@10")


def _show(made: "Made", recipe: str, models: Path) -> None:
    before, after = made.metrics["before"], made.metrics["after"]
    names = [name for name in _SHOWN if name in after]
    table = plain_table(f"{made.metrics['questions']} questions held back", *names)
    for when, measured in (("before", before), ("after", after)):
        table.add_row(f"{when}, {measured['recipe']}", *(f"{measured[name]:.1f}" for name in names))
    console.print(table)
    console.print(f"[bold]model[/] {made.folder} [dim]trained in {made.seconds:,.1f} s[/]", highlight=False)
    console.print(
        f"[bold]use[/] --recipe {recipe} --set retrieve.models={models.resolve()}", highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    run_job(main)
