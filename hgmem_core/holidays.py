"""Holidays that a rule of the calendar places: by the day of a month, or by the number of a weekday in it.

Those of the moon, of Easter or of a table are left out, and so are those that differ between countries without a rule
of their own in the language. Movable ones are those of the United States in English, of China in Chinese (where the
same), of Japan in Japanese.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from types import MappingProxyType

from hgmem_core import spans
from hgmem_core.spans import Span

Rule = tuple[int, int] | tuple[int, int, int]
"""Month and day; or month, weekday (Monday is 0) and which of them in the month, -1 for the last."""

ENGLISH: Mapping[str, Rule] = MappingProxyType(
    {
        "new year's eve": (12, 31),
        "new year's day": (1, 1),
        "new year's": (1, 1),
        "groundhog day": (2, 2),
        "valentine's day": (2, 14),
        "valentine's": (2, 14),
        "st patrick's day": (3, 17),
        "st. patrick's day": (3, 17),
        "april fools' day": (4, 1),
        "cinco de mayo": (5, 5),
        "mother's day": (5, 6, 2),
        "memorial day": (5, 0, -1),
        "father's day": (6, 6, 3),
        "juneteenth": (6, 19),
        "labor day": (9, 0, 1),
        "halloween": (10, 31),
        "veterans day": (11, 11),
        "thanksgiving day": (11, 3, 4),
        "thanksgiving": (11, 3, 4),
        "christmas eve": (12, 24),
        "christmas day": (12, 25),
        "christmas": (12, 25),
        "boxing day": (12, 26),
    }
)
CHINESE: Mapping[str, Rule] = MappingProxyType(
    {
        "元旦": (1, 1),
        "情人节": (2, 14),
        "妇女节": (3, 8),
        "愚人节": (4, 1),
        "五一": (5, 1),
        "劳动节": (5, 1),
        "青年节": (5, 4),
        "母亲节": (5, 6, 2),
        "儿童节": (6, 1),
        "父亲节": (6, 6, 3),
        "教师节": (9, 10),
        "国庆节": (10, 1),
        "国庆": (10, 1),
        "万圣节": (10, 31),
        "感恩节": (11, 3, 4),
        "平安夜": (12, 24),
        "圣诞节": (12, 25),
    }
)
JAPANESE: Mapping[str, Rule] = MappingProxyType(
    {
        "元日": (1, 1),
        "元旦": (1, 1),
        "成人の日": (1, 0, 2),
        "建国記念の日": (2, 11),
        "バレンタインデー": (2, 14),
        "ホワイトデー": (3, 14),
        "昭和の日": (4, 29),
        "憲法記念日": (5, 3),
        "みどりの日": (5, 4),
        "こどもの日": (5, 5),
        "母の日": (5, 6, 2),
        "父の日": (6, 6, 3),
        "敬老の日": (9, 0, 3),
        "スポーツの日": (10, 0, 2),
        "ハロウィン": (10, 31),
        "文化の日": (11, 3),
        "勤労感謝の日": (11, 23),
        "クリスマスイブ": (12, 24),
        "クリスマス": (12, 25),
        "大晦日": (12, 31),
    }
)


def holiday(year: int, rule: Rule) -> Span:
    """Return the day of a holiday in a year.

    >>> holiday(2023, ENGLISH["thanksgiving"]).start
    datetime.date(2023, 11, 23)
    """
    if len(rule) == 2:
        return spans.day(date(year, *rule))
    month, weekday, number = rule
    if number < 0:
        return spans.weekday_away(spans.month(year, month).end, weekday, number)
    return spans.weekday_away(date(year, month, 1) - timedelta(days=1), weekday, number)


def around(today: date, rule: Rule) -> list[Span]:
    """Return the holiday of two years before today's to two years after it, in order."""
    return [holiday(year, rule) for year in range(today.year - 2, today.year + 3)]
