"""Ask a store: `python -m jobs.query QUESTION --store STORE --namespace acme/alice`.

With `--answer` it gives an answer and what that stands on. With `--skills TASK` in the place of a question, it says
what past runs of agents teach for that task.
"""

import argparse
from collections.abc import Sequence
from typing import get_args

from rich.markup import escape
from rich.padding import Padding

from hgmem_core.abstention import Abstention
from hgmem_core.answer import Asked
from hgmem_core.config import AnswerStyle, Config
from hgmem_core.context import NO_CONTEXT, UNDATED
from hgmem_core.model_config import PACKAGED_ENCODERS, EncoderConfig, EncoderName
from hgmem_core.search import Filters
from hgmem_core.section import ConfigError
from hgmem_core.summarise import shorten
from jobs.terminal import add_config_arguments, console, load_config, override, run_job, time_argument, write_json
from pipelines.analysts import open_analyst
from pipelines.answerers import Answerer, Told
from pipelines.encoders import open_encoder, tuned_vectors
from pipelines.model_store import models_for
from pipelines.rerankers import open_reranker
from pipelines.retriever import Response, Retriever
from pipelines.skill_response import SkillResponse
from pipelines.skill_retriever import check_asked
from pipelines.store import Store
from pipelines.versions import Version, open_version


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.query", description=__doc__)
    parser.add_argument("question", nargs="?", help="what turns and facts are to be found for")
    parser.add_argument(
        "--skills", metavar="TASK", help="what is to be done: finds skills, mistakes and lessons for it"
    )
    parser.add_argument(
        "--answer", action="store_true", help="an answer with its citations: by the model of [llm] at a server, if any"
    )
    parser.add_argument("--style", choices=get_args(AnswerStyle), help="how an answer is worded")
    parser.add_argument("--store", metavar="STORE", help="the store's root")
    parser.add_argument(
        "--namespace",
        required=True,
        action="append",
        help="whose memory is asked: exactly this one; with --skills up to eight, each with an option of its own",
    )
    parser.add_argument("--version", help="a version's id; without one, the current version")
    parser.add_argument("--encoder", choices=PACKAGED_ENCODERS, help="without one, the encoder that made the version")
    parser.add_argument("--recipe", help="how to retrieve, such as bm25, hybrid, default or skills/full")
    parser.add_argument("--k", type=int, help="the most hits, or skills and mistakes")
    parser.add_argument(
        "--from", dest="said_from", metavar="TIME", type=time_argument, help="said at this time or later"
    )
    parser.add_argument("--until", dest="said_until", metavar="TIME", type=time_argument, help="said before this time")
    parser.add_argument("--imported-from", metavar="TIME", type=time_argument, help="imported at this time or later")
    parser.add_argument("--imported-until", metavar="TIME", type=time_argument, help="imported before this time")
    parser.add_argument("--speaker", help="said by this speaker")
    parser.add_argument("--session", help="said in this session")
    parser.add_argument("--as-of", metavar="TIME", type=time_argument, help="the memory as it stood at this time")
    parser.add_argument("--explain", action="store_true", help="show each list's rank and score")
    parser.add_argument("--context-tokens", type=int, metavar="N", help="a text for a prompt, of at most N tokens")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments, [override("store.root", arguments.store)] if arguments.store else [])
    try:
        namespaces = check_asked(arguments.namespace)
    except ValueError as error:
        raise ConfigError(f"--namespace: {error}") from error
    if (arguments.question is None) == (arguments.skills is None):
        raise ConfigError("ask either a QUESTION or for --skills TASK")
    k = config.retrieve.k if arguments.k is None else arguments.k
    if not 1 <= k <= 1_000:
        raise ConfigError(f"--k: {k} is not between 1 and 1000")
    if arguments.context_tokens is not None and arguments.context_tokens < 1:
        raise ConfigError(f"--context-tokens: {arguments.context_tokens} is not at least 1")
    if arguments.skills is not None:
        return _skills(arguments, config, namespaces)
    if len(namespaces) > 1:
        raise ConfigError("--namespace: a QUESTION is asked of one namespace; several go with --skills")
    answerer = Answerer(config) if arguments.answer else None
    tokens = arguments.context_tokens or (config.answer.context_tokens if arguments.answer else None)
    analyst = open_analyst(config)
    version = open_version(Store.open(config.store.root, config.store.cache, config.store.cache_gib), arguments.version)
    encoder = open_encoder(_encoder(config.encoder, arguments.encoder, version))
    models = models_for(config.retrieve.models, version)
    tuned = tuned_vectors(config.encoder, encoder.identity)
    retriever = Retriever(
        version, encoder, open_reranker(config.rerank), models, tuned, config.retrieve.abstain_below, analyst
    )
    response = retriever.search(
        namespaces[0],
        arguments.question,
        arguments.recipe or config.retrieve.recipe,
        k,
        Filters(
            said_from=arguments.said_from,
            said_until=arguments.said_until,
            ingested_from=arguments.imported_from,
            ingested_until=arguments.imported_until,
            speaker=arguments.speaker,
            session_id=arguments.session,
            as_of=arguments.as_of,
        ),
        arguments.explain,
        tokens,
    )
    if answerer is not None:
        today = retriever.today(namespaces[:1], arguments.as_of)
        asked = Asked(
            arguments.question,
            response.context or NO_CONTEXT,
            arguments.style or config.answer.style,
            today,
            namespaces[0],
        )
        with answerer:
            return _answer(answerer, asked, response, arguments.json)
    if arguments.json:
        write_json(response.as_dict())
    else:
        show(response, arguments.explain)
    return 0


def _answer(answerer: Answerer, asked: Asked, response: Response, as_json: bool) -> int:
    """Print an answer, for people while it comes; return 1 if the model gave none that can be used."""
    shown: list[str] = []

    def heard(part: str | None) -> None:
        if part is None:
            console.print("[yellow] … the model begins anew[/]", highlight=False)
            shown.clear()
        else:
            shown.append(part)
            console.print(escape(part), end="", highlight=False, soft_wrap=True)

    told = answerer.answer(asked, response.abstention, None if as_json else heard)
    if as_json:
        about = {"version": response.version, "recipe": response.recipe, "style": asked.style}
        write_json({**about, **told.fields(asked.context)})
    else:
        show_answer(told, asked, response, "".join(shown))
    return int(told.answer.outcome == "failed")


def show_answer(told: Told, asked: Asked, response: Response, shown: str) -> None:
    """Print what is left of an answer for people: its text as far as it was not shown, and what it stands on."""
    answer = told.answer
    left = answer.text.removeprefix(shown)
    if shown and len(left) == len(answer.text):
        console.print()  # another text than the one that was shown
    if shown or left:
        console.print(escape(left), highlight=False, soft_wrap=True)
    if answer.reason is not None:
        word = "abstains" if answer.outcome == "abstained" else "no answer"
        why = f"{answer.reason.code}: {escape(answer.reason.text)}"
        console.print(f"[yellow]{word}[/] {why}", highlight=False, soft_wrap=True)
    for number in answer.citations:
        one = asked.context.statements[number - 1]
        about = f"[dim]{escape(one.date or UNDATED)}  {', '.join(one.turn_ids)}[/]"
        console.print(f"[bold]\\[{number}][/]  {about}", highlight=False, soft_wrap=True)
        console.print(Padding(escape(one.text), (0, 0, 0, 3)), highlight=False)
    if answer.refused:
        console.print(f"[yellow]citations refused[/] {', '.join(map(str, answer.refused))}", highlight=False)
    by = "the best statements, word for word" if answer.engine == "extractive" else "a language model"
    tokens = f", {told.spent.prompt_tokens} + {told.spent.completion_tokens} tokens" if told.spent.calls else ""
    console.print(f"[dim]by {by}{tokens}; recipe {response.recipe}, version {response.version}[/]", highlight=False)


_MOST_LESSONS = 10
"""That are printed for people."""

_OF_QUESTIONS = (
    "said_from", "said_until", "imported_from", "imported_until", "speaker", "session", "as_of", "explain", "answer",
    "style",
)  # fmt: skip


def _skills(arguments: argparse.Namespace, config: Config, namespaces: Sequence[str]) -> int:
    if any(getattr(arguments, name) for name in _OF_QUESTIONS):
        raise ConfigError("--skills takes no filter of what was said, no --explain and no --answer: leave them out")
    asked = {"recipe": arguments.recipe, "skills": arguments.k, "context_tokens": arguments.context_tokens}
    settings = config.skills.model_copy(update={name: value for name, value in asked.items() if value is not None})
    version = open_version(Store.open(config.store.root, config.store.cache, config.store.cache_gib), arguments.version)
    encoder = open_encoder(_encoder(config.encoder, arguments.encoder, version))
    response = Retriever(version, encoder).skills(namespaces, arguments.skills, settings, settings.libraries)
    if arguments.json:
        write_json(response.as_dict())
    else:
        show_skills(response, arguments.context_tokens is not None)
        missing = [name for name in namespaces if name not in response.namespaces]
        if missing and response.namespaces:
            console.print(f"[yellow]without runs in this version[/] {escape(', '.join(missing))}", highlight=False)
    return 0


def _encoder(configured: EncoderConfig, asked: EncoderName | None, version: Version) -> EncoderConfig:
    """Return the encoder that was asked for, else the packaged one that made the version, else the configured one."""
    built = version.manifest["encoder"]["name"]
    name = asked or (built if built in PACKAGED_ENCODERS else configured.name)
    return configured if name == configured.name else EncoderConfig(name=name, cache_dir=configured.cache_dir)


def show(response: Response, explain: bool) -> None:
    """Print hits for people."""
    if response.intent_failure is not None:
        console.print(f"[yellow]analysed by rules[/] {escape(response.intent_failure)}", highlight=False)
    if response.rerank_failure is not None:
        console.print(f"[yellow]not reranked[/] {escape(response.rerank_failure)}", highlight=False)
    if response.abstention is not None:
        console.print(_told(response.abstention), highlight=False, soft_wrap=True)
    if response.context is not None:
        console.print(escape(response.context.text), highlight=False, soft_wrap=True)
        console.print(
            f"[dim]{response.context.tokens} tokens, recipe {response.recipe}, version {response.version}[/]",
            highlight=False,
        )
        return
    if not response.hits:
        console.print(f"nothing found: {response.reason}", highlight=False)
    for hit in response.hits:
        when = hit.said_at.strftime("%Y-%m-%d %H:%M UTC") if hit.said_at else "time unknown"
        source = f"{hit.session_id} {hit.source_id or hit.turn_id}"
        who = hit.speaker or hit.role or "somebody"
        console.print(f"[bold]{hit.rank}[/]  {when}  [bold]{escape(who)}[/]  [dim]{escape(source)}[/]", highlight=False)
        console.print(Padding(escape(hit.text), (0, 0, 0, 3)), highlight=False)
        if explain and hit.legs:
            legs = ", ".join(f"{name} #{rank} ({score:.3f})" for name, (rank, score) in hit.legs.items())
            console.print(Padding(f"[dim]score {hit.score:.4f}: {legs}[/]", (0, 0, 0, 3)), highlight=False)
    console.print(f"[dim]recipe {response.recipe}, version {response.version}[/]", highlight=False)


def show_skills(response: SkillResponse, as_context: bool) -> None:
    """Print skills, mistakes and lessons for people, or the text for a prompt."""
    about = f"[dim]recipe {response.recipe}, version {response.version}[/]"
    if as_context:
        console.print(escape(response.context), highlight=False, soft_wrap=True)
        console.print(f"[dim]{response.context_tokens} tokens,[/] {about}", highlight=False)
        return
    if response.reason is not None:
        console.print(f"nothing found: {response.reason}", highlight=False)
    for title, skills in (("skills", response.skills), ("mistakes to avoid", response.mistakes)):
        if skills:
            console.print(f"[bold]{title}[/]", highlight=False)
        for skill in skills:
            scores = f"weight {skill.weight:.4g}, cosine {skill.cosine:.3f}, γ {skill.utility:.2f}"
            went = f"{skill.succeeded} of {skill.shown} runs succeeded"
            own = f"{_whose(response, skill.namespace)}{skill.skill_id}"
            console.print(f"[bold]{skill.rank}[/]  [bold]{escape(skill.name)}[/]  [dim]{own}[/]", highlight=False)
            console.print(Padding(escape(skill.text), (0, 0, 0, 3)), highlight=False)
            taught_by = escape(", ".join(skill.taught_by))
            console.print(Padding(f"[dim]{scores}; {went}; from {taught_by}[/]", (0, 0, 0, 3)), highlight=False)
    shown = response.lessons[:_MOST_LESSONS]
    if shown:
        console.print("[bold]lessons[/]", highlight=False)
    for lesson in shown:
        source = f"{_whose(response, lesson.namespace)}{escape(lesson.source_id or lesson.trajectory_id)}"
        console.print(f"[bold]{lesson.rank}[/]  [bold]{lesson.outcome}[/]  [dim]{source}[/]", highlight=False)
        console.print(Padding(escape(lesson.text), (0, 0, 0, 3)), highlight=False)
        task = escape(shorten(lesson.task, 200))
        console.print(Padding(f"[dim]cosine {lesson.cosine:.3f}; {task}[/]", (0, 0, 0, 3)), highlight=False)
    if len(shown) < len(response.lessons):
        console.print(f"[dim]{len(response.lessons) - len(shown)} lessons more, with --json[/]", highlight=False)
    console.print(about, highlight=False)


def _whose(response: SkillResponse, namespace: str) -> str:
    """Return whose something is, where several namespaces answered."""
    return f"{escape(namespace)} " if len(response.namespaces) > 1 else ""


def _told(abstention: Abstention) -> str:
    """Return how likely there is an answer, and what speaks against it."""
    likely = f"the memory holds the answer with probability {abstention.probability:.2f}"
    doubt = "" if abstention.reason is None else f"; {abstention.reason.code}: {escape(abstention.reason.text)}"
    return f"[yellow]abstains[/] {likely}{doubt}" if abstention.abstains else f"[dim]{likely}{doubt}[/]"


if __name__ == "__main__":
    run_job(main)
