"""Skills of several namespaces together, over HTTP and by the tool of agents."""

import pytest

from hgmem_core.config import SkillsConfig
from pipelines import serve_models
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.endpoint import client_of, key_for, serve_config
from tests.pipelines.logs import run
from tests.pipelines.runs import runs, runs_config, write_runs
from tests.pipelines.test_serve_api import answer_of, post, problem_of
from tests.pipelines.test_serve_mcp import call, text_of

TASK = "put a hot egg on the table"
BOTH = ["acme/bo", "acme/ana"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    run(runs_config(folder / "store", write_runs(folder / "runs.jsonl", runs())))
    return folder / "store"


@pytest.fixture(scope="module")
def ask(root):
    with client_of(serve_config(root)) as client:
        yield client


def test_skills_of_several_namespaces_are_those_that_the_retriever_joins(ask, root):
    found = answer_of(post(ask, "skills/search", task=TASK, namespaces=BOTH), serve_models.SkillsAnswer)
    wanted = Retriever(open_version(Store.open(root)), StaticEncoder()).skills(BOTH, TASK, SkillsConfig())
    assert found.namespaces == BOTH
    assert [(one.namespace, one.skill_id) for one in found.skills] == [
        (one.namespace, one.skill_id) for one in wanted.skills
    ]
    assert {one.namespace for one in found.skills} == set(BOTH)
    assert found.context == wanted.context


@pytest.mark.parametrize(
    "whose", [{}, {"namespace": "acme/bo", "namespaces": BOTH}, {"namespaces": ["acme/bo", "acme/bo"]},
              {"namespaces": [f"acme/{number}" for number in range(9)]}, {"namespaces": []}],
    ids=["none", "both fields", "one twice", "nine", "an empty list"],
)  # fmt: skip
def test_whose_skills_are_meant_has_to_be_clear(ask, whose):
    problem_of(post(ask, "skills/search", task=TASK, **whose), 422)


def test_each_of_several_namespaces_has_to_be_allowed(root, tmp_path):
    key = key_for(tmp_path / "keys", "acme/bo:read")
    with client_of(serve_config(root, keys=str(tmp_path / "keys")), key) as client:
        problem = problem_of(post(client, "skills/search", task=TASK, namespaces=BOTH), 403)
        assert [one["field"] for one in problem["errors"]] == ["namespaces.1"]
        assert post(client, "skills/search", task=TASK, namespaces=BOTH[:1]).json()["skills"]


def test_the_tool_takes_several_too_and_says_whose_each_skill_is(root):
    result = call(serve_config(root), "search_skills", {"task": TASK, "namespaces": BOTH})
    skills = result.structured_content["skills"]
    assert {one["namespace"] for one in skills} == set(BOTH)
    assert all(f"skill {one['skill_id']} of {one['namespace']}, " in text_of(result) for one in skills)
    alone = call(serve_config(root), "search_skills", {"task": TASK, "namespace": "acme/bo"})
    assert " of acme/bo" not in text_of(alone)
