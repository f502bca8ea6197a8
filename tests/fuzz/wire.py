"""What comes over the network: bodies for the endpoint, arguments of its tools, and what servers of models answer."""

import atexit
import json
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hgmem_core.chat import Reply
from pipelines.event_stream import Event, EventReader, event_text
from pipelines.http_chat import _read_completion, _read_count, _read_models, _reply
from pipelines.http_client import Answered
from pipelines.serve_mcp import TOOLS, _arguments
from pipelines.serve_models import ForgetRequest, OutcomeRequest, RollbackRequest
from pipelines.serve_problems import Problem
from tests.fuzz.target import Target
from tests.pipelines.endpoint import client_of, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, write_runs
from tests.pipelines.test_serve_api import config_of_inputs

_ROUTES = ("/v1/search", "/v1/context", "/v1/memories/get", "/v1/namespaces/stats", "/v1/skills/search")
"""Those that change nothing, so that every input finds the same store."""

_ANSWERED = (200, 400, 403, 404, 413, 422, 429)
_HEADERS = {"Content-Type": "application/json"}
_OPEN = ExitStack()
atexit.register(_OPEN.close)


@cache
def _client() -> Any:
    root = Path(_OPEN.enter_context(tempfile.TemporaryDirectory(prefix="hgmem-fuzz-")))
    config = config_of(root / "store", write_jsonl(root / "log.jsonl", rows()))
    agents = write_runs(root / "runs.jsonl", runs(("ana",)))
    run(config.model_copy(update={"inputs": [*config.inputs, *config_of_inputs(agents)]}))
    return _OPEN.enter_context(client_of(serve_config(root / "store", hosts=["localhost"])))


def _read_body(data: bytes) -> None:
    for route in _ROUTES:
        answer = _client().post(route, content=data, headers=_HEADERS)
        assert answer.status_code in _ANSWERED, f"{route} answered {answer.status_code}: {answer.text}"
        assert isinstance(answer.json(), dict)
    for model in (ForgetRequest, RollbackRequest, OutcomeRequest):
        _validate(model, data)


def _validate(model: type[BaseModel], data: bytes) -> None:
    try:
        found = model.model_validate_json(data)
    except ValidationError:
        return
    if isinstance(found, ForgetRequest):
        assert found.selection.namespace == found.namespace


def _read_tool_call(data: bytes) -> None:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    for tool in TOOLS:
        if isinstance(given, dict):
            try:
                _arguments(tool, given)
            except Problem as problem:
                assert problem.status in (400, 422) and problem.document()
    for content in (data, _called(given)):
        answer = _client().post("/mcp", content=content, headers={**_HEADERS, "Accept": "application/json"})
        assert answer.status_code < 500, f"/mcp answered {answer.status_code}: {answer.text}"
        assert "an error of the endpoint itself" not in answer.text, answer.text


def _called(given: object) -> bytes:
    called = {"name": "search_memory", "arguments": given}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}).encode()


def _read_events(data: bytes) -> None:
    reader = EventReader()
    whole = reader.feed(data)
    bytewise = EventReader()
    assert [event for byte in data for event in bytewise.feed(bytes([byte]))] == whole
    for event in whole:
        if "\n" not in event.data + event.name and "\r" not in event.data + event.name:
            assert EventReader().feed(event_text(event.name, event.data).encode()) == [Event(event.name, event.data)]


def _read_completion_of(data: bytes) -> None:
    """What a server answers, and, of a stream, a list of its events."""
    try:
        content = json.loads(data, strict=False)
    except (ValueError, RecursionError):
        return
    for read in (_read_models, _read_count):
        try:
            read(content)
        except ValueError as error:
            assert str(error)
    try:
        completion = _read_completion(content)
    except ValueError as error:
        assert str(error)
        return
    reply = _reply(Answered(completion), 7)
    assert isinstance(reply, Reply) and reply.finish_reason
    assert reply.prompt_tokens >= 0 and reply.completion_tokens >= 0


TARGETS = {
    "request-bodies": Target(_read_body, is_json=True, prepare=_client),
    "tool-calls": Target(_read_tool_call, is_json=True, prepare=_client),
    "event-streams": Target(_read_events, words=("data: ", "event: ", "\n\n", "\r\n")),
    "completions": Target(_read_completion_of, is_json=True),
}
