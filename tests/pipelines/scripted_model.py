"""A language model that answers every stage as specified, from what it is shown; and one that often does not.

`answer(system, user, kind)` is what a good model would say, as the answer's JSON-ready values. `ScriptedChat` gives it
in place; `script_of` is the same behind `tests.pipelines.scripted_server`. `FAULTS` spoil an answer in every way that
models and servers have.
"""

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field

from hgmem_core.chat import Reply
from tests.pipelines.scripted_server import Scripted, count_tokens

EPISODE_TURNS = 8
_LINE = re.compile(
    r"^\[(\d+)\] (?:\d\d:\d\d )?(?:([^\":]+|\"(?:[^\"\\]|\\.)*\"): )?(\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE
)
_FOUND = re.compile(r"^(\d+): (\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE)
_SKILL = re.compile(r"^\d+\. (\"(?:[^\"\\]|\\.)*\"): (\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE)
_NUMBER = re.compile(r"^(\d+)\. ", re.MULTILINE)
_STATEMENT = re.compile(r"^\[(\d+)\] (?:\"(?:[^\"\\]|\\.)*\": )?(\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE)
_QUESTION = re.compile(r"^Question: (\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE)
_SMALL_TALK = re.compile(r"\W*(?:hi|hello|thanks|thank you|bye|ok|okay|wow|yeah)\b.{0,20}", re.IGNORECASE)


def answer(user, kind):
    """The values of a good answer of a kind (the name of its type) to a request."""
    return _ANSWERS[kind](user)


def lines_of(user):
    """The turns of a transcript: number, speaker, text."""
    return [(int(number), who or "", json.loads(text)) for number, who, text in _LINE.findall(user)]


def _episodes(user):
    lines = lines_of(user)
    return {
        "episodes": [
            {"first": number, "title": f"{who} on {' '.join(text.split()[:6])}", "summary": f"{who} says: {text[:120]}"}
            for number, who, text in lines[::EPISODE_TURNS]
        ]
    }


def _facts(user):
    known = {json.loads(text) for _, text in _FOUND.findall(user)}
    numbers = [int(number) for number, _ in _FOUND.findall(user)]
    facts = []
    for number, who, text in lines_of(user):
        statement = " ".join(f"{who} says: {text}".split())[:300]
        if text and not _SMALL_TALK.fullmatch(text) and not any(statement.startswith(one.rstrip("…")) for one in known):
            facts.append((number, statement))
    first = max(numbers, default=0) + 1
    return {
        "facts": [
            {
                "n": n,
                "statement": statement,
                "turns": [number],
                "queries": [f"What was said in turn {number}?"],
                "keywords": re.findall(r"[A-Za-z]{5,}", statement)[:4],
                "entities": re.findall(r"(?<=\s)[A-Z][a-z]+", statement)[:3],
                "place": None,
                "time_phrase": None,
                "valid_from": None,
                "valid_to": None,
                "role": "core",
                "weight": 0.6,
                "confidence": 0.9,
                "because_of": [n - 1] if n > first and "because" in statement else [],
            }
            for n, (number, statement) in enumerate(facts, first)
        ]
    }


def _pairs(user):
    return {"pairs": [{"pair": int(number), "verdict": "different"} for number in _NUMBER.findall(user)]}


def _edges(user):
    scores = {"temporal": 0.2, "semantic": 0.6, "causal": 0.7, "entity": 0.4}
    return {"edges": [{"edge": int(number), **scores} for number in _NUMBER.findall(user)]}


def _topic(user):
    episodes = [int(number) for number in _NUMBER.findall(user)]
    roles = ["initiating"] + ["developing"] * (len(episodes) - 1)
    return {
        "title": f"A thread of {len(episodes)} episodes",
        "summary": "What they tell, one after the other.",
        "keywords": ["thread"],
        "episodes": [
            {"episode": number, "role": role, "weight": 0.7} for number, role in zip(episodes, roles, strict=True)
        ],
        "misfits": [],
        "same_as": [],
    }


def _plan(user):
    return {"subtasks": [{"name": "Find the thing", "description": "Look where it may be."}]}


def _skill(user):
    skill = {"name": "Take it there", "text": "Take the thing first, then bring it there.", "polarity": "positive"}
    return {"skills": [skill], "lesson": "It was decided by whether the thing came to its place."}


def _one_skill(user):
    (name, text), (_, other) = [(json.loads(name), json.loads(text)) for name, text in _SKILL.findall(user)]
    return {"name": f"Both: {name}"[:80], "text": f"{text} Or: {other}"[:500], "aliases": ["either"], "apart": []}


def _cited(user):
    """The statement that has most of the question's words, cited; none has one: that is what is missing."""
    words = set(re.findall(r"\w{4,}", json.loads(_QUESTION.search(user)[1]).lower()))
    shared = {
        int(number): len(words & set(re.findall(r"\w{4,}", json.loads(text).lower())))
        for number, text in _STATEMENT.findall(user)
    }
    best = max(shared, key=lambda number: (shared[number], -number), default=None)
    if best is None or not shared[best]:
        return {"citations": [], "answer": "", "missing": "No statement is about that."}
    said = next(json.loads(text) for number, text in _STATEMENT.findall(user) if int(number) == best)
    return {"citations": [best], "answer": said, "missing": ""}


def _reasoned(user):
    return {"reasoning": "One after the other.", **_cited(user)}


def _door(user):
    return {"colour": "green", "state": {"is_open": False, "is_locked": True}}


_ANSWERS = {
    "Episodes": _episodes,
    "Facts": _facts,
    "PairVerdicts": _pairs,
    "ScoredEdges": _edges,
    "TopicAnswer": _topic,
    "Decomposition": _plan,
    "Distillation": _skill,
    "MergedSkill": _one_skill,
    "CitedReply": _cited,
    "ReasonedReply": _reasoned,
    "Door": _door,
}


def _cut(text):
    return Scripted(text[: len(text) * 2 // 3], finish_reason="length")


def _bad_item(text):
    values = json.loads(text)
    name = next((name for name, value in values.items() if isinstance(value, list) and value), None)
    if name is not None:
        values[name][0] = {"n": "one"}
    return Scripted(json.dumps(values))


SHAPES = {
    "fenced": lambda text: Scripted(f"Sure!\n```json\n{text}\n```\nAnything else?"),
    "thought": lambda text: Scripted(f"<think>{{not json}} and so on</think>{text}"),
    "in_reasoning": lambda text: Scripted(None, reasoning=text),
    "in_parts": lambda text: Scripted([{"type": "text", "text": text}]),
    "two_objects": lambda text: Scripted(f"{text}\n{text}"),
    "without_usage": lambda text: Scripted(text, has_usage=False),
}
"""Replies that are whole, in a shape that is not asked for."""

FAULTS = {
    "unclosed_thought": lambda text: Scripted(f"<think>Let me see. {text[:40]}", finish_reason="length"),
    "cut": _cut,
    "bad_item": _bad_item,
    "prose": lambda text: Scripted("There is nothing in it that I could make an object of."),
    "blanks": lambda text: Scripted(text[: len(text) // 2] + "\n" * 4_000, finish_reason="length"),
    "not_json": lambda text: Scripted(text.replace('"', "")),
    "not_a_number": lambda text: Scripted(text.replace("0.6", "NaN")),
    "other_turns": lambda text: Scripted(re.sub(r'"turns": \[\d+\]', '"turns": [977]', text)),
    "wrong_type": lambda text: Scripted("[1, 2]"),
    "nothing": lambda text: Scripted(""),
}
"""Replies of which something is missing."""

BREAKS = {
    "status_500": lambda text: Scripted(status=500),
    "status_429": lambda text: Scripted(status=429, headers={"Retry-After": "0"}),
    "closed": lambda text: Scripted(text, breaks="at_once"),
    "half_closed": lambda text: Scripted(text, breaks="half_way"),
    "page": lambda text: Scripted(raw=b"<html>Bad gateway</html>", content_type="text/html"),
    "no_choices": lambda text: Scripted(document={"choices": []}),
}
"""Answers of a server that is in trouble."""


def script_of(faulty=0.0, kinds=(*SHAPES, *FAULTS, *BREAKS), by_times=True):
    """A script that answers well but for a share of requests, each in one of some kinds.

    Which requests those are, and how, follows from what is asked and, with `by_times`, how often: never from the order.
    Its attribute `kinds` tells the kind of each answer by the `id` of the body that was asked.
    """
    every = {**SHAPES, **FAULTS, **BREAKS}
    asked = {}

    def script(body):
        if "messages" not in body:
            return None
        user = body["messages"][1]["content"]
        kind = body["response_format"]["json_schema"]["name"]
        text = json.dumps(answer(user, kind), ensure_ascii=False)
        times = asked[user] = asked.get(user, 0) + by_times
        chance = hashlib.sha256(f"{times}:{user}".encode()).digest()
        script.kinds[id(body)] = "good"
        if kind != "Door" and chance[0] < 256 * faulty:
            script.kinds[id(body)] = kinds[chance[1] % len(kinds)]
            return every[script.kinds[id(body)]](text)
        return Scripted(text)

    script.kinds = {}
    return script


@dataclass
class ScriptedChat:
    """A chat model in place.

    Attributes:
        asked: Every request.
        spoil: Makes a reply of a request and the good text; None for the good one.
        count: Counts the tokens of a text.
    """

    asked: list = field(default_factory=list)
    spoil: object = None
    count: object = count_tokens
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, requests):
        for place, request in enumerate(requests):
            text = json.dumps(answer(request.user, request.answer), ensure_ascii=False)
            with self._lock:
                self.asked.append(request)
            reply = self.spoil(request, text) if self.spoil else None
            tokens = self.count(f"{request.system}\n{request.user}"), self.count(text)
            yield place, reply or Reply(text, None, "stop", *tokens, seconds=0.01)

    def close(self):
        pass

    def __reduce__(self):
        """Travel without the lock, and without what was asked."""
        return ScriptedChat, ([], self.spoil, self.count)
