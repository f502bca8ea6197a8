import pickle
from itertools import count

import pytest

from hgmem_core.chat import ModelError, Request
from hgmem_core.model_config import LlmConfig, ServerConfig
from pipelines.http_chat import UNANSWERED, HttpChat
from pipelines.self_test import Served
from tests.pipelines.scripted_server import Scripted, ScriptedServer, count_tokens
from tests.pipelines.test_http_client import QuickTime

PATH = "/v1/chat/completions"
DOOR = '{"colour": "green", "state": {"is_open": false, "is_locked": true}}'
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
HIDDEN_THINKING = {
    "choices": [{"message": {"content": DOOR}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 70}},
}
TEMPLATE_ARGUMENT = "Unrecognized request argument supplied: chat_template_kwargs"


def chat_of(server, quick=None, **settings):
    http = {"url": server.url} | settings.pop("http", {})
    config = LlmConfig(engine="http", model=settings.pop("model", "scripted"), http=ServerConfig(**http), **settings)
    return HttpChat(config, (quick or QuickTime()).timing())


def request(user="When?", thinking="off", max_tokens=100):
    schema = {"type": "object", "properties": {"when": {"type": "string"}}}
    return Request("acme/ana", "extract", "e1", 1, "Be exact.", user, "Answer", schema, max_tokens, thinking)


def reply_to(scripted, **settings):
    with ScriptedServer(lambda body: scripted) as server, chat_of(server, **settings) as chat:
        [(place, reply)] = chat.ask([request()])
    assert place == 0
    return reply


def test_what_is_sent():
    with ScriptedServer() as server:
        with chat_of(server, temperature=0.5) as chat:
            list(chat.ask([request("When?", "off"), request("Where?", "on", 200)]))
        with chat_of(server, guided=False) as chat:
            list(chat.ask([request(thinking="default")]))
        first, second, third = (one.body for one in server.log_of(PATH))
    json_schema = {"name": "Answer", "schema": request().schema, "strict": True}
    assert first == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "Be exact."}, {"role": "user", "content": "When?"}],
        "max_tokens": 100,
        "temperature": 0.5,
        "response_format": {"type": "json_schema", "json_schema": json_schema},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert second["max_tokens"] == 200
    assert second["chat_template_kwargs"] == {"enable_thinking": True}
    assert third.keys() == {"model", "messages", "max_tokens", "temperature"}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_is_read(name):
    scripted = Scripted("one two", reasoning="let me see", reasoning_field=name, finish_reason="length", seconds=0.01)
    with ScriptedServer(lambda body: scripted) as server, HttpChat(chat_of(server)._config) as chat:
        [(_, reply)] = chat.ask([request()])
        [logged] = server.log
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("one two", "let me see", "length")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.thinking_tokens) == (5, 5, 3)
    assert (logged.prompt_tokens, logged.completion_tokens) == (5, 5)
    assert reply.seconds >= 0.01
    assert reply.refusal is None


@pytest.mark.parametrize(
    ("scripted", "text"),
    [
        (Scripted(None, reasoning="{}"), None),
        (Scripted([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]), "ab"),
        (Scripted("\ud83d x"), "\ufffd x"),
        (Scripted(raw=b'{"choices": [{"message": {"content": "a\nb\x01"}}]}'), "a\nb\x01"),
        (Scripted(raw=b'{"choices": [{"message": {}}], "usage": null}'), None),
    ],
)
def test_odd_contents(scripted, text):
    assert reply_to(scripted).text == text


def test_tokens_that_the_server_does_not_count_are_guessed():
    reply = reply_to(Scripted("é" * 8, reasoning="four", finish_reason=None, has_usage=False))
    # A token for four bytes: "Be exact." and "When?" have fourteen, the answer sixteen and four.
    assert (reply.prompt_tokens, reply.completion_tokens, reply.thinking_tokens) == (4, 5, None)
    assert reply.finish_reason == "unknown"


@pytest.mark.parametrize(
    "document", [{"choices": []}, {"choices": None}, {"error": {"message": "busy"}}, [], {"choices": [{"text": "a"}]}]
)
def test_an_answer_without_a_message_is_asked_for_again(document):
    answers = iter([Scripted(document=document), Scripted("good")])
    with ScriptedServer(lambda body: next(answers)) as server, chat_of(server) as chat:
        assert [reply.text for _, reply in chat.ask([request()])] == ["good"]


def test_a_request_without_an_answer_has_a_reply_that_says_why():
    def script(body):
        return {
            "long": Scripted(status=400, message="too long"),
            "bad": Scripted(document={"choices": [], "error": {"message": "it broke"}}),
            "good": Scripted("answer"),
        }[body["messages"][1]["content"]]

    with ScriptedServer(script) as server, chat_of(server, http={"retries": 1}) as chat:
        replies = dict(chat.ask(request(user) for user in ("long", "bad", "good")))
    assert (replies[0].text, replies[0].finish_reason, replies[0].refusal) == (None, "refused", "too long")
    assert (replies[1].text, replies[1].finish_reason) == (None, UNANSWERED)
    assert replies[1].refusal == ("try 2 of 2 answered with what is no chat completion: it has no choices (it broke)")
    assert replies[2].text == "answer"
    assert [replies[place].completion_tokens for place in (0, 1)] == [0, 0]


def test_a_log_is_not_quoted_in_what_is_said_of_an_answer():
    document = {"choices": [{"message": {"content": {"secret of the log": 1}}}]}
    reply = reply_to(Scripted(document=document), http={"retries": 0})
    assert "no chat completion: choices.0.message.content" in reply.refusal
    assert "secret" not in reply.refusal


def test_requests_are_pulled_as_there_is_room_and_closing_ends_it():
    pulled = count()
    with ScriptedServer() as server, chat_of(server, http={"concurrency": 2}) as chat:
        replies = chat.ask(request(str(next(pulled))) for _ in count())
        for _ in range(20):
            next(replies)
        replies.close()
        assert server.is_idle.wait(10)
    assert next(pulled) <= 20 + 2 + 1


def test_it_travels_by_its_configuration():
    with ScriptedServer(lambda body: Scripted("answer")) as server, chat_of(server) as chat:
        list(chat.ask([request()]))
        with pickle.loads(pickle.dumps(chat)) as copy:
            assert [reply.text for _, reply in copy.ask([request()])] == ["answer"]


def test_the_server_counts_tokens():
    with ScriptedServer() as server, chat_of(server) as chat:
        assert chat.count_tokens("one, two") == 3 == count_tokens("one, two")
        assert chat.count_tokens("") == 0
        assert [(one.path, one.body["model"]) for one in server.log] == [("/tokenize", "scripted")] * 2
        assert server.log[0].body["add_special_tokens"] is False


def test_a_server_without_a_tokenizer_is_asked_once():
    with ScriptedServer(has_tokenizer=False) as server, chat_of(server) as chat:
        assert [chat.count_tokens("one"), chat.count_tokens("two")] == [None, None]
        assert len(server.log) == 1


@pytest.mark.parametrize(
    ("settings", "scripted", "thinking_tokens", "source"),
    [
        ({}, Scripted(DOOR), 0, "content"),
        ({}, Scripted(f"\n{DOOR}\n"), 0, "content"),
        ({}, Scripted(f"<think>\n\n</think>\n\n{DOOR}"), 0, "content"),
        ({}, Scripted(None, reasoning=DOOR), count_tokens(DOOR), "reasoning"),
        ({"guided": False}, Scripted(f"Here it is:\n```json\n{DOOR}\n```"), 0, "content"),
        ({"thinking": "on"}, Scripted(DOOR, reasoning="It is locked."), 4, "content"),
        ({"thinking": "on"}, Scripted(DOOR, reasoning="It is locked.", has_usage=False), 4, "content"),
        ({"thinking": "on"}, Scripted(f"It is {{locked}}.</think>{DOOR}", has_usage=False), 4, "content"),
        ({"thinking": "on"}, Scripted(f"[THINK]It is {{locked}}.[/THINK]{DOOR}", has_usage=False), 4, "content"),
        ({"thinking": "on"}, Scripted(DOOR), 0, "content"),
        ({"thinking": "default"}, Scripted(DOOR, reasoning="It is locked."), 4, "content"),
    ],
)
def test_a_model_that_answers_as_it_must(settings, scripted, thinking_tokens, source):
    with ScriptedServer(lambda body: scripted) as server, chat_of(server, **settings) as chat:
        assert chat.check() == Served("scripted", 32_768, thinking_tokens, source)
        assert [one.path for one in server.log] == ["/v1/models", PATH]
        sent = server.log[1].body
    thinking = settings.get("thinking", "off")
    assert sent.get("chat_template_kwargs") == (
        None if thinking == "default" else {"enable_thinking": thinking == "on"}
    )
    assert ("response_format" in sent) == settings.get("guided", True)
    assert sent["max_tokens"] == 4_096


def test_a_server_need_not_tell_the_context():
    with ScriptedServer(lambda body: Scripted(DOOR), models={"scripted": None}) as server, chat_of(server) as chat:
        assert chat.check().max_model_len is None


def told(server, quick=None, **settings):
    """What the self-test says against a server; one line, whatever is wrong."""
    with chat_of(server, quick, **settings) as chat, pytest.raises(ModelError) as caught:
        chat.check()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "scripted", "what", "remedy"),
    [
        ({}, Scripted(f"{{\n{DOOR}"), "schema|as asked", "llm.guided=false"),
        ({}, Scripted(f"[{DOOR}"), "does not hold to the JSON schema", "llm.guided=false"),
        ({}, Scripted(f"```json\n{DOOR}\n```"), "does not hold to the JSON schema", "llm.guided=false"),
        ({}, Scripted(f"Sure! {DOOR}"), "does not hold to the JSON schema", "llm.guided=false"),
        ({}, Scripted("The door is green."), "did not answer as asked", "llm.guided=false"),
        ({}, Scripted(""), "did not answer as asked", "llm.guided=false"),
        ({}, Scripted('{"colour": "mauve", "state": {"is_open": 1}}'), "did not answer as asked", "reasoning parser"),
        ({}, Scripted("ÿ¿½ la la", finish_reason="length"), "came to no end within 4096 tokens", "llm.guided=false"),
        ({}, Scripted(DOOR + " " * 500, finish_reason="length"), "goes on with blanks", "disable_any_whitespace"),
        ({}, Scripted('{"colour":' + "\n" * 500, finish_reason="length"), "goes on with blanks", "disable_any_white"),
        ({}, Scripted(DOOR, reasoning="It is locked."), "thinks although llm.thinking=off", "llm.thinking=on"),
        ({}, Scripted(document=HIDDEN_THINKING), "thinks although llm.thinking=off", "llm.thinking=on"),
        ({}, Scripted(f"<think>Locked.</think>{DOOR}"), "thinks although llm.thinking=off", "enable_thinking"),
        ({}, Scripted(f"<thought>Locked.</thought>{DOOR}"), "thinks although llm.thinking=off", "enable_thinking"),
        (
            {"thinking": "on"},
            Scripted(None, reasoning="Let me see", finish_reason="length"),
            "came to no end within 4096 tokens",
            "raise llm.max_tokens, or set llm.thinking=off",
        ),
        (
            {"thinking": "on"},
            Scripted("<think>Let me see", finish_reason="length"),
            "came to no end within 4096 tokens",
            "raise llm.max_tokens",
        ),
        ({}, Scripted(status=400, message=NO_TEMPLATE), "refuses the self-test: As of tr", "--chat-template"),
        ({}, Scripted(status=400, message="Invalid JSON schema:\nno $ref"), "JSON schema: no", "llm.guided=false"),
        ({}, Scripted(status=400, message=TEMPLATE_ARGUMENT), "Unrecognized", "llm.thinking=default"),
        ({}, Scripted(status=422, message="odd"), "refuses the self-test: odd", "the server's log"),
    ],
)
def test_a_model_that_does_not_is_refused_with_the_reason(settings, scripted, what, remedy):
    with ScriptedServer(lambda body: scripted) as server:
        message = told(server, **settings)
    assert message.startswith("llm.model: scripted ")
    assert any(words in message for words in what.split("|")), message
    assert remedy in message


def test_a_model_that_is_not_served():
    with ScriptedServer(models={"small": 4_096, "large": 32_768}) as server:
        assert told(server) == (
            f"llm.model: scripted is not served at {server.url}, but small, large; set llm.model to that"
        )
        assert [one.path for one in server.log] == ["/v1/models"]


def test_a_context_that_is_too_small():
    with ScriptedServer(models={"scripted": 8_192}) as server:
        assert told(server) == (
            f"llm.context_tokens: scripted is served at {server.url} with 8192 tokens of context, not 16384; "
            "lower llm.context_tokens, or serve it with a longer one"
        )
    refusal = Scripted(status=400, message="This model's maximum context length is 8192 tokens.")
    with ScriptedServer(lambda body: refusal, models={"scripted": None}) as server:
        assert "or lower llm.max_tokens and llm.context_tokens" in told(server)


def test_a_wrong_address_or_key(monkeypatch):
    monkeypatch.setenv("SERVER_KEY", "wrong")
    quick = QuickTime()
    with ScriptedServer(key="right") as server:
        assert told(server, http={"key_variable": "SERVER_KEY"}) == (
            f"{server.url}/models answered HTTP 401 (not a key: Bearer ***); put a key that is valid there into "
            "SERVER_KEY, which llm.http.key_variable names"
        )
        assert "put its key into an environment variable" in told(server)
        assert told(server, http={"url": server.root}).startswith(f"{server.root}/models answered HTTP 404")
    page = Scripted(raw=b"\n<!doctype html><html>Welcome</html>", content_type="text/html")
    with ScriptedServer() as server:
        server.about_models = page
        correct = "correct llm.http.url, which ends in the version, such as /v1"
        assert told(server, quick) == f"{server.url}/models answered with a web page; {correct}"
        server.about_models = Scripted(document={"models": ["a"]})
        assert "answered with what is no list of models: data: Field required; correct llm.http" in told(server, quick)
    assert "cannot be reached (Connection refused); start the server, or correct llm.http.url" in told(server, quick)
    assert quick.now < 30
