"""What a tool returns, as a text that a model reads: every line that was said has what it is cited by."""

from collections.abc import Iterator, Mapping
from typing import Any


def search_text(content: Mapping[str, Any]) -> str:
    """Return a `SearchAnswer` as text: a numbered line for each turn, fact, episode and topic."""
    return _lines(
        *_doubts(content),
        *(f"[{number}] {line}" for number, line in enumerate((*_turns(content), *_nodes(content)), 1)),
    )


def context_text(content: Mapping[str, Any]) -> str:
    """Return a `ContextAnswer` as text: the context, then the turns of each of its numbers."""
    sources = [f"[{one['number']}] {_ids('turn', one['turn_ids'])}" for one in content["citations"]]
    return _lines(*_doubts(content), content["text"], *(("", "Sources:", *sources) if sources else ()))


def answer_text(content: Mapping[str, Any]) -> str:
    """Return a `CitedAnswer` as text: the answer or why there is none, then the statements that it stands on."""
    if content["outcome"] != "answered":
        return f"There is no answer: {content['reason']['text']}"
    said = "Said in the memory, word for word:" if content["engine"] == "extractive" else ""
    sources = [
        f"[{one['number']}] {one['day']} {one['text']} ({_ids('turn', one['turn_ids'])})"
        for one in content["citations"]
    ]
    return _lines(*([said] if said else []), content["answer"], "", "Stands on:", *sources)


def memory_text(content: Mapping[str, Any]) -> str:
    """Return a `MemoryAnswer` as text: what it says, the turns that it stands on, what it belongs to."""
    newer = content["superseded_by"]
    lines = [f"{content['level']} {content['id']}" + _titled(content)]
    if newer:
        lines.append(f"no longer so: superseded by fact {newer}")
    if content["level"] != "turn":
        lines += [content["text"], "", "Stands on:"]
    lines += map(_turn, content["sources"])
    if content["hyperedges"]:
        lines += ["", "Belongs to:", *(f"{one['kind']} {one['id']}" + _titled(one) for one in content["hyperedges"])]
    return _lines(*lines)


def skills_text(content: Mapping[str, Any]) -> str:
    """Return a `SkillsAnswer` as text: the context, then the ids of what it holds, and of the query."""
    several = len(content["namespaces"]) > 1
    shown = [
        *(
            f"skill {one['skill_id']}{_whose(one, several)}, {one['name']}"
            for one in (*content["skills"], *content["mistakes"])
        ),
        *(f"lesson of run {one['trajectory_id']}{_whose(one, several)}" for one in content["lessons"]),
    ]
    told = ("", f"Shown for the query {content['query_id']}:", *shown) if shown else ()
    return _lines(*_doubts(content), content["context"], *told)


def _whose(found: Mapping[str, Any], several: bool) -> str:
    """Return the namespace of what was found, by which its outcome is told, where several were asked."""
    return f" of {found['namespace']}" if several else ""


def _doubts(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield why there is nothing, and what speaks against answering at all."""
    if content["reason"]:
        yield f"Nothing was found: {content['reason']}."
    abstention = content.get("abstention")
    if abstention and abstention["abstains"]:
        why = f": {abstention['reason']['text']}" if abstention["reason"] else ""
        yield f"The memory may well not hold the answer{why}."


def _turns(content: Mapping[str, Any]) -> Iterator[str]:
    for hit in content["hits"]:
        yield f"{_turn(hit)} of {hit['namespace']}"


def _nodes(content: Mapping[str, Any]) -> Iterator[str]:
    for node in content["nodes"]:
        own = f"{node['level']} {node['id']} of {node['namespace']}"
        yield f"{node['text']} ({own}; {_ids('turn', node['turn_ids'])})"


def _turn(said: Mapping[str, Any]) -> str:
    day = f"{said['said_at'][:10]} " if said["said_at"] else ""
    speaker = f"{said['speaker']}: " if said["speaker"] else ""
    return f"{day}{speaker}{said['text']} (turn {said['turn_id']}, session {said['session_id']})"


def _titled(named: Mapping[str, Any]) -> str:
    return f", {named['title']}" if named["title"] else ""


def _ids(kind: str, ids: list[str]) -> str:
    return f"{kind}{'s' * (len(ids) != 1)} {', '.join(ids)}"


def _lines(*lines: str) -> str:
    return "\n".join(lines)
