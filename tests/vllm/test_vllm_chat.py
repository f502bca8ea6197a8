"""A chat model as actors on Ray."""

import json

import pytest
import ray.data

from hgmem_core.chat import ModelError, Reply
from hgmem_core.model_config import LlmConfig, VllmConfig
from hgmem_core.run_config import RunConfig
from pipelines.vllm_chat import asked_by_vllm, check_vllm
from tests.vllm.conftest import CONTEXT_TOKENS, ENGINE_KWARGS, OUTPUTS
from tests.vllm.questions import Intent, Statements, request_for
from tests.vllm.tiny_qwen3 import write_tiny_qwen3

pytestmark = pytest.mark.ray

ONE_CPU = [{"CPU": 1.0}]


def config_of(model, bundles=ONE_CPU, thinking="off", outputs=OUTPUTS, context_tokens=CONTEXT_TOKENS, **engine_kwargs):
    arguments = ENGINE_KWARGS | {"structured_outputs_config": outputs} | engine_kwargs
    return LlmConfig(
        engine="vllm",
        model=str(model),
        thinking=thinking,
        context_tokens=context_tokens,
        max_tokens=512,
        vllm=VllmConfig(engine_kwargs=arguments, bundles=bundles, batch_size=8),
    )


def test_a_pass_over_many_requests(checkpoint, local_ray):
    requests = {
        place: request_for(f"Turn {place}: naïve — 你好", [Statements, Intent][place % 2]) for place in range(18)
    }
    requests |= {
        18: request_for("a" * CONTEXT_TOKENS),
        19: request_for("Think.", thinking="on"),
        20: request_for("Go on.", max_tokens=5),
        21: request_for("a" * (CONTEXT_TOKENS - 80)),
    }
    rows = [
        {"place": place, "request": request.to_json(), "title": "naïve" if place % 2 else None, "turns": [place, 0]}
        for place, request in requests.items()
    ]
    config = config_of(checkpoint["chat"])
    before = config.model_dump_json()
    answered = {row["place"]: row for row in asked_by_vllm(config)(ray.data.from_items(rows)).take_all()}

    assert config.model_dump_json() == before
    assert [{name: row[name] for name in rows[0]} for _, row in sorted(answered.items())] == rows
    replies = {place: Reply.from_json(row["reply"]) for place, row in answered.items()}
    for place in range(18):
        [Statements, Intent][place % 2].model_validate_json(replies[place].text)
        assert (replies[place].finish_reason, replies[place].refusal) == ("stop", None)
        assert replies[place].prompt_tokens > len(requests[place].user)
        assert replies[place].completion_tokens > 0
        assert replies[place].seconds > 0
    assert (replies[18].text, replies[18].finish_reason) == (None, "refused")
    assert str(CONTEXT_TOKENS) in replies[18].refusal
    thought, _, answer = replies[19].text.partition("</think>")
    assert thought == "<think>no"
    Statements.model_validate_json(answer)
    assert (replies[20].finish_reason, replies[20].completion_tokens) == ("length", 5)
    # The model's context ends before the answer may.
    assert replies[21].finish_reason == "length"
    assert replies[21].prompt_tokens + replies[21].completion_tokens == CONTEXT_TOKENS


def test_a_sound_model_passes_the_self_test(checkpoint, local_ray):
    assert check_vllm(config_of(checkpoint["chat"], thinking="on"), RunConfig()).thinking_tokens > 0


def test_a_model_that_takes_less_than_the_context_is_refused(checkpoint, local_ray):
    with pytest.raises(ModelError, match=r"^llm\.context_tokens: .* takes less than 4096 tokens; .* 4000 tokens"):
        check_vllm(config_of(checkpoint["chat"], max_model_len=4_000), RunConfig())


def test_what_vllm_does_not_accept_is_refused_with_its_reason(checkpoint, local_ray):
    outputs = {"disable_any_whitespace": True}
    with pytest.raises(ModelError, match=r"vLLM cannot run .*disable_any_whitespace is only supported for") as caught:
        check_vllm(config_of(checkpoint["chat"], outputs=outputs), RunConfig())
    assert "\n" not in str(caught.value)


def test_a_model_without_a_chat_template_is_refused_before_an_engine_starts(checkpoint, local_ray):
    with pytest.raises(ModelError, match="has no chat template"):
        check_vllm(config_of(checkpoint["reranker"]), RunConfig())


def test_a_model_that_is_not_there_is_refused(tmp_path, local_ray):
    with pytest.raises(ModelError, match=r"no tokenizer of .*/nothing") as caught:
        check_vllm(config_of(tmp_path / "nothing"), RunConfig())
    assert "\n" not in str(caught.value)


def test_a_cluster_without_room_for_an_engine_is_refused(checkpoint, local_ray):
    with pytest.raises(ModelError, match="take 1 GPU, and the cluster has 0"):
        check_vllm(config_of(checkpoint["chat"], bundles=[]), RunConfig())
    with pytest.raises(ModelError, match="take 3 CPU, and the cluster has 2"):
        check_vllm(config_of(checkpoint["chat"], bundles=[{"CPU": 2.0}]), RunConfig())


def test_thoughts_under_a_schema_need_a_parser(checkpoint, local_ray):
    with pytest.raises(ModelError, match="reasoning_parser"):
        check_vllm(
            config_of(checkpoint["chat"], thinking="on", outputs=OUTPUTS | {"reasoning_parser": ""}), RunConfig()
        )


def test_a_model_that_does_not_keep_to_the_schema_is_refused(tmp_path, local_ray):
    model = write_tiny_qwen3(tmp_path / "thinker", "chat")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    # Thinks whatever it is told.
    settings["chat_template"] = settings["chat_template"].replace("not enable_thinking", "false")
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"thinks although llm\.thinking=off"):
        check_vllm(config_of(model), RunConfig())
