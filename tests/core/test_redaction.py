"""What e-mail addresses and phone numbers are, and what is none though it looks a little like one."""

from datetime import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.messages import Dropped, Message
from hgmem_core.redaction import emails, phones, redact
from hgmem_core.trajectories import Run, Step

PHONES = [
    "+49 151 23456789", "+4915123456789", "+49 (0)30/901820", "+49 (0) 151 23456789", "0049 30 901820", "030 901820",
    "(030) 90 18 20", "0151/23456789", "0171-1234567", "0171 - 1234567", "+1 (415) 555-2671", "+14155552671",
    "(415) 555-2671", "415-555-2671", "415.555.2671", "1-415-555-2671", "+44 20 7946 0958", "+33 6 12 34 56 78",
    "13800138000", "138 0013 8000", "138-0013-8000", "+86 138 0013 8000", "010-12345678", "0755-1234567",
    "(+49) 151 23456789", "+49\u2011151\u201123456789", "415\u2013555\u20132671", "\uff08010\uff0912345678",
    "\uff11\uff13\uff18\uff10\uff10\uff11\uff13\uff18\uff10\uff10\uff10", "138\u20090013\u20098000",
]  # fmt: skip
NO_PHONES = [
    "2024-03-01", "01/02/2024", "01.02.2024", "2024-03-01T18:00:00+01:00", "18:00", "0800-1700", "2024年3月1日",
    "1.200,50 €", "$1,234,567.89", "+5 000 000", "12.50", "199", "3.14159265358", "10.0.19045.3803", "v0.12.345",
    "192.168.100.200", "978-3-16-148410-0", "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111", "1700000000",
    "1700000000000", "order #13800138000", "id=13800138000", "A-0301-99812", "550e8400-e29b-41d4-a716-446655440000",
    "0045", "007", "12-30 people", "123-45-6789", "x13800138000", "13800138000.5", "/files/0151-2345678",
    "2024\u201103\u201101", "0800\u20131700", "\uff12\uff10\uff12\uff14\u5e74", "(+5) points",
]  # fmt: skip
EMAILS = [
    "anna@example.org", "a.b+c@mail.x-y.co.uk", "ANNA_B@EXAMPLE.COM", "müller@büro.de", "anna＠example.org", "1@2.io",
    "...anna@example.org",
]  # fmt: skip
NO_EMAILS = ["@anna", "anna@", "anna@localhost", "pkg@1.2.3", "@scope/pkg", "a @ b.de", "3 @ 2.50", "@staff.all"]
AROUND = [("", ""), ("call ", " now"), ("(", ")."), ("电话：", "，谢谢"), ("Tel.: ", "!"), ("\n", "\n"), ('"', '"')]
AROUND.append(('"b\\n', '\\n"'))  # in arguments of a tool


@pytest.mark.parametrize(("before", "after"), AROUND)
@pytest.mark.parametrize("number", PHONES)
def test_phone_numbers_are_taken_out(number, before, after):
    assert phones(f"{before}{number}{after}") == f"{before}[phone]{after}"


@pytest.mark.parametrize(("before", "after"), AROUND)
@pytest.mark.parametrize("text", NO_PHONES)
def test_dates_prices_ids_and_versions_are_no_phone_numbers(text, before, after):
    assert phones(f"{before}{text}{after}") == f"{before}{text}{after}"


@pytest.mark.parametrize(
    ("before", "after"), [*AROUND, ("请发邮件到", "谢谢"), ("<", ">"), ("mailto:", "?"), ("", "_, "), ("", "-x")]
)
@pytest.mark.parametrize("address", EMAILS)
def test_addresses_are_taken_out(address, before, after):
    assert emails(f"{before}{address}{after}") == f"{before}[email]{after}"


@pytest.mark.parametrize("text", NO_EMAILS)
def test_what_is_no_address_stays(text):
    assert emails(text) == text


@pytest.mark.parametrize("between", [" ", ", ", "; ", "\n", " or "])
def test_every_number_and_address_of_a_list_is_taken_out(between):
    numbers = ["010-12345678", "0755-1234567", "138 0013 8000", "0171-1234567", "(415) 555-2671", "+49 151 23456789"]
    assert phones(between.join(numbers)) == between.join(["[phone]"] * len(numbers))
    assert emails(between.join(EMAILS)) == between.join(["[email]"] * len(EMAILS))


def test_a_number_behind_a_stroke_is_taken_out_too():
    assert phones("415-555-2671/415-555-2672") == "[phone]/[phone]"


def test_what_stands_around_a_number_stays_as_it_was_written():
    text = "\uff11\uff12\u2013\uff11\uff13 \u2011 \uff08{}\uff09 \u3000\uff11 [phone] \uff11"
    assert phones(text.format("+49\u2011151\u201123456789")) == text.format("[phone]")


FORMATS = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d", "%Y-%m-%d %H:%M", "%H:%M:%S", "%Y年%m月%d日"]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from(FORMATS))
def test_no_date_is_a_phone_number(time, form):
    text = f"on {time.strftime(form)} it was"
    assert phones(text) == text


@given(
    st.decimals(Decimal("0.01"), Decimal(10**9), places=2),
    st.sampled_from(["{:.2f}", "{:,.2f}", "${:,.2f}", "{:.0f} €"]),
)
def test_no_price_is_a_phone_number(price, form):
    text = f"for {form.format(price)} each"
    assert phones(text) == text


@given(st.lists(st.integers(0, 999_999), min_size=2, max_size=4), st.sampled_from(["v{}", "{}", "{}-rc1", "==={}"]))
def test_no_version_is_a_phone_number(numbers, form):
    text = form.format(".".join(map(str, [min(numbers[0], 99), *numbers[1:]])))
    if len(numbers) != 3 or len(str(numbers[2])) != 4 or len(str(numbers[1])) != 3:
        assert phones(text) == text


@given(st.integers(0, 10**10 - 1) | st.integers(10**11, 10**18))
def test_no_plain_number_is_a_phone_number(number):
    assert phones(f"number {number}.") == f"number {number}."


@given(st.uuids() | st.text("0123456789abcdef", min_size=16, max_size=64).filter(lambda text: not text.isdigit()))
def test_no_id_is_a_phone_number_or_an_address(name):
    assert phones(f"({name})") == emails(f"({name})") == f"({name})"


@given(st.text(st.sampled_from("+0123456789 ()-/.@ab电,\n"), max_size=60))
def test_what_was_redacted_once_stays_as_it_is(text):
    once = phones(emails(text))
    assert phones(emails(once)) == once


def test_all_texts_of_a_message_go_through_a_hook_and_its_names_do_not():
    message = Message(
        "log:1", "acme/a@b.de", "a@b.de", "write a@b.de", source_id="a@b.de", speaker="a@b.de", role="user",
        attachments=(
            {"type": "tool_call", "id": "a@b.de", "arguments": '{"to":"a@b.de"}', "more": {"a@b.de": ["a@b.de", 1]}},
        ),
        note="a@b.de was cut",
    )  # fmt: skip
    found = redact(message, emails)
    assert (found.text, found.speaker, found.note) == ("write [email]", "[email]", "[email] was cut")
    assert found.attachments == (
        {"type": "tool_call", "id": "a@b.de", "arguments": '{"to":"[email]"}', "more": {"[email]": ["[email]", 1]}},
    )
    assert (found.namespace, found.session_id, found.source_id) == ("acme/a@b.de", "a@b.de", "a@b.de")


def test_a_number_in_an_attachment_that_is_a_phone_number_is_taken_out():
    attachments = ({"type": "tool_call", "arguments": {"phone": 13800138000, "amount": 12.5, "urgent": True}},)
    found = redact(Message("log:1", "acme", "s", "call", attachments=attachments), phones)
    assert found.attachments[0]["arguments"] == {"phone": "[phone]", "amount": 12.5, "urgent": True}


def run(**changes):
    steps = (Step("mail a@b.de", "sent to a@b.de"), Step("done", None))
    return Run("log:1", "acme", "0" * 24, "t", "Write to a@b.de", steps, "success", 2, **changes)


def test_all_texts_of_a_run_go_through_a_hook():
    found = redact(run(source_id="r1", note="a@b.de"), emails)
    assert (found.task, found.note) == ("Write to [email]", "[email]")
    assert found.steps == (Step("mail [email]", "sent to [email]"), Step("done", None))
    assert (found.trajectory_id, found.source_id) == ("0" * 24, "r1")


def test_the_id_of_a_run_is_not_made_of_what_was_taken_out():
    one = redact(run(), emails)
    other = redact(run(), lambda text: text.replace("a@b.de", "[email]"))
    assert one.trajectory_id == other.trajectory_id != "0" * 24


def test_the_raw_text_and_the_reason_of_a_refused_row_go_through_a_hook():
    found = redact(Dropped("log:1", "rejected", "no time in a@b.de", '{"to": "a@b.de"}'), emails)
    assert (found.reason, found.raw) == ("no time in [email]", '{"to": "[email]"}')
    assert redact(Dropped("log:1", "empty", "nothing"), emails).raw is None


def test_half_an_address_at_the_end_of_a_cut_text_is_not_kept():
    cut = ("x" * 1_980 + " anna.maria@example.org")[:2_000]
    assert "anna" not in redact(Dropped("log:1", "rejected", "why", cut), emails).raw
