"""What the endpoint answers to a question itself: at once, or as a stream of events while a model writes it.

What is found has the gate and the time of every request. Whoever asks a model then waits at a gate of its own, so that
slow models hold up no search. When a client leaves, its model's request ends, too.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from hgmem_core.abstention import Abstention, Doubt
from hgmem_core.answer import Asked
from hgmem_core.chat import ModelError
from hgmem_core.section import ConfigError
from pipelines.answerers import Answerer, Heard, Told
from pipelines.event_stream import event_text
from pipelines.serve_access import Caller
from pipelines.serve_models import AnswerDelta, QuestionRequest
from pipelines.serve_problems import Problem, log, problem_of
from pipelines.serve_reading import FoundContext, find_context
from pipelines.serve_service import Service


async def answer(
    service: Service, caller: Caller, asked: QuestionRequest, heard: Heard | None = None
) -> dict[str, Any]:
    """Return an answer with its citations, as a `CitedAnswer` that is ready for JSON.

    Args:
        service: What the endpoint has open.
        caller: Who asks.
        asked: The question.
        heard: See `pipelines.answerers.Answerer.answer`.

    Raises:
        Problem: The caller may not, a field cannot be used, the endpoint has no time, or its model cannot be used.
    """
    settings = service.config.answer
    try:
        answerer = Answerer(service.config)
    except ConfigError as error:
        log.error("not answered: %s", error)
        raise Problem(501, _OF_BUILDS_ALONE) from error
    found = await find_context(service, caller, asked, asked.tokens or settings.context_tokens)
    style = asked.style or settings.style
    question = Asked(asked.query, found.context, style, found.today, ", ".join(asked.asked))
    began = time.perf_counter()
    told = await _told(service, answerer, question, _abstention(found), heard)
    spent = {"answer": 1e3 * (time.perf_counter() - began)}
    service.metrics.stages(spent)
    service.metrics.answered(
        told.answer.outcome, told.answer.engine, told.spent.prompt_tokens, told.spent.completion_tokens
    )
    about = {name: value for name, value in found.about.items() if name != "reason"}
    about["timings_ms"] = about["timings_ms"] | spent
    sizes = {"context_tokens": found.context.tokens, "left_out": found.context.left_out}
    return {**about, "style": style, **told.fields(found.context), **sizes}


_OF_BUILDS_ALONE = (
    "this endpoint's model runs in builds alone and answers no questions: serve it and set llm.engine=http, or ask "
    "/v1/context"
)
_NO_MODEL = (
    "the model's server gave no answer that can be used: look whether it runs, as llm.http in the endpoint's "
    "configuration says; ask again later, or ask /v1/context, which needs none"
)


async def _told(
    service: Service, answerer: Answerer, question: Asked, abstention: Abstention | None, heard: Heard | None
) -> Told:
    try:
        async with service.answers.turn():
            return await service.answers.run(lambda: answerer.answer(question, abstention, heard))
    except ModelError as error:
        # Its words may be those of the server, which may repeat the question.
        log.error("not answered: %s, of the server of a language model", type(error).__name__)
        raise Problem(502, _NO_MODEL) from error
    finally:
        # Whoever was cancelled leaves a thread that waits for the model: closing ends that, and joins a thread itself.
        asyncio.get_running_loop().run_in_executor(None, answerer.close)


def _abstention(found: FoundContext) -> Abstention | None:
    told = found.about["abstention"]
    if told is None:
        return None
    reason = told["reason"]
    return Abstention(told["probability"], told["abstains"], None if reason is None else Doubt(**reason))


async def answer_events(service: Service, caller: Caller, asked: QuestionRequest) -> AsyncIterator[str]:
    """Return an answer as events: `delta` with an `AnswerDelta`, at last `answer` with a `CitedAnswer`, or `problem`.

    It is returned with the first event, so that whatever goes wrong before is an ordinary problem.

    Raises:
        Problem: See `answer`.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[AnswerDelta | None] = asyncio.Queue()
    restarts = False

    def heard(part: str | None) -> None:
        nonlocal restarts
        if part is not None:
            loop.call_soon_threadsafe(events.put_nowait, AnswerDelta(text=part, restarts=restarts))
        restarts = part is None

    task = asyncio.create_task(answer(service, caller, asked, heard))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        first = await events.get()
    except asyncio.CancelledError:
        task.cancel()
        raise
    if first is None:
        task.result()  # raises what went wrong
    return _events(first, events, task)


async def _events(
    delta: AnswerDelta | None, events: asyncio.Queue[AnswerDelta | None], task: asyncio.Task[dict[str, Any]]
) -> AsyncIterator[str]:
    try:
        while delta is not None:
            yield event_text("delta", delta.model_dump_json())
            delta = await events.get()
        try:
            yield event_text("answer", json.dumps(task.result()))
        except Exception as error:  # noqa: BLE001 - the status is sent already: any problem is the last event
            yield event_text("problem", problem_of(error).document().decode())
    finally:
        task.cancel()
