"""Evolution with a language model that writes what merged skills say."""

from functools import partial

import pyarrow.parquet as pq
import pytest

from hgmem_core.chat import ModelError, Reply
from hgmem_core.model_config import PriceConfig
from pipelines.ledger import ledger
from pipelines.progress import Silent
from pipelines.skill_evolve import evolve_skills
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import current_version, open_version, point_to
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, run
from tests.pipelines.runs import runs, runs_config, write_runs
from tests.pipelines.scripted_model import ScriptedChat

MODEL = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE), "stages": ["evolve"]}
USERS = tuple(f"user{number:02d}" for number in range(24))


@pytest.fixture
def learnt(tmp_path):
    """Settings of a store of skills as they were learnt, of two users."""
    settings = partial(runs_config, tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    run(settings())
    return settings


@pytest.fixture
def store(learnt):
    return Store.open(learnt().store.root)


def evolved(config, chat=None, cycles=1):
    return evolve_skills(config, StaticEncoder(), None, cycles, NOW, Silent(), chat)


def asking(settings, chat, cycles=1, **llm):
    return evolved(settings(llm={**MODEL, **llm}), chat, cycles)


def skills_of(store):
    buckets = open_version(store).manifest["skills"]["buckets"].values()
    outputs = [store.find(store.root / about["folder"]) for about in buckets]
    return [row for output in outputs for row in output.table("skills.arrow").to_pylist()]


def tables_of(done, name):
    return [row for path in done.decisions for row in pq.read_table(path.parent / f"{name}.parquet").to_pylist()]


def refused(request, text):
    return Reply(None, None, "refused", refusal="503")


def mumbled(request, text):
    return Reply("I'd rather not.", None, "stop", 5, 3)


def test_merged_skills_say_what_the_model_says(learnt, store):
    chat = ScriptedChat()
    done = asking(learnt, chat)
    assert done.merged == len(chat.asked) > 0
    assert {request.stage for request in chat.asked} == {"evolve"}
    told = [row for row in skills_of(store) if row["name"].startswith("Both: ")]
    assert len(told) == done.merged
    assert all("either" in row["aliases"] and " Or: " in row["text"] for row in told)
    assert done.report.spent["evolve"].calls == done.merged
    assert open_version(store).manifest["skills"]["evolved"]["llm"]["model"] == "scripted"
    [row] = ledger(store, PriceConfig()).to_dicts()
    assert (row["stage"], row["calls"], row["fallbacks"]) == ("evolve", done.merged, 0)


def test_what_was_answered_is_not_asked_again(learnt, store):
    before = current_version(store)[1]
    first = asking(learnt, ScriptedChat())
    point_to(store, before)
    again = ScriptedChat()
    assert asking(learnt, again).version == first.version
    assert again.asked == []
    point_to(store, before)
    more = ScriptedChat()
    assert asking(learnt, more, cycles=3).merged > first.merged
    assert 0 < len(more.asked) < 3 * first.merged


def test_the_model_and_its_settings_are_part_of_the_version(learnt, store):
    before, versions = current_version(store)[1], set()
    for llm in ({}, {"model": "other"}, {"stages": ["skills"]}):
        point_to(store, before)
        versions.add(asking(learnt, ScriptedChat(), **llm).version)
    assert len(versions) == 3


def test_a_model_that_takes_no_part_is_not_needed(learnt, store):
    before, chat = current_version(store)[1], ScriptedChat()
    version = asking(learnt, chat, stages=["skills"]).version
    assert chat.asked == []
    point_to(store, before)
    assert evolved(learnt()).version == version


def test_skills_that_the_model_tells_apart_stay(learnt, store):
    apart = Reply('{"name": "", "text": "", "aliases": [], "apart": [1, 2]}', None, "stop")
    before = sorted(row["skill_id"] for row in skills_of(store))
    done = asking(learnt, ScriptedChat(spoil=lambda request, text: apart))
    assert (done.merged, done.kept > 0) == (0, True)
    assert sorted(row["skill_id"] for row in skills_of(store)) == before
    assert set(done.report.outcomes["evolve"]) == {"ok"}


def test_without_an_answer_the_embedded_text_stands_and_is_counted(learnt, store):
    before, said = current_version(store)[1], evolved(learnt())
    texts = sorted(row["text"] for row in skills_of(store))
    point_to(store, before)
    done = asking(learnt, ScriptedChat(spoil=mumbled))
    assert sorted(row["text"] for row in skills_of(store)) == texts
    assert done.merged == said.merged
    assert done.report.outcomes["evolve"]["fallback"] == 2 * done.merged
    kept = tables_of(done, "rejects")
    assert len(kept) == 3 * done.merged
    assert {(row["stage"], row["raw"]) for row in kept} == {("evolve", "I'd rather not.")}
    told = {row["row_id"]: row["outcome"] for row in tables_of(done, "outcomes")}
    assert {told[row["source_id"]] for row in kept} == {"fallback"}


def test_what_the_server_did_not_serve_is_asked_again_by_the_next_job(learnt, store):
    before = current_version(store)[1]
    first = asking(learnt, ScriptedChat(spoil=refused))
    assert first.report.outcomes["evolve"]["fallback"] > 0
    point_to(store, before)
    chat = ScriptedChat()
    second = asking(learnt, chat)
    assert len(chat.asked) == second.merged > 0
    assert second.version != first.version
    assert "fallback" not in second.report.outcomes["evolve"]
    assert all(list(open_version(store, version).verify()) for version in (first.version, second.version))
    point_to(store, before)
    again = ScriptedChat()
    assert (asking(learnt, again).version, again.asked) == (second.version, [])


def test_too_few_answers_publish_nothing(tmp_path):
    settings = partial(runs_config, tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs(USERS)))
    run(settings())
    store = Store.open(tmp_path / "store")
    before = current_version(store)
    for spoil, said in ((refused, "were not served"), (mumbled, "rows have no answer of scripted")):
        with pytest.raises(ModelError, match=said):
            asking(settings, ScriptedChat(spoil=spoil))
        assert current_version(store) == before
    # The same answers are in order where more may be missing.
    assert asking(settings, ScriptedChat(spoil=mumbled), max_fallback_rate=1.0).is_new
