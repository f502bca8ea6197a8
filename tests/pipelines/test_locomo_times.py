"""A hundred temporal expressions of LoCoMo, every third or so, as a careful reader places them.

Weeks begin on Monday, and `last Friday` is the latest before the day of saying: where English leaves a choice, the
table of `docs/time.md` is what was read by; otherwise the sentence.
"""

import os
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hgmem_core.dates import find_times
from pipelines.time_evaluation import locomo_messages

# Conversation, message, place in its text, and the interval in UTC; - where no reader can say when.
READ = """\
conv-26 D1:3 32 2023-05-07/2023-05-08
conv-26 D2:7 101 2023-06-01/2023-09-01
conv-26 D3:1 308 2020-01-01/2021-01-01
conv-26 D4:5 129 2013-01-01/2014-01-01
conv-26 D5:4 66 2023-07-02/2023-07-03
conv-26 D6:11 226 2023-06-26/2023-07-03
conv-26 D8:9 68 2023-07-14/2023-07-15
conv-26 D9:1 87 2023-07-08/2023-07-10
conv-26 D9:12 5 2023-08-01/2023-09-01
conv-26 D10:12 170 -
conv-26 D11:4 106 2023-08-11/2023-08-12
conv-26 D12:17 93 2023-06-01/2023-09-01
conv-26 D14:4 33 2023-08-24/2023-08-25
conv-26 D14:25 86 2023-08-18/2023-08-25
conv-26 D15:11 50 2023-09-01/2023-10-01
conv-26 D16:2 177 2023-08-07/2023-09-04
conv-26 D17:12 23 2023-10-02/2023-10-09
conv-26 D19:1 56 2023-10-20/2023-10-21
conv-30 D1:13 19 2023-01-27/2023-01-28
conv-30 D3:2 122 2023-02-01/2023-02-02
conv-30 D8:12 93 2023-04-03/2023-09-04
conv-30 D10:1 54 2023-04-24/2023-04-25
conv-30 D15:5 30 2023-06-20/2023-06-21
conv-30 D15:10 46 2023-06-20/2023-06-21
conv-30 D15:19 8 2023-06-20/2023-06-21
conv-30 D16:6 22 2023-06-20/2023-06-21
conv-30 D18:1 28 2023-07-10/2023-07-17
conv-41 D1:2 66 2022-12-16/2022-12-17
conv-41 D3:1 72 2022-12-19/2022-12-26
conv-41 D5:6 125 2023-01-16/2023-01-23
conv-41 D8:1 46 2023-02-27/2023-03-06
conv-41 D8:18 64 2023-02-27/2023-03-06
conv-41 D10:10 0 2023-04-01/2023-04-03
conv-41 D11:14 106 2023-04-03/2023-04-10
conv-41 D13:16 97 2023-05-03T18/2023-05-04T06
conv-41 D14:1 72 2023-04-24/2023-05-01
conv-41 D15:11 122 2023-05-19/2023-05-20
conv-41 D17:5 33 2023-06-03/2023-07-09
conv-41 D19:1 85 2023-06-05/2023-06-12
conv-41 D22:7 52 2022-01-01/2023-01-01
conv-41 D24:6 6 2023-07-15/2023-07-17
conv-41 D26:1 85 2023-07-24/2023-07-31
conv-41 D27:9 91 2023-07-24/2023-07-31
conv-41 D29:2 103 2023-08-05/2023-08-07
conv-41 D31:9 123 2023-07-31/2023-08-07
conv-42 D2:1 25 2022-01-18/2022-01-24
conv-42 D3:1 94 -
conv-42 D7:1 39 2022-04-04/2022-04-11
conv-42 D8:20 50 2022-04-17T18/2022-04-18T06
conv-42 D11:1 40 -
conv-42 D14:18 66 2022-06-04/2022-06-06
conv-42 D15:1 10 2022-06-04/2022-06-05
conv-42 D16:10 33 2022-06-25/2022-06-26
conv-42 D18:5 5 2022-08-01/2022-08-08
conv-42 D19:9 25 2022-08-27/2022-08-29
conv-42 D21:4 75 2022-09-12/2022-09-13
conv-42 D22:9 231 2022-09-26/2022-10-03
conv-42 D23:17 214 -
conv-42 D26:5 171 2022-10-24/2022-10-31
conv-42 D26:19 43 2022-11-05/2022-11-06
conv-42 D27:12 42 2022-10-31/2022-11-07
conv-42 D28:26 141 2022-01-01/2023-01-01
conv-47 D1:26 43 2022-03-16/2022-03-17
conv-47 D3:1 56 2022-03-14/2022-03-21
conv-47 D5:1 73 2022-04-04/2022-04-11
conv-47 D6:6 86 2022-04-04/2022-04-11
conv-47 D7:2 50 2022-04-21/2022-04-22
conv-47 D8:11 80 2022-04-26/2022-04-27
conv-47 D9:2 119 -
conv-47 D9:10 108 2022-05-04/2022-05-05
conv-47 D12:6 103 -
conv-47 D13:5 26 2022-07-01/2022-08-01
conv-47 D15:3 23 2022-06-18T18/2022-06-19T06
conv-47 D16:5 149 2022-07-08/2022-07-09
conv-47 D16:9 217 2022-07-11T18/2022-07-12
conv-47 D17:36 24 2022-07-20/2022-07-23
conv-47 D19:14 141 2022-08-11/2022-08-12
conv-47 D20:12 266 -
conv-47 D21:11 13 2022-08-27/2022-08-28
conv-47 D23:1 20 2022-08-30/2022-09-03
conv-47 D23:13 5 2022-09-02/2022-09-03
conv-47 D25:3 0 2022-09-19/2022-09-20
conv-47 D25:21 11 2022-09-19/2022-09-26
conv-47 D28:3 0 2022-10-18/2022-10-19
conv-47 D28:25 128 -
conv-47 D30:1 34 2022-11-04/2022-11-05
conv-50 D1:15 22 -
conv-50 D3:12 0 2023-04-15/2023-04-17
conv-50 D6:8 37 2023-05-08/2023-05-15
conv-50 D8:1 50 2023-06-08/2023-06-09
conv-50 D8:6 275 -
conv-50 D12:4 93 -
conv-50 D15:1 39 2023-08-18/2023-08-19
conv-50 D17:6 129 2023-08-21/2023-08-28
conv-50 D20:4 39 -
conv-50 D23:1 117 -
conv-50 D24:5 15 2022-08-01/2022-09-01
conv-50 D25:1 74 2023-10-16/2023-10-23
conv-50 D27:6 56 2023-09-01/2023-10-01
conv-50 D28:24 54 -
"""
MISSED = {
    # Children who look forward to their summer break mean the coming summer.
    ("conv-26", "D2:7", 101),
}


def interval_of(mention):
    return "/".join(moment(end) if end else "" for end in (mention.start, mention.end))


def moment(at):
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H" if at.hour else "%Y-%m-%d")


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_a_hundred_expressions_mean_what_a_reader_says():
    data = Path(os.environ["HGMEM_DATA"]) / "locomo" / "locomo6.json"
    messages = {(one.namespace.removeprefix("locomo/"), one.source_id): one for one in locomo_messages(data)}
    wrong = set()
    for conversation, message, place, interval in map(str.split, READ.splitlines()):
        said = messages[conversation, message]
        found = [
            interval_of(mention)
            for mention in find_times(said.text, said.said_at, ZoneInfo(said.time_zone))
            if mention.place <= int(place) < mention.place + len(mention.phrase)
        ]
        if found != ([] if interval == "-" else [interval]):
            wrong.add((conversation, message, int(place)))
    assert len(READ.splitlines()) == 100
    assert wrong == MISSED
