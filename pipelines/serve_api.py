"""The endpoint's HTTP interface: routes under `/v1`, each a few lines around what finds, and the guard before them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version as software_version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer

from hgmem_core.lexical import Floats
from pipelines.retriever import Response as Found
from pipelines.serve_access import Caller
from pipelines.serve_guard import Guard, caller_of
from pipelines.serve_memories import answer, find_memory, find_nodes, fused_context, fused_hits, stats
from pipelines.serve_models import (
    Asking,
    ContextAnswer,
    ContextRequest,
    ForgetAnswer,
    ForgetRequest,
    Health,
    MemoryAnswer,
    MemoryRequest,
    NamespaceRequest,
    OutcomeAnswer,
    OutcomeRequest,
    RollbackRequest,
    SearchAnswer,
    SearchRequest,
    SkillsAnswer,
    SkillsRequest,
    StatsAnswer,
    VersionAnswer,
)
from pipelines.serve_problems import PROBLEM_TYPE, Problem, ProblemDocument, add_problem_handlers, field_problem
from pipelines.serve_service import Service
from pipelines.serve_versions import Served
from pipelines.told_outcomes import Row, add_outcome
from pipelines.tombstone_files import Tombstone, add_tombstones

Who = Annotated[Caller, Depends(caller_of)]


def make_app(service: Service) -> FastAPI:
    """Return the application; more routes may be added to it, and apps mounted, behind the same guard."""

    @asynccontextmanager
    async def watching(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(service.watch())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(
        title="hgmem",
        version=software_version("hgmem"),
        description="Long-term memory for agents: what was said, with its sources, and what past runs teach.",
        lifespan=watching,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
    )
    problems = {"model": ProblemDocument, "content": {PROBLEM_TYPE: {}}}
    known = {status: {**problems, "description": why} for status, why in _PROBLEMS.items()}
    router = APIRouter(prefix="/v1", responses=known, dependencies=[Depends(HTTPBearer(auto_error=False))])
    _add_reading(router, service)
    _add_skills(router, service)
    _add_forgetting(router, service)
    _add_running(router, service)
    app.include_router(router)
    _add_open(app, service)
    add_problem_handlers(app)
    app.add_middleware(
        Guard, config=service.config.serve, access=service.access, metrics=service.metrics, audit=service.audit
    )
    return app


_PROBLEMS: dict[int | str, str] = {
    400: "The body is no JSON.",
    401: "No good key.",
    403: "Outside of what the key may do.",
    404: "There is no such thing; alike for what is somebody else's.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    421: "The endpoint is not asked under that name.",
    422: "A field cannot be used.",
    429: "Too many requests wait; `Retry-After` says when to come again.",
    503: "The memory cannot be read right now.",
    504: "It took too long.",
}


def _add_reading(router: APIRouter, service: Service) -> None:
    @router.post("/search", response_model=SearchAnswer)
    async def search(asked: SearchRequest, caller: Who) -> Response:
        """Find turns, facts, episodes and topics for a question."""
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
                reranked = any(one.reranked for one in found.values())
                return {**answer(list(found.values())), "hits": hits, "nodes": nodes, "reranked": reranked}

            return _answered(service, await service.gate.run(find), encoded)

    @router.post("/context", response_model=ContextAnswer)
    async def context(asked: ContextRequest, caller: Who) -> Response:
        """Return a text for a prompt, under a budget of tokens, with citations."""
        caller.require("read", asked.asked)
        _check_text(service, "query", asked.query)
        async with service.gate.turn():
            served = service.versions.current
            vector, encoded = await _vector(service, served, asked, wanted=False)

            def find() -> dict[str, Any]:
                most = service.config.serve.max_k
                found = _found(service, served, asked, most, False, asked.tokens, vector)
                made = fused_context(found, asked.tokens, served.retriever)
                citations = [
                    {"number": number, "text": one.text, "day": one.date, "turn_ids": one.turn_ids}
                    for number, one in enumerate(made.statements, 1)
                ]
                told = {"text": made.text, "tokens": made.tokens, "left_out": made.left_out}
                return {**answer(list(found.values())), **told, "citations": citations}

            return _answered(service, await service.gate.run(find), encoded)

    @router.post("/memories/get", response_model=MemoryAnswer)
    async def get_memory(asked: MemoryRequest, caller: Who) -> Response:
        """Return a turn, fact, episode or topic by its id, with its sources and hyperedges."""
        caller.require("read", [asked.namespace])
        async with service.gate.turn():
            served = service.versions.current

            def find() -> dict[str, Any] | None:
                index = served.retriever.namespace(asked.namespace)
                return None if index is None else find_memory(index, asked.id)

            found = await service.gate.run(find)
        if found is None:
            raise _unknown_id()
        return JSONResponse({"version": served.version.id, "namespace": asked.namespace, **found})

    @router.post("/namespaces/stats", response_model=StatsAnswer)
    async def namespace_stats(asked: NamespaceRequest, caller: Who) -> Response:
        """Say how much there is of a namespace."""
        caller.require("read", [asked.namespace])
        async with service.gate.turn():
            served = service.versions.current
            counts = await service.gate.run(lambda: stats(served.retriever, asked.namespace))
        return JSONResponse({"version": served.version.id, "namespace": asked.namespace, **counts})


def _add_skills(router: APIRouter, service: Service) -> None:
    @router.post("/skills/search", response_model=SkillsAnswer)
    async def search_skills(asked: SkillsRequest, caller: Who) -> Response:
        """Find skills, mistakes and lessons for a task."""
        caller.require("read", [asked.namespace])
        _check_text(service, "task", asked.task)
        told = {"recipe": asked.recipe, "skills": asked.skills, "context_tokens": asked.tokens}
        changed = {name: value for name, value in told.items() if value is not None}
        settings = service.config.skills.model_copy(update=changed)
        async with service.gate.turn():
            retriever = service.versions.current.retriever
            found = await service.gate.run(lambda: retriever.skills(asked.namespace, asked.task, settings).as_dict())
            return _answered(service, {"query_id": uuid.uuid4().hex, **found}, {})

    @router.post("/skills/outcome", response_model=OutcomeAnswer)
    async def tell_outcome(asked: OutcomeRequest, caller: Who) -> Response:
        """Tell how a run went that skills were shown to; the next evolution of skills judges by it."""
        caller.require("write", [asked.namespace])
        now = service.now()
        rows = [
            Row(
                namespace=asked.namespace,
                query_id=asked.query_id,
                node_kind=one.kind,
                node_id=one.id,
                shown_at=now,
                outcome=asked.outcome,
                n_steps=asked.n_steps,
            )
            for one in {(one.kind, one.id): one for one in asked.shown}.values()
        ]
        async with service.gate.turn():
            served = service.versions.current

            def keep() -> bool | None:
                if not served.retriever.has_skill_nodes(
                    asked.namespace, [(row.node_kind, row.node_id) for row in rows]
                ):
                    return None
                return add_outcome(service.versions.store, rows)

            is_new = await service.gate.run(keep)
        if is_new is None:
            raise _unknown_id()
        return JSONResponse({"is_new": is_new})


def _add_forgetting(router: APIRouter, service: Service) -> None:
    @router.post("/forget", response_model=ForgetAnswer)
    async def forget(asked: ForgetRequest, caller: Who) -> Response:
        """Forget a turn, a session, a run, or all of a namespace; the next build leaves it out, too."""
        caller.require("write", [asked.namespace])
        scope, target = asked.target
        row = Tombstone(namespace=asked.namespace, scope=scope, id=target, deleted_at=service.now())

        def hide() -> dict[str, int]:
            retriever = service.versions.current.retriever
            before = stats(retriever, asked.namespace)
            number = add_tombstones(service.versions.store, [row])
            service.versions.refresh_tombstones()
            after = stats(retriever, asked.namespace)
            return {"tombstone": number, **{name: before[name] - after[name] for name in ("turns", "runs")}}

        async with service.gate.turn():
            hidden = await service.gate.run(hide)
        service.audit.write("forget", caller.key_id, namespace=asked.namespace, scope=scope, id=target, **hidden)
        return JSONResponse(hidden)


def _add_running(router: APIRouter, service: Service) -> None:
    @router.get("/version", response_model=VersionAnswer)
    async def version(caller: Who) -> Response:
        """Say which version is served."""
        return _version(service)

    @router.post("/version/rollback", response_model=VersionAnswer)
    async def roll_back(asked: RollbackRequest, caller: Who) -> Response:
        """Serve an older version, or a newer one again; other replicas follow within the configured seconds."""
        caller.require_everything("admin")

        def point() -> None:
            store = service.versions.store
            if asked.version not in store.version_ids():
                raise field_problem("version", "the store has no such version")
            service.versions.roll_back(asked.version)
            service.versions.refresh(at_once=True)

        async with service.gate.turn():
            await service.gate.run(point)
        service.audit.write("rollback", caller.key_id, version=asked.version)
        return _version(service)

    @router.post("/version/reload", response_model=VersionAnswer)
    async def reload(caller: Who) -> Response:
        """Look for a new version now, one that was refused before, too."""
        caller.require_everything("admin")
        async with service.gate.turn():
            await service.gate.run(lambda: service.versions.refresh(at_once=True))
        return _version(service)


def _add_open(app: FastAPI, service: Service) -> None:
    @app.get("/v1/healthz", response_model=Health)
    async def is_alive() -> Response:
        """Say that the process answers."""
        return JSONResponse({"status": "alive"})

    @app.get("/v1/readyz", response_model=Health, responses={503: {"model": ProblemDocument}})
    async def is_ready() -> Response:
        """Ask a real question of the version that is served; it does not queue with others, for busy is not broken."""
        await asyncio.to_thread(service.versions.current.probe)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


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


def _answered(service: Service, content: dict[str, Any], encoded: dict[str, float]) -> Response:
    content["timings_ms"] |= encoded
    service.metrics.stages(content["timings_ms"])
    return JSONResponse(content)


def _version(service: Service) -> Response:
    served, refused = service.versions.current, service.versions.refused
    told = None if refused is None else refused.version or "unknown"
    return JSONResponse({"version": served.version.id, "pointer": served.pointer, "refused": told})


def _check_text(service: Service, name: str, text: str) -> None:
    most = service.config.serve.max_text_chars
    if len(text) > most:
        raise field_problem(name, f"it has {len(text)} characters; at most {most}")


def _unknown_id() -> Problem:
    return Problem(404, "the namespace has nothing of that id")
