"""Answering questions from what a memory has: by the chat model of `[llm]` at a server, else by statements as they are.

Nothing is kept of a question or its answer, on disk or in the process: questions are as private as logs.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from hgmem_core.abstention import Abstention
from hgmem_core.answer import Answer, Asked, answer_llm, extractive_answer, without_evidence
from hgmem_core.answer_stream import given_numbers, shown_so_far
from hgmem_core.chat import Reply, Request
from hgmem_core.config import Config
from hgmem_core.context import Context
from hgmem_core.model_config import LlmConfig
from hgmem_core.section import ConfigError
from pipelines.calls import Spent
from pipelines.chat_model import BYTES, answered_by, terms_of, tokenizer_file

if TYPE_CHECKING:
    from pipelines.http_chat import HttpChat

Heard = Callable[[str | None], None]
"""Told the parts of an answer's text as they come, and None where what came before counts no more."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and what the model took for it."""

    answer: Answer
    spent: Spent

    def fields(self, context: Context) -> dict[str, Any]:
        """Return it with the statements that it cites, as JSON-ready values."""
        answer = self.answer
        citations = []
        for number in answer.citations:
            one = context.statements[number - 1]
            citations.append({"number": number, "text": one.text, "day": one.date, "turn_ids": list(one.turn_ids)})
        return {
            "outcome": answer.outcome,
            "engine": answer.engine,
            "answer": answer.text,
            "citations": citations,
            "reason": None if answer.reason is None else asdict(answer.reason),
            "refused_citations": list(answer.refused),
            "reasoning": answer.reasoning,
            "passes": answer.passes,
            "tokens": {"prompt": self.spent.prompt_tokens, "completion": self.spent.completion_tokens},
        }


def check_answering(llm: LlmConfig) -> None:
    """Refuse an engine that cannot answer while somebody waits.

    Raises:
        ConfigError: It is vLLM's, which runs in builds alone.
    """
    if llm.engine == "vllm":
        raise ConfigError(
            "llm.engine=vllm runs a model as actors on Ray, in builds alone: no question can wait for that. Serve the "
            "model and set llm.engine=http with llm.http.url, or set llm.engine=none for the best statements as they "
            "are"
        )


class Answerer:
    """Answers a question; may be closed from another thread, and then ends at once."""

    def __init__(self, config: Config) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigError: `llm` names an engine that cannot answer while somebody waits.
        """
        check_answering(config.llm)
        self._chat: HttpChat | None = None
        if config.llm.engine == "http":
            self._llm = _for_answers(config)
            self._chat = _opened(self._llm)

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Cancel what is on its way."""
        if self._chat is not None:
            self._chat.close()

    @property
    def engine(self) -> Literal["llm", "extractive"]:
        """What answers."""
        return "extractive" if self._chat is None else "llm"

    def answer(self, asked: Asked, abstention: Abstention | None, heard: Heard | None = None) -> Told:
        """Answer one question.

        Args:
            asked: The question with its context.
            abstention: What is thought of it; where that abstains, no model is asked.
            heard: Told of the text while it comes, in another thread, which must not wait. A text is told of once it is
                known that it cites what it was given.

        Raises:
            ModelError: The server or the model is of no use: one line that says why and what to change.
        """
        chat = self._chat
        if chat is None:
            return Told(extractive_answer(asked.context, asked.style, abstention), Spent())
        silence = without_evidence(asked.context, abstention, "llm")
        if silence is not None:
            return Told(silence, Spent())
        spent = Spent()
        shown = None if heard is None else _Shown(heard)

        def reply_to(request: Request) -> Reply:
            nonlocal spent
            reply = chat.try_out(request, None if shown is None else shown.of(request))
            spent += Spent.of(reply)
            return reply

        [answer] = answered_by(reply_to, answer_llm([asked], terms_of(self._llm)))
        return Told(answer, spent)


def _opened(llm: LlmConfig) -> "HttpChat":
    # Imported here because whoever has no server need not wait for an HTTP library.
    from pipelines.http_chat import HttpChat

    return HttpChat(llm)


class _Shown:
    """Tells what can be shown of replies while they come."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._shown = ""

    def of(self, request: Request) -> Heard:
        """Return what takes the parts of the reply to a request."""
        given = given_numbers(request)
        reply = ""

        def take(part: str | None) -> None:
            nonlocal reply
            reply = "" if part is None else reply + part
            if part is None and self._shown:
                self._shown = ""
                self._heard(None)
            text = shown_so_far(reply, given)
            if len(text) > len(self._shown):
                self._heard(text[len(self._shown) :])
                self._shown = text

        return take


def _for_answers(config: Config) -> LlmConfig:
    """Return how the model is asked for answers; no server is asked to count tokens while somebody waits."""
    llm, answer = config.llm, config.answer
    http = llm.http.model_copy(update={"timeout_seconds": min(llm.http.timeout_seconds, answer.timeout_seconds)})
    tokenizer = llm.tokenizer if tokenizer_file(llm) else BYTES
    return llm.model_copy(update={"http": http, "max_tokens": answer.max_tokens, "tokenizer": tokenizer})
