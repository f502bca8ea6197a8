"""The endpoint does what its OpenAPI file says, whatever it is asked: answers and problems as declared, no crash."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from pipelines.serve_api import make_app
from pipelines.serve_service import open_service
from tests.pipelines.endpoint import key_for, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, write_runs
from tests.pipelines.test_serve_api import config_of_inputs

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]

ANSWERED = {
    "/v1/search": 200,
    "/v1/context": 200,
    "/v1/answer": 200,
    "/v1/memories/get": 404,
    "/v1/namespaces/stats": 200,
    "/v1/skills/search": 200,
    "/v1/skills/outcome": 404,
    "/v1/forget": 200,
    "/v1/version/rollback": 422,
}
"""What some of the good requests to a route with a body are answered with; no id is ever guessed."""


OF_A_NAMESPACE = ANSWERED.keys() - {"/v1/version/rollback"}


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    """The OpenAPI file of an application of a small store, with the application behind it, and a key of all rights."""
    root = tmp_path_factory.mktemp("served")
    config = config_of(root / "store", write_jsonl(root / "log.jsonl", rows()))
    agents = write_runs(root / "runs.jsonl", runs(("ana",)))
    run(config.model_copy(update={"inputs": [*config.inputs, *config_of_inputs(agents)]}))
    key = key_for(root / "keys", "*:admin")
    about = {"keys": str(root / "keys"), "audit": str(root / "audit"), "hosts": ["testserver"]}
    app = make_app(open_service(serve_config(root / "store", **about)))
    return schemathesis.openapi.from_asgi("/openapi.json", app), {"Authorization": f"Bearer {key}"}


def operations(schema):
    return [result.ok() for result in schema.get_all_operations()]


def statuses(operation, headers, mode):
    """Ask a route some generated requests, check the answers, and return their statuses."""
    seen = set()

    @settings(
        max_examples=12,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def check(case, is_known):
        if is_known and mode == GenerationMode.POSITIVE and operation.path in OF_A_NAMESPACE:
            # What is generated never names a namespace or a recipe that there is.
            rest = {name: value for name, value in case.body.items() if name not in ("namespaces", "recipe", "k")}
            case.body = {**rest, "namespace": "acme/ana"}
        response = case.call(headers=headers)
        seen.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    check()
    return seen


def test_what_fits_the_schema_is_answered_as_declared(schema):
    found, headers = schema
    seen = {one.path: statuses(one, headers, GenerationMode.POSITIVE) for one in operations(found)}
    assert set(ANSWERED) <= set(seen)
    for path, answered in seen.items():
        assert ANSWERED.get(path, 200) in answered, (path, answered)


def test_what_does_not_fit_the_schema_is_refused_as_declared(schema):
    found, headers = schema
    for operation in operations(found):
        if operation.body:
            answered = statuses(operation, headers, GenerationMode.NEGATIVE)
            # Others than 4xx are a failed check; 401 is there because keys are generated, too.
            assert 422 in answered, (operation.path, answered)
