"""A scripted model that answers a benchmark's questions and marks the answers, from what it is shown alone."""

import hashlib
import json
import re

from tests.pipelines.scripted_model import answer
from tests.pipelines.scripted_server import Scripted

_FIELD = re.compile(r"^(Right answer|Answer to be marked): (\"(?:[^\"\\]|\\.)*\")$", re.MULTILINE)


def marked(user, kind):
    """Correct where the answer has a word of the right one; graded by the share of its words."""
    right, given = (set(re.findall(r"\w+", json.loads(text).lower())) for _, text in _FIELD.findall(user))
    share = len(right & given) / len(right)
    if kind == "Verdict":
        return {"reason": "By its words.", "label": "correct" if share else "wrong"}
    return {"reason": "By its words.", "score": round(5 * share) / 5}


def answers_and_marks(unanswered=0.0, unmarked=0.0):
    """A script that answers and marks, but for a share of the questions, and of the marks, in which nothing is of use.

    Which those are follows from what is asked.
    """

    def script(body):
        kind = body["response_format"]["json_schema"]["name"]
        user = body["messages"][1]["content"]
        chance = hashlib.sha256(user.partition("\n\nAn earlier answer")[0].encode()).digest()[0] / 256
        if kind in ("Verdict", "Grade"):
            return Scripted("No idea." if chance < unmarked else json.dumps(marked(user, kind)))
        if kind in ("CitedReply", "ReasonedReply") and chance < unanswered:
            return Scripted("No idea.")
        return Scripted(json.dumps(answer(user, kind), ensure_ascii=False))

    return script
