"""Asking a chat model at a server what a question asks for, while somebody waits for the hits."""

from dataclasses import dataclass
from datetime import date

from hgmem_core.chat import ModelError
from hgmem_core.config import Config
from hgmem_core.intent_llm import Analyst, Intent, IntentError, intent_llm
from hgmem_core.model_config import LlmConfig
from hgmem_core.section import ConfigError
from pipelines.chat_model import BYTES, answered_by, terms_of

TRY_SECONDS = 20.0
"""For one try of a request, at most, of which there are three: `llm.http.timeout_seconds` is made for builds."""


def open_analyst(config: Config) -> Analyst | None:
    """Return the analyst that a configuration names; None for the rules alone. A server is not asked yet.

    Raises:
        ConfigError: It names one that cannot answer a query.
    """
    if config.retrieve.analysis == "rules":
        return None
    if config.llm.engine != "http":
        why = "no model at all" if config.llm.engine == "none" else "actors on Ray, for which no query can wait"
        raise ConfigError(
            f"retrieve.analysis: llm asks the model of [llm], and llm.engine={config.llm.engine} is {why}; set "
            "llm.engine=http with llm.model and llm.http.url, or retrieve.analysis=rules"
        )
    return ServedAnalyst(config.llm)


@dataclass(frozen=True, slots=True)
class ServedAnalyst:
    """A chat model at a server: one pass, three tries of it, and none of a failure before is held against it.

    Nothing that it says is kept on disk. A byte counts as a token, so that no server is asked to count.
    """

    config: LlmConfig

    def intent(self, namespace: str, question: str, today: date | None) -> Intent:
        """See `hgmem_core.intent_llm.Analyst`."""
        # Imported here because a query without a server need not wait for an HTTP library.
        from pipelines.http_chat import HttpChat

        http = self.config.http
        seconds = min(http.timeout_seconds, TRY_SECONDS)
        asked = http.model_copy(update={"timeout_seconds": seconds})
        config = self.config.model_copy(update={"http": asked, "tokenizer": BYTES})
        steps = intent_llm(namespace, "query", question, today, terms_of(config), most_passes=1)
        try:
            with HttpChat(config) as chat:
                told = answered_by(chat.try_out, steps)
        except ModelError as error:
            raise IntentError(f"{error} (a query waits {seconds:g} s for a try at most)") from error
        if told.outcome == "fallback":
            reason = " ".join((told.reason or "").split())
            raise IntentError(f"{http.url}, model {config.model}: told nothing of the question ({reason})")
        return told
