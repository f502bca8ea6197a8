import pytest

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.model_config import LlmConfig, PriceConfig
from pipelines.calls import Calls, Spent, cost, drop_refused
from pipelines.store import Store

CONFIG = LlmConfig(engine="http", model="scripted")


def request(number, namespace="acme/ana", **more):
    fields = {"attempt": 1, "system": "Be good.", "user": f"What is {number}?", "answer": "Facts", "schema": {}}
    settings = {"max_tokens": 64, "thinking": "off"}
    return Request(namespace=namespace, stage="extract", row_id=f"e{number}", **{**fields, **settings, **more})


class Chat:
    """Answers with the request's own text; fails after some."""

    def __init__(self, most=1_000):
        self.sent = []
        self.most = most

    def ask(self, requests):
        for place, one in enumerate(requests):
            if len(self.sent) == self.most:
                raise ModelError("the server is gone")
            self.sent.append(one)
            yield place, Reply(one.user, None, "stop", 10, 2, 1, 0.5)


@pytest.fixture
def store(tmp_path):
    return Store.make(tmp_path / "store", 2)


def asked(store, requests, chat, config=CONFIG, bucket=0, job="j1"):
    calls = Calls(store, bucket, config, job)
    found = calls.find(requests)
    for places, reply in calls.ask(chat, requests, found.keys()):
        found |= dict.fromkeys(places, reply)
    return found


def test_what_was_answered_is_not_sent_again(store):
    chat = Chat()
    first = asked(store, [request(number) for number in range(40)], chat)
    again = asked(store, [request(number) for number in range(45)], chat)
    assert [one.user for one in chat.sent] == [f"What is {number}?" for number in range(45)]
    assert {place: again[place] for place in first} == first
    assert again[3] == Reply("What is 3?", None, "stop", 10, 2, 1, 0.5)


def test_of_equal_questions_one_is_sent_and_its_answer_holds_for_all(store):
    chat = Chat()
    found = asked(store, [request(1), request(2), request(1), request(1, namespace="acme/bo")], chat)
    assert len(chat.sent) == 3
    assert found[0] == found[2]
    assert len(found) == 4


def test_an_error_keeps_what_came_before_it(store):
    chat = Chat(most=21)
    with pytest.raises(ModelError):
        asked(store, [request(number) for number in range(40)], chat)
    assert len(Calls(store, 0, CONFIG, "j1").find([request(number) for number in range(40)])) == 21


@pytest.mark.parametrize(
    "other",
    [
        request(1, namespace="acme/bo"),
        request(1, attempt=2),
        request(1, system="Be bad."),
        request(1, schema={"type": "object"}),
        request(1, max_tokens=128),
        request(1, thinking="on"),
    ],
)
def test_another_question_is_asked_even_if_it_differs_little(store, other):
    asked(store, [request(1)], Chat())
    assert Calls(store, 0, CONFIG, "j1").find([other]) == {}


@pytest.mark.parametrize("change", [{"model": "other"}, {"temperature": 0.5}, {"guided": False}])
def test_another_model_or_setting_is_asked_anew(store, change):
    one = request(1, schema={"type": "object"})
    asked(store, [one], Chat())
    assert Calls(store, 0, CONFIG.model_copy(update=change), "j1").find([one]) == {}
    assert len(Calls(store, 0, CONFIG.model_copy(update={"http": CONFIG.http}), "j1").find([one])) == 1


def test_a_damaged_file_is_asked_again_and_nothing_else(store):
    requests = [request(number) for number in range(40)]
    asked(store, requests, Chat())
    files = sorted(store.root.glob("calls/*/*.parquet"))
    assert len(files) == 3
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 1
    files[0].write_bytes(content)
    chat = Chat()
    assert len(asked(store, requests, chat)) == 40
    assert len(chat.sent) in (8, 16)
    assert len(Calls(store, 0, CONFIG, "j1").find(requests)) == 40


def test_refusals_are_kept_as_such(store):
    class Refusing:
        def ask(self, requests):
            yield 0, Reply(None, None, "refused", refusal="too long by 3")

    asked(store, [request(1)], Refusing())
    [kept] = Calls(store, 0, CONFIG, "j1").find([request(1)]).values()
    assert kept.refusal == "too long by 3"


def test_what_failed_at_every_try_is_tried_again_by_the_next_job_alone(store):
    class Failing(Chat):
        def ask(self, requests):
            for place, _ in super().ask(requests):
                yield (
                    place,
                    Reply(None, None, "unanswered" if place == 1 else "stop", refusal="502" if place == 1 else None),
                )

    requests = [request(number) for number in range(3)]
    asked(store, requests, Failing())
    same, later = Chat(), Chat()
    assert asked(store, requests, same)[1].refusal == "502"
    assert asked(store, requests, later, job="j2")[1].text == "What is 1?"
    assert (len(same.sent), len(later.sent)) == (0, 1)
    drop_refused(store)
    assert len(Calls(store, 0, CONFIG, "j1").find(requests)) == 3
    assert not list(store.root.glob("calls/*/refused-*"))


def test_text_that_no_file_can_hold_is_mended_on_the_way(store):
    class Odd:
        def ask(self, requests):
            yield 0, Reply("half a \ud83d smile", "\udc00", "stop")

    live = asked(store, [request(1)], Odd())[0]
    assert live.text == "half a \ufffd smile"
    assert Calls(store, 0, CONFIG, "j1").find([request(1)])[0] == live


def test_sums_and_money_add_up():
    spent = Spent.of(Reply("x", None, "stop", 1_000_000, 500_000, None, 2.0)) + Spent.of(
        Reply(None, None, "refused", refusal="no")
    )
    assert spent == Spent(2, 1, 1_000_000, 500_000, 0, 2.0)
    assert cost(spent, PriceConfig(prompt=0.5, completion=2.0)) == 1.5
