"""Every row of the tables of `docs/time.md`, as a reader would check it."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hgmem_core.dates import find_times, granularity

FRIDAY = datetime(2024, 3, 15, 12, tzinfo=UTC)
ROW = re.compile(r"\| (?P<said>[^|]+) \|[^|]*\| (?P<interval>[^|]+) \| ?(?P<granularity>[^|]*?) ?\|")
DOCUMENT = Path(__file__).parents[2] / "docs" / "time.md"
ROWS = [match.groups() for match in map(ROW.fullmatch, DOCUMENT.read_text(encoding="utf-8").splitlines()) if match]
ROWS = [row for row in ROWS if row[0] != "said"]


def end_of(text, is_last):
    """A time of the table; a day that ends an interval belongs to it."""
    if not text:
        return None
    if " " in text:
        return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    day = date.fromisoformat(text) + timedelta(days=is_last)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


@pytest.mark.parametrize(("said", "interval", "fineness"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_table_holds(said, interval, fineness):
    found = find_times(said, FRIDAY, ZoneInfo("UTC"))
    if interval == "nothing":
        assert found == []
        return
    [mention] = found
    assert said[mention.place :].startswith(mention.phrase)
    if interval == "unknown":
        assert not mention.is_placed and (mention.start, mention.end) == (None, None)
        return
    first, dots, last = (part.strip() for part in interval.partition(".."))
    assert (mention.start, mention.end) == (end_of(first, False), end_of(last if dots else first, True))
    assert mention.granularity == fineness


@pytest.mark.parametrize("row", [row for row in ROWS if row[2]], ids=lambda row: row[0])
def test_a_phrase_alone_tells_its_granularity(row):
    [mention] = find_times(row[0], FRIDAY, ZoneInfo("UTC"))
    if mention.phrase == row[0]:  # else the rest of the sentence may say it
        assert granularity(mention.phrase) == row[2]


def test_the_table_has_rows_of_all_three_languages():
    assert len(ROWS) > 200
