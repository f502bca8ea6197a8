from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.action_templates import templates_within
from hgmem_core.skill_texts import MOST_WORDS, TEXT_CHARS, joined, sentence_of

TAKE = "When the task is about heat, mug: `go to <object>`, then `take <object>`. Runs that did so failed less often."
HEAT = "When the task is about mug, egg: `take <object>`, then `heat <object>`. Runs that did so failed less often."


def test_two_sentences_become_one_with_the_words_and_the_actions_of_both():
    assert joined(TAKE, HEAT) == (
        "When the task is about heat, mug, egg: `go to <object>`, then `take <object>`; also `heat <object>`. "
        "Runs that did so failed less often."
    )


def test_of_the_second_those_actions_that_follow_each_other_stay_together():
    more = sentence_of([], ["a", "b", "go to <object>", "c"], "", avoid=False, compared=True)
    assert "`take <object>`; also `a`, then `b`; also `c`. Runs" in joined(TAKE, more)


def test_what_adds_no_action_changes_nothing():
    for second in (TAKE, sentence_of(["other"], ["take <object>"], "", avoid=False, compared=False)):
        assert joined(TAKE, second) == TAKE


def test_a_sentence_that_was_joined_is_joined_again():
    third = sentence_of(["cup"], ["cool <object>", "heat <object>"], "", avoid=False, compared=True)
    text = joined(joined(TAKE, HEAT), third)
    assert text.startswith("When the task is about heat, mug, egg, cup: ")
    assert text.endswith("; also `heat <object>`; also `cool <object>`. Runs that did so failed less often.")
    assert joined(text, HEAT) == text


def test_how_a_mistake_is_made_stays_with_its_action():
    refused = sentence_of(["cup"], ["go"], "which is answered with an error", avoid=True, compared=True)
    plain = sentence_of(["mug"], ["go", "take"], "", avoid=True, compared=True)
    assert joined(refused, plain) == (
        "When the task is about cup, mug, avoid `go`, which is answered with an error; also `go`, then `take`. "
        "Runs that did so failed more often."
    )
    # To avoid it at all is to avoid it with an error.
    assert joined(plain, refused) == plain


def test_what_only_one_of_them_knows_of_the_runs_is_not_said_of_both():
    lonely = sentence_of([], ["heat"], "", avoid=False, compared=False)
    assert joined(TAKE, lonely).endswith("; also `heat`.")


def test_two_sentences_that_have_no_room_together_stay_apart():
    long = sentence_of([], [f"do {number} {'x' * 90}" for number in range(4)], "", avoid=False, compared=True)
    more = sentence_of([], [f"do {number} {'y' * 90}" for number in range(4)], "", avoid=False, compared=True)
    assert max(len(long), len(more)) <= TEXT_CHARS
    assert joined(long, more) is None


def test_texts_of_others_are_joined_by_whole_sentences_without_repetition():
    assert joined("Look first. Then act.", "LOOK FIRST. Ask if in doubt.") == "Look first. Then act. Ask if in doubt."
    assert joined("Look first.", TAKE) == f"Look first. {TAKE}"
    long = f"{'word ' * 100}end."
    assert joined(long, f"{long[1:]} Short.") == f"{long} Short."


templates = st.lists(st.sampled_from(["a <x>", "b", "c(d, e)", "SELECT … FROM <t> WHERE a = 1.5; x", "f"]), min_size=1)
sentences = st.builds(
    sentence_of,
    st.lists(st.sampled_from(["egg", "then", "avoid", "i'd", "mug", "cup", "pan"]), unique=True, max_size=4),
    templates.map(lambda own: own[:4]),
    st.sampled_from(["", "which is answered with an error", "the very same again and again"]),
    st.just(True),
    st.booleans(),
)


@given(st.lists(sentences, min_size=2, max_size=5))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_and_nothing_is_invented(texts):
    text = texts[0]
    for more in texts[1:]:
        text = joined(text, more)
        assert text is not None and len(text) <= TEXT_CHARS
    assert templates_within(text) == frozenset().union(*map(templates_within, texts))
    said = " ".join(texts)
    # One word for the other, since the sentences are joined by a word of their own.
    assert {word for word in text.replace("; also", "").replace(",", " ").replace(".", " ").split()} <= {
        word for word in said.replace(",", " ").replace(".", " ").split()
    } | {"then"}
    words = text.partition("about ")[2].partition(", avoid `")[0].split(", ")
    assert len(words) == len(set(words)) <= MOST_WORDS
