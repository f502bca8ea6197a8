import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgmem_core.config import Config
from pipelines import synthetic
from pipelines.benchmark import synthetic_input
from pipelines.synthetic import SyntheticLog, questions, write_log, write_more
from tests.pipelines.logs import run

LOG = SyntheticLog(4_000, 80)


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic") / "log"
    write_log(folder, LOG)
    return folder


@pytest.fixture(scope="module")
def rows(log_folder):
    return read(log_folder)


def read(folder):
    return pq.read_table(folder).to_pylist()


def by_user(rows):
    users = {}
    for row in sorted(rows, key=lambda row: int(row["id"][1:])):
        users.setdefault(row["user"], []).append(row)
    return users


def sentences(text):
    return re.findall(r"[^.?!]+[.?!]", text)


def test_every_turn_is_there_once_and_every_namespace_has_some(rows):
    users = by_user(rows)
    assert len(rows) == LOG.turns
    assert len(users) == LOG.namespaces
    for user, its in users.items():
        assert [row["id"] for row in its] == [f"m{number}" for number in range(len(its))], user
    assert [len(users[user]) for user in sorted(users)] == LOG.sizes().tolist()


def test_sizes_fall_from_a_few_percent_and_are_exact():
    for turns, namespaces in ((1, 1), (7, 7), (100, 3), (10_000, 200), (1_000_000, 20_000)):
        sizes = SyntheticLog(turns, namespaces).sizes()
        assert (sizes.sum(), len(sizes), sizes.min() >= 1) == (turns, namespaces, True)
        assert (np.diff(sizes) <= 0).all()
    assert 0.02 < sizes[0] / turns < 0.04
    assert SyntheticLog(10_000, 20).sizes()[0] == pytest.approx(10_000 * 2 / 21, rel=0.01)
    assert sizes[0] > 1_000 * sizes[-1]
    for turns, namespaces in ((0, 0), (1, 2), (5, 0)):
        with pytest.raises(ValueError, match="cannot be shared"):
            SyntheticLog(turns, namespaces)


def test_equal_seeds_give_equal_files(tmp_path, log_folder):
    def content(name, log):
        return [path.read_bytes() for path in write_log(tmp_path / name, log)]

    first = content("again", LOG)
    assert first == [path.read_bytes() for path in sorted(log_folder.iterdir())]
    assert content("other", SyntheticLog(LOG.turns, LOG.namespaces, seed=1)) != first


def test_a_log_is_cut_into_files_of_limited_size(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(synthetic, "FILE_TURNS", 1_500)
    files = write_log(tmp_path / "log", LOG)
    assert [pq.read_metadata(path).num_rows for path in files] == [1_500, 1_500, 1_000]
    assert pa.concat_tables(map(pq.read_table, files)).to_pylist() == rows


def test_time_goes_on_within_sessions_and_sessions_are_far_apart(rows):
    lengths = []
    for its in by_user(rows).values():
        for before, after in pairwise(its):
            seconds = (after["time"] - before["time"]).total_seconds()
            if before["session"] == after["session"]:
                assert 0 < seconds < 300
            else:
                assert seconds > 3 * 3_600
                assert int(after["session"][1:]) == int(before["session"][1:]) + 1
        lengths += Counter(row["session"] for row in its).values()
    assert 10 < np.mean(lengths) < 25
    began = {}
    for row in rows:
        began.setdefault((row["user"], row["session"]), row["time"])
    assert list(began.values()) == sorted(began.values())


def test_two_people_speak_in_sentences_of_about_two_hundred_characters(rows):
    assert 150 < np.mean([len(row["text"]) for row in rows]) < 250
    for row in rows:
        found = sentences(row["text"])
        assert " ".join(sentence.strip() for sentence in found) == row["text"]
        assert all(sentence.strip()[0].isupper() for sentence in found)
        assert not re.search("[{}]", row["text"])
    assert {len({row["speaker"] for row in its}) for its in by_user(rows).values() if len(its) > 1} == {2}


def test_a_question_is_answered_by_the_next_turn_about_the_same_thing(rows):
    asked = answered = 0
    for its in by_user(rows).values():
        for before, after in pairwise(its):
            last = sentences(before["text"])[-1].strip()
            if last.endswith("?") and before["session"] == after["session"]:
                asked += 1
                answer = sentences(after["text"])[0]
                answered += re.search(r"\b[Tt]he (\w+)", answer)[1] in re.findall(r"\w+", last)
    assert asked > 0.15 * len(rows)
    assert answered == asked


def test_words_are_common_and_rare(rows):
    counts = Counter(word for row in rows for word in re.findall(r"\w+", row["text"].lower()))
    assert counts["garden"] > 20 * counts["beehive"] > 0
    assert sum(count == 1 for count in counts.values()) > 1_000


def test_the_stages_find_something_to_do(tmp_path):
    write_log(tmp_path / "log", SyntheticLog(900, 2))
    config = Config(
        store={"root": str(tmp_path / "store"), "buckets": 1},
        encoder={"name": "static"},
        inputs=[synthetic_input(tmp_path / "log")],
    )
    done = run(config)
    outcomes = {stage: about["outcomes"] for stage, about in done.built.report.as_dict().items()}
    assert outcomes["consolidate"]["empty"] > 10
    assert outcomes["consolidate"]["partial"] > 0
    assert outcomes["encode_topics"]["ok"] < outcomes["group"]["ok"]
    [facts] = (tmp_path / "store" / "outputs" / "extract").glob("*/facts.parquet")
    phrases = pq.read_table(facts, columns=["time_phrase"]).column(0)
    assert len(phrases) > 900
    assert phrases.null_count < 0.8 * len(phrases)


@pytest.mark.parametrize(("spread", "touched", "each"), [("few", 1, {40}), ("all", 40, {1})])
def test_a_log_grows_by_a_hundredth(tmp_path, rows, spread, touched, each):
    sizes = LOG.grown(spread, 0.01)
    added = sizes - LOG.sizes()
    assert set(added[added > 0].tolist()) == each
    write_more(tmp_path / "more", LOG, sizes)
    more, old = by_user(read(tmp_path / "more")), by_user(rows)
    assert len(more) == touched
    assert sum(map(len, more.values())) == 40
    for user, its in more.items():
        assert [row["id"] for row in its] == [f"m{len(old[user]) + number}" for number in range(len(its))]
        assert its[0]["time"] > old[user][-1]["time"]
        assert {row["speaker"] for row in its} <= {row["speaker"] for row in old[user]}
    if spread == "few":
        [its] = more.values()
        assert its[0]["session"] >= old[user][-1]["session"] < its[-1]["session"]


def test_more_new_turns_than_namespaces_go_to_all_alike():
    log = SyntheticLog(1_000, 6)
    added = log.grown("all", 0.01) - log.sizes()
    assert sorted(added.tolist()) == [1, 1, 2, 2, 2, 2]
    assert (log.grown("few", 0.0001) - log.sizes()).sum() == 1


def test_questions_ask_for_what_the_namespace_speaks_of(rows):
    asked = questions(LOG, 0, 100)
    said = {word for row in rows if row["user"] == "u000000" for word in re.findall(r"\w+", row["text"])}
    words = {word for text in asked for word in re.findall(r"\w+", text)}
    assert len(set(asked)) > 50
    assert all(text.endswith("?") for text in asked)
    assert len(words & said) > 0.6 * len(words)
    assert questions(LOG, 0, 100) == asked != questions(LOG, 1, 100)
