"""The language models of an evaluation: one that answers, one that judges; each is asked many questions at a time."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.config import Config
from hgmem_core.model_config import LlmConfig
from hgmem_core.protocols import Protocol
from hgmem_core.section import ConfigError
from pipelines.answerers import check_answering
from pipelines.calls import Spent
from pipelines.chat_model import ChatModel, opened_chat, with_tokenizer

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Model:
    """A language model that was tried.

    Attributes:
        llm: Which, and how its tokens are counted.
        chat: Its client.
    """

    llm: LlmConfig
    chat: ChatModel

    def answered(
        self, steps: Generator[list[Request], list[Reply], Made], spent: dict[str, Spent], heard: Callable[[], None]
    ) -> Made:
        """Have requests answered, many at a time, until no more come; return what is made of the replies.

        Args:
            steps: Gives them out.
            spent: What is taken is added, by the row that a request is about.
            heard: Called at the first reply about a row.

        Raises:
            ModelError: The model is of no use any more.
        """
        try:
            requests = next(steps)
            while True:
                replies: dict[int, Reply] = {}
                for place, reply in self.chat.ask(requests):
                    replies[place] = reply
                    row_id = requests[place].row_id
                    if row_id not in spent:
                        heard()
                    spent[row_id] = spent.get(row_id, Spent()) + Spent.of(reply)
                requests = steps.send([replies[place] for place in range(len(requests))])
        except StopIteration as end:
            made: Made = end.value
            return made


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers (None: the best statements do, word for word), and who marks that (None: words are counted)."""

    answers: Model | None
    judges: Model | None


@contextmanager
def opened_models(config: Config, protocol: Protocol) -> Iterator[Models]:
    """Try the models that a protocol takes, before anything else is done.

    Raises:
        ConfigError: The configuration names none that can judge, or one that cannot answer.
        ModelError: A model is not there, or does not answer as it must.
    """
    check_answering(config.llm)
    with ExitStack() as stack:
        answers = _opened(stack, config.llm)
        judges = None
        if protocol.scale is not None:
            named = config.llm if config.judge.engine == "none" else config.judge
            check_answering(named)
            if named.engine == "none":
                raise ConfigError(
                    f"--protocol: {protocol.name} takes a judge: set llm.engine=http with llm.model and llm.http.url, "
                    "or the same of [judge]"
                )
            # The published judges are asked without chance.
            named = named.model_copy(update={"temperature": 0.0})
            try:
                judges = answers if answers is not None and named == config.llm else _opened(stack, named)
            except ModelError as error:
                raise ModelError(f"[judge]: {error}") from error
        yield Models(answers, judges)


def _opened(stack: ExitStack, llm: LlmConfig) -> Model | None:
    chat, _ = stack.enter_context(opened_chat(llm))
    return None if chat is None else Model(with_tokenizer(llm, chat), chat)
