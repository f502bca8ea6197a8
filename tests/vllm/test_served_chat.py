"""A server of a chat model, as the client for servers sees it."""

import json

import pytest
from transformers import AutoTokenizer

from hgmem_core.model_config import LlmConfig, ServerConfig
from pipelines.http_chat import HttpChat
from tests.vllm.conftest import CONTEXT_TOKENS, OUTPUTS, served
from tests.vllm.questions import Intent, Statements, request_for


@pytest.fixture(scope="module")
def chat(checkpoint):
    arguments = ["--structured-outputs-config", json.dumps(OUTPUTS), "--reasoning-parser", "qwen3"]
    with served(checkpoint["chat"], *arguments) as url:
        config = LlmConfig(
            engine="http",
            model="tiny",
            context_tokens=CONTEXT_TOKENS,
            max_tokens=512,
            http=ServerConfig(url=f"{url}/v1"),
        )
        with HttpChat(config) as client:
            yield client


def test_passes_the_self_test(chat):
    assert chat.check().max_model_len == CONTEXT_TOKENS


def test_answers_keep_to_the_schema_of_each_request(chat, checkpoint):
    answers = [Statements, Intent] * 4
    requests = [request_for(f"Turn {number}: naïve — 你好", answer) for number, answer in enumerate(answers)]
    replies = dict(chat.ask(requests))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint["chat"])
    assert len(replies) == len(requests)
    for place, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        answer.model_validate_json(replies[place].text)
        assert replies[place].finish_reason == "stop"
        rendered = tokenizer.apply_chat_template(
            request.messages, add_generation_prompt=True, return_dict=False, enable_thinking=False
        )
        assert replies[place].prompt_tokens == len(rendered)


def test_thoughts_come_beside_the_answer(chat):
    [(_, reply)] = chat.ask([request_for("Think.", thinking="on")])
    assert reply.reasoning.strip() == "no"
    Statements.model_validate_json(reply.text)


def test_what_is_too_long_is_refused_and_the_rest_answered(chat):
    replies = dict(chat.ask([request_for("a" * CONTEXT_TOKENS), request_for("Short.")]))
    assert str(CONTEXT_TOKENS) in replies[0].refusal
    assert replies[1].refusal is None


def test_an_answer_that_is_cut_off_says_so(chat):
    [(_, reply)] = chat.ask([request_for("Go on.", max_tokens=5)])
    assert reply.finish_reason == "length"
    assert reply.completion_tokens == 5


def test_the_server_counts_tokens_as_the_model_does(chat, checkpoint):
    text = "Is it <|im_end|> naïve — 你好?"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint["chat"])
    assert chat.count_tokens(text) == len(tokenizer.encode(text, add_special_tokens=False))
