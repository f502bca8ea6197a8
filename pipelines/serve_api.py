"""The endpoint's HTTP interface: routes under `/v1`, each a few lines around what finds, and the guard before them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version as software_version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer

from pipelines import serve_answers, serve_reading
from pipelines.event_stream import EVENT_STREAM
from pipelines.forget import forget as forget_selected
from pipelines.serve_access import Caller
from pipelines.serve_explorer import explorer_routes, read_assets
from pipelines.serve_guard import OPEN_PATHS, Guard, caller_of
from pipelines.serve_mcp import Tools
from pipelines.serve_memories import stats, timeline
from pipelines.serve_models import (
    AnswerRequest,
    CitedAnswer,
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
from pipelines.serve_problems import PROBLEM_TYPE, ProblemDocument, add_problem_handlers, field_problem
from pipelines.serve_service import Service
from pipelines.told_outcomes import Row, add_outcome

Who = Annotated[Caller, Depends(caller_of)]


def make_app(service: Service) -> FastAPI:
    """Return the application; more routes may be added to it, and apps mounted, behind the same guard."""
    tools = Tools(service)

    @asynccontextmanager
    async def watching(_: FastAPI) -> AsyncIterator[None]:
        task = service.watch()
        async with tools.running():
            yield
        task.cancel()
        await asyncio.wait([task])

    app = FastAPI(
        title="hgmem",
        version=software_version("hgmem"),
        description="Long-term memory for agents: what was said, with its sources, and what past runs teach.",
        lifespan=watching,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
    )
    known = {status: {**_PROBLEM, "description": why} for status, why in _PROBLEMS.items()}
    router = APIRouter(prefix="/v1", responses=known, dependencies=[Depends(HTTPBearer(auto_error=False))])
    _add_reading(router, service)
    _add_skills(router, service)
    _add_forgetting(router, service)
    _add_running(router, service)
    app.include_router(router)
    _add_open(app, service)
    app.router.routes.append(tools.route)
    assets = read_assets()
    app.router.routes.extend(explorer_routes(assets))
    add_problem_handlers(app)
    app.add_middleware(
        Guard,
        config=service.config.serve,
        access=service.access,
        metrics=service.metrics,
        audit=service.audit,
        open_paths=OPEN_PATHS | assets.keys(),
    )
    return app


_PROBLEM: dict[str, Any] = {
    "model": ProblemDocument,
    "content": {PROBLEM_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}}},
}
_PROBLEMS: dict[int | str, str] = {
    400: "The body is no JSON.",
    401: "No good key.",
    403: "Outside of what the key may do.",
    404: "There is no such thing; alike for what is somebody else's.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    421: "The endpoint is not asked under that name.",
    422: "A field cannot be used.",
    429: "Too many requests wait; `Retry-After` says when to come again.",
    503: "The memory cannot be read right now.",
    504: "It took too long.",
}

_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "an event of an answer that is streamed; its data is an AnswerDelta, CitedAnswer or ProblemDocument",
    "properties": {
        "event": {"enum": ["delta", "answer", "problem"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
    "examples": [{"event": "delta", "data": '{"text": "In the cellar", "restarts": false}'}],
}
_OF_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENT_STREAM: {"schema": _EVENT}}},
    501: {**_PROBLEM, "description": "The endpoint's model runs in builds alone."},
    502: {**_PROBLEM, "description": "The model's server gave no answer that can be used."},
}


def _add_reading(router: APIRouter, service: Service) -> None:
    @router.post("/search", response_model=SearchAnswer)
    async def search(asked: SearchRequest, caller: Who) -> Response:
        """Find turns, facts, episodes and topics for a question."""
        return JSONResponse(await serve_reading.search(service, caller, asked))

    @router.post("/context", response_model=ContextAnswer)
    async def context(asked: ContextRequest, caller: Who) -> Response:
        """Return a text for a prompt, under a budget of tokens, with citations."""
        return JSONResponse(await serve_reading.context(service, caller, asked))

    @router.post("/answer", response_model=CitedAnswer, responses=_OF_ANSWERS)
    async def answer(asked: AnswerRequest, caller: Who) -> Response:
        """Answer a question, with the statements that the answer stands on, or say why not."""
        if asked.stream:
            events = await serve_answers.answer_events(service, caller, asked)
            return StreamingResponse(events, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})
        return JSONResponse(await serve_answers.answer(service, caller, asked))

    @router.post("/memories/get", response_model=MemoryAnswer)
    async def get_memory(asked: MemoryRequest, caller: Who) -> Response:
        """Return a turn, fact, episode or topic by its id, with its sources and hyperedges."""
        return JSONResponse(await serve_reading.memory(service, caller, asked))

    @router.post("/namespaces/stats", response_model=StatsAnswer)
    async def namespace_stats(asked: NamespaceRequest, caller: Who) -> Response:
        """Say how much there is of a namespace."""
        caller.require("read", [asked.namespace])
        async with service.gate.turn():
            served = service.versions.current

            def count() -> dict[str, Any]:
                retriever = served.retriever
                return {**stats(retriever, asked.namespace), "timeline": timeline(retriever, asked.namespace)}

            counts = await service.gate.run(count)
        return JSONResponse({"version": served.version.id, "namespace": asked.namespace, **counts})


def _add_skills(router: APIRouter, service: Service) -> None:
    @router.post("/skills/search", response_model=SkillsAnswer)
    async def search_skills(asked: SkillsRequest, caller: Who) -> Response:
        """Find skills, mistakes and lessons for a task."""
        return JSONResponse(await serve_reading.skills(service, caller, asked))

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
            raise serve_reading.unknown_id()
        return JSONResponse({"is_new": is_new})


def _add_forgetting(router: APIRouter, service: Service) -> None:
    @router.post("/forget", response_model=ForgetAnswer)
    async def forget(asked: ForgetRequest, caller: Who) -> Response:
        """Forget a turn, a session, a run, or all of a namespace; the next build leaves it out, too."""
        caller.require("write", [asked.namespace])

        def hide() -> dict[str, int | None]:
            # In advance, too: what was not built yet, or comes with the next log, is never shown.
            change = forget_selected(service.versions.store, asked.selection, service.now(), allow_unknown=True)
            service.versions.refresh_tombstones()
            return {
                "tombstone": change.number, "turns": change.turns, "runs": change.trajectories, "facts": change.facts
            }  # fmt: skip

        async with service.gate.turn():
            hidden = await service.gate.run(hide)
        named = asked.model_dump(exclude={"namespace"}, exclude_none=True)
        scope, target = next(iter(named.items()), ("namespace", ""))
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

        async with service.opening.turn():
            await service.opening.run(point)
        service.audit.write("rollback", caller.key_id, version=asked.version)
        return _version(service)

    @router.post("/version/reload", response_model=VersionAnswer)
    async def reload(caller: Who) -> Response:
        """Look for a new version now, one that was refused before, too."""
        caller.require_everything("admin")
        async with service.opening.turn():
            await service.opening.run(lambda: service.versions.refresh(at_once=True))
        return _version(service)


def _add_open(app: FastAPI, service: Service) -> None:
    @app.get("/v1/healthz", response_model=Health)
    async def is_alive() -> Response:
        """Say that the process answers."""
        return JSONResponse({"status": "alive"})

    @app.get("/v1/readyz", response_model=Health, responses={503: _PROBLEM})
    async def is_ready() -> Response:
        """Ask a real question of the version that is served; it does not queue with others, for busy is not broken."""
        _ = service.versions.current  # raises where there is none
        await asyncio.to_thread(service.probe)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _version(service: Service) -> Response:
    served, refused = service.versions.current, service.versions.refused
    told = None if refused is None else refused.version or "unknown"
    usual = service.config.retrieve.recipe
    usual = served.version.default_recipe if usual == "default" else usual
    about = {"version": served.version.id, "pointer": served.pointer, "refused": told}
    return JSONResponse({**about, "default_recipe": usual, "recipes": served.retriever.recipes()})
