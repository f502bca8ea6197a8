"""What a model at a server tells of a question: who is asked, what of it reaches the ranking, and what if it fails."""

import json
from datetime import UTC, date, datetime

import pytest

from hgmem_core.config import config_from
from hgmem_core.intent_llm import IntentError
from hgmem_core.recipes import MODEL_FREE, find_recipe, needs_analysis
from hgmem_core.search import Filters
from hgmem_core.section import ConfigError
from pipelines import analysts
from pipelines.analysts import open_analyst
from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.scripted_server import Scripted, ScriptedServer

QUESTION = "what about number"
GOOD = {
    "temporal": 0.5,
    "semantic": 0.0,
    "causal": 0.5,
    "entity": 0.0,
    "sub_queries": ["What was said of numbers?"],
    "time_from": "2024-03-02",
    "time_to": "2024-03-02",
    "needs_several": False,
}
READS_ANALYSIS = [name for name in MODEL_FREE if needs_analysis(find_recipe(name))]


@pytest.fixture
def server():
    with ScriptedServer(lambda body: Scripted(json.dumps(GOOD))) as server:
        yield server


def served(server, **settings):
    llm = {"engine": "http", "model": "scripted", "http": {"url": server.url}, **settings}
    return open_analyst(config_from({"llm": llm, "retrieve": {"analysis": "llm"}}))


def asked(server):
    return server.log_of("/v1/chat/completions")


def test_rules_ask_nobody(server):
    llm = {"engine": "http", "model": "scripted", "http": {"url": server.url}}
    assert open_analyst(config_from({"llm": llm})) is None


@pytest.mark.parametrize(("engine", "why"), [("none", "no model at all"), ("vllm", "no query can wait")])
def test_an_engine_that_cannot_answer_a_query_is_refused(engine, why):
    llm = {"engine": engine, "model": "Qwen/Qwen3-8B"}
    with pytest.raises(ConfigError, match=rf"^retrieve\.analysis: .*llm\.engine={engine} is .*{why}.*llm\.engine=http"):
        open_analyst(config_from({"llm": llm, "retrieve": {"analysis": "llm"}}))


def test_a_server_is_asked_once_about_the_question_alone(server):
    told = served(server).intent("acme/ana", QUESTION, date(2024, 3, 9))
    assert told.weights == (0.5, 0.0, 0.5, 0.0) and told.first_day == date(2024, 3, 2)
    [request] = asked(server)
    assert server.log == [request]
    user = request.body["messages"][1]["content"]
    assert f'"{QUESTION}"' in user and "2024-03-09" in user


def test_a_long_question_is_cut_without_a_word_to_whoever_counts_tokens(server):
    analyst = served(server, tokenizer="server", context_tokens=2_048, max_tokens=64)
    assert analyst.intent("acme/ana", "what about number seven " * 100, None).outcome == "ok"
    [request] = asked(server)
    assert server.log == [request] and len(request.body["messages"][1]["content"]) < 400


def test_a_part_of_an_answer_is_taken_and_not_asked_for_again(server):
    server.script = lambda body: Scripted(json.dumps({**GOOD, "time_from": "in spring"}))
    told = served(server).intent("acme/ana", QUESTION, None)
    assert told.weights == (0.5, 0.0, 0.5, 0.0) and told.first_day is None
    assert told.outcome == "partial" and "time_from is no day" in told.reason
    assert len(asked(server)) == 1


@pytest.mark.parametrize(
    ("answer", "why", "tries"),
    [
        (Scripted("It was\nin May."), "told nothing of the question .*no_json", 1),
        (Scripted(status=400, message="too\nlong"), "told nothing of the question .*too long", 1),
        (Scripted(status=404, message="no such model"), r"no such model.*correct llm\.http\.url", 1),
        (Scripted(hangs=True), "gave no answer within 0.05 s.*a query waits 0.05 s for a try", 3),
    ],
)
def test_no_answer_is_a_failure_in_one_line(server, monkeypatch, answer, why, tries):
    if answer.hangs:  # the configured time is for builds: ten minutes
        monkeypatch.setattr(analysts, "TRY_SECONDS", 0.05)
    server.script = lambda body: answer
    with pytest.raises(IntentError, match=why) as failure:
        served(server).intent("acme/ana", QUESTION, None)
    assert "\n" not in str(failure.value)
    assert len(asked(server)) == tries


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows(users=("ana",))))).store


def retriever_of(store, analyst):
    return Retriever(open_version(store), open_encoder(config_of(store.root).encoder), analyst=analyst)


@pytest.mark.parametrize("recipe", MODEL_FREE)
def test_only_a_recipe_that_reads_an_analysis_asks_for_one(server, store, recipe):
    response = retriever_of(store, served(server)).search("acme/ana", QUESTION, recipe)
    assert response.intent_failure is None and response.hits
    if recipe in READS_ANALYSIS:
        assert len(asked(server)) == 1 and response.timings_ms["intent"] > 0
    else:
        assert server.log == [] and "intent" not in response.timings_ms


def test_recipes_that_walk_read_an_analysis_and_lists_do_not():
    assert set(READS_ANALYSIS) == {"magma-static", "hage:anchors", "hage:static", "hage:scored-edges"}
    assert all(needs_analysis(find_recipe(name)) for name in ("hage", "learned-flat", "routed"))


@pytest.mark.parametrize("recipe", READS_ANALYSIS)
def test_what_the_model_tells_reaches_the_ranking(server, store, recipe):
    rules = retriever_of(store, None).search("acme/ana", QUESTION, recipe)
    told = retriever_of(store, served(server)).search("acme/ana", QUESTION, recipe)
    assert rules.hits[0].said_at.day != 2 and told.hits[0].said_at.day == 2
    assert "intent" not in rules.timings_ms


def test_without_a_word_to_search_for_nobody_is_asked(server, store):
    response = retriever_of(store, served(server)).search("acme/ana", "and the?", "hage:static")
    assert response.reason == "no_query_terms" and server.log == []


@pytest.mark.parametrize(
    ("as_of", "today"), [(None, "2024-03-03"), (datetime(2024, 3, 2, 12, tzinfo=UTC), "2024-03-02")]
)
def test_times_count_from_the_memorys_own_day(server, store, as_of, today):
    retriever_of(store, served(server)).search("acme/ana", QUESTION, "hage:static", filters=Filters(as_of=as_of))
    [request] = asked(server)
    assert f"Today: {today}" in request.body["messages"][1]["content"]


def test_a_server_that_is_away_leaves_the_rules_and_is_asked_the_next_time(server, store):
    rules = retriever_of(store, None).search("acme/ana", QUESTION, "hage:scored-edges")
    retriever = retriever_of(store, served(server))
    server.die()
    response = retriever.search("acme/ana", QUESTION, "hage:scored-edges")
    server.revive()
    assert response.hits == rules.hits and response.timings_ms["intent"] > 0
    assert "start the server" in response.as_dict()["intent_failure"]
    assert retriever.search("acme/ana", QUESTION, "hage:scored-edges").intent_failure is None


def test_a_part_is_used_and_the_rest_is_told_to_be_the_rules(server, store):
    whole = retriever_of(store, served(server)).search("acme/ana", QUESTION, "hage:scored-edges")
    server.script = lambda body: Scripted(json.dumps({**GOOD, "sub_queries": []}))
    response = retriever_of(store, served(server)).search("acme/ana", QUESTION, "hage:scored-edges")
    assert response.hits == whole.hits
    assert response.intent_failure.startswith("in part: ") and "sub_queries is empty" in response.intent_failure
