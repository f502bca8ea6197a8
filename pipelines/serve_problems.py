"""What a request is told that is not answered: problem documents (RFC 9457), never with what it asked or with paths."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from hgmem_core.chat import ModelError
from hgmem_core.encoding import EncodingError
from hgmem_core.recipes import RecipeError
from hgmem_core.rerank import RerankError
from hgmem_core.trained import TrainedModelError
from pipelines.files import StoreError
from pipelines.weights import EncoderError

PROBLEM_TYPE = "application/problem+json"

log = logging.getLogger("hgmem.serve")


class Fault(BaseModel):
    """One field that is at fault."""

    field: str = Field(description="its path within the body, such as `filters.speaker`; empty for the body itself")
    message: str


class ProblemDocument(BaseModel):
    """Why a request was not answered."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Unprocessable Content",
                    "status": 422,
                    "detail": "the request has fields that cannot be used",
                    "errors": [{"field": "k", "message": "Input should be greater than or equal to 1"}],
                }
            ]
        }
    )

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[Fault] = []


class Problem(Exception):
    """A request that is not answered, and why."""

    def __init__(
        self,
        status: int,
        detail: str,
        faults: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Say why.

        Args:
            status: Of HTTP.
            detail: What is wrong and what to do.
            faults: The fields at fault, with what is wrong of each.
            headers: Of the response.
        """
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.faults = faults
        self.headers = headers

    def document(self) -> bytes:
        """Return the body of the response."""
        faults = [Fault(field=field, message=message) for field, message in self.faults]
        title = HTTPStatus(self.status).phrase
        content = ProblemDocument(title=title, status=self.status, detail=self.detail, errors=faults)
        return json.dumps(content.model_dump(exclude=None if faults else {"errors"})).encode()

    def response(self) -> Response:
        """Return the response."""
        return Response(self.document(), self.status, dict(self.headers), PROBLEM_TYPE)


def field_problem(field: str, message: str) -> Problem:
    """Return the problem of a field that cannot be used."""
    return Problem(422, "the request has a field that cannot be used", [(field, message)])


_UNREADABLE: tuple[type[Exception], ...] = (StoreError, OSError, EncoderError, EncodingError)
"""What is nobody's fault who asks: the log has the error's own words, which may name files."""

_UNREACHED: tuple[type[Exception], ...] = (ModelError, RerankError)
"""Likewise, but its words may be those of a model's server, which may repeat the question."""


def problem_of(error: Exception) -> Problem:
    """Return what is told of an error; its own words go to the log where they may name files."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RecipeError):
        return field_problem("recipe", str(error))
    if isinstance(error, TrainedModelError):
        log.warning("a recipe cannot be used: %s", error)
        return field_problem("recipe", "it needs a trained model that this endpoint was not given")
    if isinstance(error, _UNREACHED):
        log.error("not answered: %s, of the server of an encoder, a reranker or a model", type(error).__name__)
        return Problem(503, "a model that the endpoint asks does not answer; try again later")
    if isinstance(error, _UNREADABLE):
        log.error("not answered: %s: %s", type(error).__name__, error)
        return Problem(503, "the memory cannot be used right now; the log of the endpoint says why")
    return Problem(500, "an error of the endpoint itself; its log says more")


def add_problem_handlers(app: FastAPI) -> None:
    """Make an application answer with problem documents, whatever goes wrong."""

    def of_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem_of_faults(error.errors(), within="body").response()

    def of_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Problem(error.status_code, _DETAILS.get(error.status_code, str(error.detail))).response()

    def of_any(_: Request, error: Exception) -> Response:
        return problem_of(error).response()

    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_http)
    for kind in (Problem, RecipeError, TrainedModelError, *_UNREADABLE, *_UNREACHED, Exception):
        app.add_exception_handler(kind, of_any)


_DETAILS = {
    400: "the body is no JSON in UTF-8",
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "the address does not take this method; /openapi.json lists what it takes",
}


def problem_of_faults(errors: Iterable[Mapping[str, Any]], within: str = "") -> Problem:
    """Return the problem of fields that are not as they must be; what they held is not repeated.

    Args:
        errors: As pydantic tells them.
        within: What their paths begin with, and what the problem leaves out.
    """
    faults = [(".".join(str(step) for step in error["loc"][bool(within) :]), error) for error in errors]
    if any(error["type"] == "json_invalid" for _, error in faults):
        return Problem(400, _DETAILS[400])
    return Problem(
        422, "the request has fields that cannot be used", [(_shown(field), _said(error)) for field, error in faults]
    )


def _shown(field: str) -> str:
    """Return the name of a field; an unknown one is what somebody wrote, and may be long or no text at all."""
    return field[:200].encode("ascii", "backslashreplace").decode()


def _said(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    return str(error["msg"]).removeprefix("Value error, ")
