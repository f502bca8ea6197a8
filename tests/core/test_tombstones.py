from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.ids import part_id, turn_id
from hgmem_core.schemas import TOMBSTONE, TRAJECTORY
from hgmem_core.tombstones import Tombstones
from hgmem_core.turns import merge_imports
from tests.core.fixtures import BEGAN, imported, message, turns_of


def at(minutes):
    return BEGAN + timedelta(minutes=minutes)


def tombstone(scope="namespace", id="", deleted=10, restored=None, namespace="acme/ana"):
    """A row, its times in minutes after the beginning."""
    return {
        "namespace": namespace,
        "scope": scope,
        "id": id,
        "deleted_at": at(deleted),
        "restored_at": None if restored is None else at(restored),
    }


def tombstones(*rows):
    return Tombstones(pa.Table.from_pylist(list(rows), schema=TOMBSTONE.arrow))


def kept(found, *messages):
    table, mask = found.kept_messages(imported(*messages))
    assert table.num_rows == mask.sum()
    return table.column("text").to_pylist()


def hidden(found, *messages):
    turns = turns_of(*messages)
    mask = found.hidden_turns("acme/ana", *(turns.column(name) for name in ("turn_id", "session_id", "said_at")))
    return turns.column("text").filter(pa.array(mask)).to_pylist()


SAID = [
    message("before", 0, source_id="a"),
    message("at the time", 10, source_id="b"),
    message("after", 11, source_id="c"),
    message("some day", None, source_id="d"),
]


def test_a_namespace_is_forgotten_up_to_the_time_of_its_tombstone():
    found = tombstones(tombstone())
    assert kept(found, *SAID) == ["after"]
    assert sorted(hidden(found, *SAID)) == ["at the time", "before", "some day"]
    assert found.namespaces == {"acme/ana"}


def test_nothing_else_than_the_namespace_itself_is_forgotten():
    others = [message("theirs", 0, namespace=name) for name in ("acme/an", "acme/ana/child", "acme/bo", "acme")]
    assert len(kept(tombstones(tombstone()), *others)) == len(others)


def test_a_session_is_forgotten_up_to_the_time_of_its_tombstone():
    found = tombstones(tombstone("session", "s1"))
    assert kept(found, *SAID, message("elsewhere", 0, session="s2")) == ["after", "elsewhere"]
    assert sorted(hidden(found, *SAID, message("elsewhere", 0, session="s2"))) == ["at the time", "before", "some day"]


def test_a_turn_is_forgotten_whenever_it_is_said():
    turn = turns_of(SAID[2]).column("turn_id")[0].as_py()
    found = tombstones(tombstone("turn", turn))
    assert kept(found, *SAID) == ["before", "at the time", "some day"]
    assert hidden(found, *SAID) == ["after"]
    assert kept(found, message("said again, later", 90, source_id="c")) == []


def test_a_long_message_goes_as_a_whole():
    long = imported(message("one two three", source_id="long"), message("short", source_id="x"), max_chars=5)
    first = long.column("message_id")[0].as_py()
    assert long.num_rows > 2
    for part in range(long.num_rows - 1):
        table, _ = tombstones(tombstone("turn", part_id(first, part))).kept_messages(long)
        assert table.column("text").to_pylist() == ["short"]


def test_a_restore_lifts_and_forgetting_again_hides_again():
    rows = [tombstone(), tombstone(deleted=20, restored=20), tombstone(deleted=10)]
    assert kept(tombstones(*rows[:2]), *SAID) == [message.text for message in SAID]
    assert tombstones(*rows[:2]).namespaces == frozenset()
    assert kept(tombstones(*rows), *SAID) == ["after"]


def test_a_clock_that_jumps_back_brings_nothing_back():
    assert kept(tombstones(tombstone(deleted=30), tombstone(deleted=5)), *SAID) == []
    assert kept(tombstones(tombstone(deleted=30), tombstone(deleted=1, restored=1)), *SAID) != []
    lifted_between = tombstones(tombstone(deleted=30), tombstone(deleted=1, restored=1), tombstone(deleted=5))
    assert kept(lifted_between, *SAID) == ["at the time", "after"]


def test_restoring_a_session_leaves_a_forgotten_turn_of_it_hidden():
    turn = turns_of(SAID[0]).column("turn_id")[0].as_py()
    rows = [tombstone("turn", turn), tombstone("session", "s1"), tombstone("session", "s1", restored=20)]
    assert kept(tombstones(*rows), *SAID) == ["at the time", "after", "some day"]


def test_what_is_left_makes_the_turns_of_a_log_without_the_rest():
    log = [
        message(f"said {number}", number % 5, source_id=f"m{number}", session=f"s{number % 3}") for number in range(30)
    ]
    found = tombstones(tombstone("session", "s1", deleted=3), tombstone("turn", _id_of(log[5])))
    table, mask = found.kept_messages(imported(*log))
    rest = [message for message, is_kept in zip(log, mask, strict=True) if is_kept]
    assert 0 < len(rest) < len(log)
    assert merge_imports([table])[0] == turns_of(*rest)


def _id_of(one):
    return turns_of(one).column("turn_id")[0].as_py()


def test_runs_are_forgotten_by_id_and_with_their_namespace():
    rows = [
        {"namespace": "acme/ana", "trajectory_id": name, "sequence": number, "task_id": "t", "task": "t", "steps": []}
        | {"outcome": "success", "n_steps": 0, "ingested_at": at(0), "said_at": None if time is None else at(time)}
        for number, (name, time) in enumerate([("r1", 0), ("r2", 11), ("r3", None)])
    ]
    runs = pa.Table.from_pylist(rows, schema=TRAJECTORY.arrow)
    for found, left in (
        (tombstones(tombstone("trajectory", "r2")), ["r1", "r3"]),
        (tombstones(tombstone()), ["r2"]),
        (tombstones(tombstone("session", "s1"), tombstone("turn", "r1")), ["r1", "r2", "r3"]),
    ):
        assert found.kept_trajectories(runs)[0].column("trajectory_id").to_pylist() == left


def test_the_digest_of_a_namespace_tells_its_own_tombstones_and_no_others():
    one = tombstones(tombstone("turn", "t1"))
    assert one.digest_of("acme/bo") == ""
    assert tombstones().digest_of("acme/ana") == ""
    assert one.digest_of("acme/ana") == tombstones(tombstone("turn", "t1", deleted=99)).digest_of("acme/ana")
    both = tombstones(tombstone("turn", "t1"), tombstone("turn", "t1", namespace="acme/bo"))
    assert both.digest_of("acme/ana") == one.digest_of("acme/ana") == both.only({"acme/ana"}).digest_of("acme/ana")
    others = [
        tombstone("turn", "t2"), tombstone("trajectory", "t1"), tombstone("session", "t1"), tombstone(),
        tombstone(deleted=11),
    ]  # fmt: skip
    digests = {tombstones(row).digest_of("acme/ana") for row in [tombstone("turn", "t1"), *others]}
    assert len(digests) == len(others) + 1


@pytest.mark.parametrize("time", [None, 0, 10, 11])
def test_a_namespace_is_asked_without_any_rows(time):
    found = tombstones(tombstone(), tombstone("session", "s1", namespace="acme/bo"))
    said_at = None if time is None else at(time)
    assert found.forgets("acme/ana", said_at) == (time != 11)
    assert not found.forgets("acme/bo", said_at)
    assert found.only({"acme/bo"}).forgets("acme/ana", said_at) is False


def test_without_tombstones_a_table_is_returned_as_it_is():
    table = imported(*SAID)
    found, mask = tombstones().kept_messages(table)
    assert found is table
    assert mask.all()


KEYS = st.sampled_from(
    [("namespace", ""), ("session", "s1"), ("session", "s2"), ("turn", turn_id("acme/ana", "s1", "a")), ("turn", "x")]
)
FORGOTTEN = st.lists(st.tuples(KEYS, st.integers(0, 12)), max_size=6)


def forgetting(rows):
    return [tombstone(*key, deleted=deleted) for key, deleted in rows]


TURNS, MESSAGES = turns_of(*SAID), imported(*SAID)


def shown_and_hidden(found):
    """The ids of what an import keeps of the messages, and of the turns that an index hides."""
    mask = found.hidden_turns("acme/ana", *(TURNS.column(name) for name in ("turn_id", "session_id", "said_at")))
    shown = found.kept_messages(MESSAGES)[0].column("message_id").to_pylist()
    return set(shown), set(TURNS.column("turn_id").filter(pa.array(mask)).to_pylist())


def state(*rows):
    """All that can be told of some tombstones."""
    found = tombstones(*rows)
    return *shown_and_hidden(found), found.namespaces, found.digest_of("acme/ana")


@given(FORGOTTEN.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_the_order_in_which_things_are_forgotten_does_not_matter(orders):
    one, other = orders
    assert state(*forgetting(one)) == state(*forgetting(other))


@given(FORGOTTEN, st.tuples(KEYS, st.integers(0, 12)), st.integers(0, 20))
def test_what_is_forgotten_and_restored_is_as_before(rows, more, restored):
    key, deleted = more
    earlier = [row for row in rows if row[0] != key]
    undone = [tombstone(*key, deleted=deleted), tombstone(*key, deleted=deleted, restored=restored)]
    assert state(*forgetting(earlier), *undone) == state(*forgetting(earlier))


@given(FORGOTTEN, st.tuples(KEYS, st.integers(0, 12)))
def test_forgetting_more_brings_nothing_back_and_an_import_keeps_what_an_index_shows(rows, more):
    less, found = tombstones(*forgetting(rows)), tombstones(*forgetting([*rows, more]))
    (_, before), (shown, after) = shown_and_hidden(less), shown_and_hidden(found)
    assert before <= after
    assert not found.lift(less)
    assert shown.isdisjoint(after) and shown | after == set(TURNS.column("turn_id").to_pylist())
