"""A language model as actors on Ray, and the owner of vLLM's chat side: requests in, replies out, one a row."""

import json
import logging
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import ray
import ray.data
import ray.exceptions
from ray.data.exceptions import ExecutionTimeoutError
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.model_config import LlmConfig
from hgmem_core.run_config import RunConfig
from pipelines.ray_connection import last_line
from pipelines.self_test import Served, judge, self_test_request

_ERROR = "__inference_error__"
"""The column in which Ray says why vLLM did not take a row; empty where it did."""

_MESSAGE = re.compile(r"^[\w.]+: ", re.MULTILINE)
"""The beginning of what follows a traceback, whose own lines are indented."""


def asked_by_vllm(config: LlmConfig) -> Callable[[ray.data.Dataset], ray.data.Dataset]:
    """Return what puts the requests of a dataset to a model that vLLM runs in actors.

    Rows have a column `request`, see `Request.to_json`, and get a column `reply`, see `Reply.to_json`; what else they
    have stays. They may come back in another order. The reply to a request that vLLM does not take, such as one that is
    too long for the model, says so.

    Raises:
        ModelError: There is no such model, or it has no chat template.
    """
    engine = vLLMEngineProcessorConfig(
        model_source=config.model,
        engine_kwargs=deepcopy(config.vllm.engine_kwargs),  # Ray writes into it
        placement_group_config={"bundles": config.vllm.bundles} if config.vllm.bundles else None,
        concurrency=config.vllm.replicas,
        batch_size=config.vllm.batch_size,
        should_continue_on_error=True,
        log_engine_metrics=False,  # which needs Ray Serve
        # Ray's own stages take one set of template arguments for all rows, and an actor each.
        chat_template_stage=False,
        tokenize_stage=False,
        detokenize_stage=False,
    )
    _template(config)
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)  # a job's terminal is no place for what Ray says of how it builds this
    try:
        processor = build_processor(engine, preprocess=partial(_rendered, config))
    finally:
        logging.disable(disabled)

    def asked(data: ray.data.Dataset) -> ray.data.Dataset:
        return processor(data.map(_packed)).map(_replied)

    return asked


def _packed(row: dict[str, Any]) -> dict[str, Any]:
    """Put a row's columns out of the way of those that the engine adds."""
    return {"row": row}


def _rendered(config: LlmConfig, packed: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens of a prompt, and how vLLM is to answer it."""
    request = Request.from_json(packed["row"]["request"])
    tokens = _tokens(config, request)
    # What vLLM takes for a prompt and its answer is no less than context_tokens, and it does not say why it ended: with
    # answers kept inside, one ends early only at its max_tokens.
    max_tokens = max(1, min(request.max_tokens, config.context_tokens - len(tokens)))
    sampling: dict[str, Any] = {"max_tokens": max_tokens, "temperature": config.temperature}
    if config.guided:
        # As text: schemas that differ would become one table of all their keys on the way.
        sampling["structured_outputs"] = {"json": json.dumps(request.schema)}
    return {"tokenized_prompt": tokens, "sampling_params": sampling, "max_tokens": max_tokens}


def _replied(row: dict[str, Any]) -> dict[str, Any]:
    return {**row["row"], "reply": _reply(row).to_json()}


def _reply(row: dict[str, Any]) -> Reply:
    if row[_ERROR]:
        return Reply(None, None, "refused", refusal=" ".join(row[_ERROR].split()))
    return Reply(
        text=row["generated_text"],
        reasoning=None,
        finish_reason="length" if row["num_generated_tokens"] >= row["max_tokens"] else "stop",
        prompt_tokens=row["num_input_tokens"],
        completion_tokens=row["num_generated_tokens"],
        seconds=row["time_taken_llm"],
    )


def _tokens(config: LlmConfig, request: Request) -> list[int]:
    """Return a request in the form that the model was trained on."""
    thinking = {} if request.thinking == "default" else {"enable_thinking": request.thinking == "on"}
    tokens: list[int] = _template(config).apply_chat_template(
        request.messages, add_generation_prompt=True, return_dict=False, **thinking
    )
    return tokens


def _template(config: LlmConfig) -> Any:  # noqa: ANN401 - transformers tells no type that all its tokenizers have
    """Return the tokenizer of a model that has a chat template.

    Raises:
        ModelError: There is none.
    """
    arguments = config.vllm.engine_kwargs
    source = arguments.get("tokenizer", config.model)
    revision = arguments.get("tokenizer_revision", arguments.get("revision"))
    tokenizer = _tokenizer(source, revision, bool(arguments.get("trust_remote_code")))
    if tokenizer.chat_template is None:
        raise ModelError(
            f"llm.model: {source} has no chat template, so that it is no model to ask: take one that is tuned to "
            "follow instructions"
        )
    return tokenizer


@cache
def _tokenizer(source: str, revision: str | None, trust_remote_code: bool) -> Any:  # noqa: ANN401
    # Imported here because it takes seconds, and the driver often has no use for it.
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"llm.model: no tokenizer of {source}: {reason}") from error


def check_vllm(config: LlmConfig, run: RunConfig) -> Served:
    """Put the self-test and a prompt of full length to a configuration's model, through the same actors as all else.

    Raises:
        ModelError: There is no such model or no room for it on the cluster, it takes less than `context_tokens`, or it
            does not answer as it must: one line that says why and what to change.
    """
    _check_room(config, run)
    _check_thinking(config)
    question = self_test_request(config)
    room = config.context_tokens - 1 - len(_tokens(config, question))
    filling = " a" * (room // len(_template(config).encode(" a", add_special_tokens=False)))
    longest = replace(question, user=question.user + filling, max_tokens=1)
    rows = [{"place": place, "request": request.to_json()} for place, request in enumerate([question, longest])]
    data = asked_by_vllm(config)(ray.data.from_items(rows))
    data.context.execution_no_progress_timeout_s = 60 * run.stall_minutes
    data.context.enable_progress_bars = False
    data.context.print_on_execution_start = False
    try:
        replies = {row["place"]: Reply.from_json(row["reply"]) for row in data.take_all()}
    except ExecutionTimeoutError as error:
        raise ModelError(
            f"llm.vllm: no engine was ready within run.stall_minutes={run.stall_minutes:g}: add nodes, ask for less in "
            "llm.vllm.bundles, or allow more time"
        ) from error
    except ray.exceptions.RayError as error:
        raise ModelError(
            f"llm.vllm: vLLM cannot run {config.model} ({_reason(error)}); correct llm.vllm.engine_kwargs, or see the "
            "logs of Ray's workers"
        ) from error
    served = judge(replies[0], config, None)
    if replies[1].refusal is not None:
        raise ModelError(
            f"llm.context_tokens: {config.model} takes less than {config.context_tokens} tokens; lower it, or raise "
            f"max_model_len in llm.vllm.engine_kwargs ({replies[1].refusal})"
        )
    return served


def _reason(error: ray.exceptions.RayError) -> str:
    """Return the message at the root of an error, in one line: what stands after the last traceback."""
    begins = [match.start() for match in _MESSAGE.finditer(str(error))]
    return " ".join(str(error)[begins[-1] :].split()) if begins else last_line(error)


def _check_room(config: LlmConfig, run: RunConfig) -> None:
    """Look whether the cluster can ever hold an engine, and beside it the tasks that bring its rows."""
    if run.ray.autoscaling:
        return
    arguments = config.vllm.engine_kwargs
    ranks = arguments.get("tensor_parallel_size", 1) * arguments.get("pipeline_parallel_size", 1)
    needed = {"CPU": 1.0}
    for bundle in config.vllm.bundles or [{"GPU": 1.0}] * ranks:
        for kind, amount in bundle.items():
            needed[kind] = needed.get(kind, 0.0) + amount
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for kind, amount in needed.items():
        if amount > there.get(kind, 0.0):
            raise ModelError(
                f"llm.vllm: an engine, and a CPU for the tasks beside it, take {amount:g} {kind}, and the cluster has "
                f"{there.get(kind, 0.0):g}; add nodes, or say in llm.vllm.bundles what an engine may take, such as "
                "[{ CPU = 1 }] where vLLM runs on CPUs"
            )


def _check_thinking(config: LlmConfig) -> None:
    arguments = config.vllm.engine_kwargs
    parser = (arguments.get("structured_outputs_config") or arguments).get("reasoning_parser")
    if config.thinking == "on" and config.guided and not parser:
        raise ModelError(
            "llm.thinking=on: under a schema vLLM lets a model think only if it knows where thoughts end; name the "
            'parser in llm.vllm.engine_kwargs, such as structured_outputs_config.reasoning_parser = "qwen3", or set '
            "llm.guided=false"
        )
