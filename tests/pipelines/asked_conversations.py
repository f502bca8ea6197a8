"""A benchmark with questions that its memory cannot answer: they ask one speaker for what the other one told."""

import json

THINGS = ("violin", "kitten", "boat", "garden", "bicycle", "camera", "guitar", "lemons", "bakery", "telescope")


def conversation(name):
    """Of each thing one speaker tells and the other asks; questions ask both for it, category 5 the one who asked."""
    turns, questions = [], []
    for place, thing in enumerate(THINGS):
        teller, other = (("Ana", "Bo"), ("Bo", "Ana"))[(place + len(name)) % 2]
        turns.append(_turn(turns, teller, f"I have a new {thing} and I love my {thing}."))
        turns.append(_turn(turns, other, f"Wow, how is your {thing} doing, are you happy?"))
        for speaker, category in ((teller, 4), (other, 5)):
            question = f"What does {speaker} love about the new {thing}?"
            questions.append({"question": question, "evidence": [turns[-2]["dia_id"]], "category": category})
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    return {"sample_id": name, "conversation": talk, "qa": questions}


def _turn(turns, speaker, text):
    return {"speaker": speaker, "dia_id": f"D1:{len(turns) + 1}", "text": text}


def write_asked(path, *names):
    path.write_text(json.dumps([conversation(name) for name in names]), encoding="utf-8")
    return path
