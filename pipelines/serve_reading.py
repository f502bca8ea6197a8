"""What the endpoint answers to whoever may read: the same over HTTP and to the tools of agents."""

import time
import uuid
from dataclasses import dataclass
from datetime import date
from typing import Any

from hgmem_core.context import Context
from hgmem_core.lexical import Floats
from pipelines.retriever import Response as Found
from pipelines.serve_access import Caller
from pipelines.serve_around import find_around
from pipelines.serve_memories import answer, find_memory, find_nodes, fused_context, fused_hits
from pipelines.serve_models import Asking, ContextRequest, MemoryRequest, SearchRequest, SkillsRequest
from pipelines.serve_problems import Problem, field_problem
from pipelines.serve_service import Service
from pipelines.serve_versions import Served


async def search(service: Service, caller: Caller, asked: SearchRequest) -> dict[str, Any]:
    """Return turns, facts, episodes and topics for a question, as a `SearchAnswer` that is ready for JSON.

    Raises:
        Problem: The caller may not, a field cannot be used, or the endpoint has no time.
    """
    caller.require("read", asked.asked)
    k = asked.k or service.config.retrieve.k
    if k > service.config.serve.max_k:
        raise field_problem("k", f"at most {service.config.serve.max_k}")
    _check_text(service, "query", asked.query)
    async with service.gate.turn():
        served = service.versions.current
        vector, encoded = await _vector(service, served, asked, wanted=set(asked.levels) != {"turn"})

        def find() -> dict[str, Any]:
            found = _found(service, served, asked, k, asked.explain, None, vector)
            nodes = [
                node
                for level in asked.levels
                if level != "turn" and vector is not None
                for node in find_nodes(served.retriever, asked.asked, vector, level, asked.conditions, k)
            ]
            hits = fused_hits(found, k) if "turn" in asked.levels else []
            around = find_around(served.retriever, hits, asked.conditions) if asked.explain else []
            reranked = any(one.reranked for one in found.values())
            told = {"hits": hits, "nodes": nodes, "hypergraph": around, "reranked": reranked}
            return {**answer(list(found.values())), **told}

        return _timed(service, await service.gate.run(find), encoded)


async def context(service: Service, caller: Caller, asked: ContextRequest) -> dict[str, Any]:
    """Return a text for a prompt, under a budget of tokens, as a `ContextAnswer` that is ready for JSON.

    Raises:
        Problem: See `search`.
    """
    found = await find_context(service, caller, asked, asked.tokens)
    made = found.context
    citations = [
        {"number": number, "text": one.text, "day": one.date, "turn_ids": one.turn_ids}
        for number, one in enumerate(made.statements, 1)
    ]
    told = {"text": made.text, "tokens": made.tokens, "left_out": made.left_out}
    return {**found.about, **told, "citations": citations}


@dataclass(frozen=True, slots=True)
class FoundContext:
    """A context, and what else is said of it.

    Attributes:
        context: Of all namespaces that were asked.
        about: Version, recipe, reason, abstention and timings, ready for JSON.
        today: From when relative times of the question count; None if that is not known.
    """

    context: Context
    about: dict[str, Any]
    today: date | None


async def find_context(service: Service, caller: Caller, asked: Asking, tokens: int) -> FoundContext:
    """Find the statements for a question, under a budget of tokens.

    Raises:
        Problem: See `search`.
    """
    caller.require("read", asked.asked)
    _check_text(service, "query", asked.query)
    async with service.gate.turn():
        served = service.versions.current
        vector, encoded = await _vector(service, served, asked, wanted=False)

        def find() -> FoundContext:
            most = service.config.serve.max_k
            found = _found(service, served, asked, most, False, tokens, vector)
            today = served.retriever.today(asked.asked, asked.as_of)
            made = fused_context(found, tokens, served.retriever)
            return FoundContext(made, answer(list(found.values())), today)

        found = await service.gate.run(find)
        _timed(service, found.about, encoded)
        return found


async def memory(service: Service, caller: Caller, asked: MemoryRequest) -> dict[str, Any]:
    """Return a turn, fact, episode or topic by its id, as a `MemoryAnswer` that is ready for JSON.

    Raises:
        Problem: See `search`; 404 for an id that the namespace has not, somebody else's too.
    """
    caller.require("read", [asked.namespace])
    async with service.gate.turn():
        served = service.versions.current

        def find() -> dict[str, Any] | None:
            index = served.retriever.namespace(asked.namespace)
            return None if index is None else find_memory(index, asked.id)

        found = await service.gate.run(find)
    if found is None:
        raise unknown_id()
    return {"version": served.version.id, "namespace": asked.namespace, **found}


async def skills(service: Service, caller: Caller, asked: SkillsRequest) -> dict[str, Any]:
    """Return skills, mistakes and lessons for a task, as a `SkillsAnswer` that is ready for JSON.

    Raises:
        Problem: See `search`.
    """
    caller.require("read", asked.asked)
    _check_text(service, "task", asked.task)
    told = {"recipe": asked.recipe, "skills": asked.skills, "context_tokens": asked.tokens}
    changed = {name: value for name, value in told.items() if value is not None}
    settings = service.config.skills.model_copy(update=changed)
    libraries = [one for one in settings.libraries if caller.may("read", one)]
    async with service.gate.turn():
        retriever = service.versions.current.retriever
        found = await service.gate.run(lambda: retriever.skills(asked.asked, asked.task, settings, libraries))
        return _timed(service, {"query_id": uuid.uuid4().hex, **found.as_dict()}, {})


def unknown_id() -> Problem:
    """Return the problem of an id that the namespace has not, the same for one that another namespace has."""
    return Problem(404, "the namespace has nothing of that id")


async def _vector(
    service: Service, served: Served, asked: Asking, wanted: bool
) -> tuple[Floats | None, dict[str, float]]:
    """Return the question's vector, if the recipe or what else is `wanted` needs one, and what it took."""
    retriever = served.retriever
    if not wanted and not retriever.wants_vector(_recipe(service, asked)):
        return None, {}
    began = time.perf_counter()
    vector = await service.encode(retriever.encoder, asked.query)
    return vector, {"encode": 1e3 * (time.perf_counter() - began)}


def _recipe(service: Service, asked: Asking) -> str:
    return asked.recipe or service.config.retrieve.recipe


def _found(
    service: Service, served: Served, asked: Asking, k: int, explain: bool, tokens: int | None, vector: Floats | None
) -> dict[str, Found]:
    """Return what each namespace has, all of one version."""
    recipe, filters = _recipe(service, asked), asked.conditions
    return {
        name: served.retriever.search(name, asked.query, recipe, k, filters, explain, tokens, vector)
        for name in asked.asked
    }


def _timed(service: Service, content: dict[str, Any], encoded: dict[str, float]) -> dict[str, Any]:
    content["timings_ms"] |= encoded
    service.metrics.stages(content["timings_ms"])
    return content


def _check_text(service: Service, name: str, text: str) -> None:
    most = service.config.serve.max_text_chars
    if len(text) > most:
        raise field_problem(name, f"it has {len(text)} characters; at most {most}")
