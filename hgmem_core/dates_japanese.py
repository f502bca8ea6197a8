"""Japanese temporal expressions that differ from Chinese ones; the rule table is `docs/time.md`."""

import re
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType

from hgmem_core import holidays, spans
from hgmem_core.dates_chinese import COUNT, DAY, MONTH, away, chinese_number, count_of, is_part, window, within_year
from hgmem_core.spans import Span
from hgmem_core.time_rules import Resolver, TimeRule, choose

_UNIT = r"(?P<unit>分|時間|日|週間?|[か箇ヶケカヵ]月|年)"
_DAYS = MappingProxyType(
    {"一昨日": -2, "おととい": -2, "昨日": -1, "きのう": -1, "今日": 0, "きょう": 0, "本日": 0, "明日": 1, "あした": 1}
    | {"あす": 1, "明後日": 2, "あさって": 2}
)
_NIGHTS = MappingProxyType(
    {
        "昨夜": (-1, "night"),
        "昨晩": (-1, "night"),
        "ゆうべ": (-1, "night"),
        "今朝": (0, "morning"),
        "今夜": (0, "night"),
    }
    | {"今晩": (0, "night"), "明朝": (1, "morning"), "明晩": (1, "night")}
)
_PARTS = MappingProxyType(
    {"午前中": "morning", "午前": "morning", "朝": "morning", "午後": "afternoon", "夕方": "evening", "晩": "night"}
    | {"夜": "night"}
)
_PART = rf"(?:の?(?P<part>{'|'.join(_PARTS)}))?"
_STEPS = MappingProxyType({"先々": -2, "先": -1, "今": 0, "来": 1, "再来": 2})
_STEP = r"(?P<step>先々|再来|[先今来])"
_YEARS = MappingProxyType({"一昨年": -2, "おととし": -2, "昨年": -1, "去年": -1, "今年": 0, "来年": 1, "再来年": 2})
_ERAS = MappingProxyType(
    {"明治": (1868, 45), "大正": (1912, 15), "昭和": (1926, 64), "平成": (1989, 31), "令和": (2019, 99)}
)
"""The first year of an era, and how many years it had."""
_WEEKDAYS = MappingProxyType({sign: number for number, sign in enumerate("月火水木金土日")})
# Words in kana are times only where a particle, a sign or the end follows, and no other kana precedes.
_KANA_END = r"(?=[はもにのがをへ、。！？!?\s一-龥]|から|まで|$)"
_KANA = r"(?<![ぁ-ん])"


def _in_day(day: Span, part: str | None, now: datetime) -> Span:
    return spans.part_of_day(day.start, part, now.tzinfo) if part else day


def _near_day(match: re.Match[str], now: datetime) -> Span:
    part = _PARTS[match["part"]] if match["part"] else None
    return _in_day(spans.day(now.date(), _DAYS[match["name"] or match["kana"]]), part, now)


def _night(match: re.Match[str], now: datetime) -> Span:
    offset, part = _NIGHTS[match[0]]
    return _in_day(spans.day(now.date(), offset), part, now)


def _of_week(match: re.Match[str], now: datetime) -> Span:
    step = _STEPS[match["step"]]
    if match["weekend"]:
        return spans.weekend(now.date(), step)
    if match["weekday"]:
        day = spans.weekday_of_week(now.date(), _WEEKDAYS[match["weekday"]], step)
        return _in_day(day, _PARTS[match["part"]] if match["part"] else None, now)
    return spans.week(now.date(), step)


def _of_month(match: re.Match[str], now: datetime) -> Span:
    month = spans.unit(now.date(), "month", _STEPS[match["step"]])
    if not match["day"]:
        return month
    return spans.named_day(now.date(), month.start.month, chinese_number(match["day"]), month.start.year)


def _year_of(match: re.Match[str], now: datetime) -> int | None:
    if match["year"]:
        return now.year + _YEARS[match["year"]]
    first, most = _ERAS[match["era"]]
    number = 1 if match["number"] == "元" else chinese_number(match["number"])
    return first + number - 1 if 1 <= number <= most else None


def _of_year(match: re.Match[str], now: datetime) -> Span | None:
    year = _year_of(match, now)
    return None if year is None else within_year(year, match)


def _day_of_month(match: re.Match[str], now: datetime) -> Span | None:
    return None if is_part(match, "day") else spans.day_of_month(now.date(), chinese_number(match["day"]))


def _distance(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    if count is None or (match["unit"] == "年" and count[0] >= 1900):
        return None
    return away(now, match["unit"], count, -1 if match["side"] in ("前", "まえ") else 1)


def _window(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    return count and window(now, match["unit"], count, 1 if match["side"] in ("今後", "これから") else -1)


def _duration(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    return count and window(now, match["unit"], count, -1)


def _holiday(match: re.Match[str], now: datetime) -> Span | None:
    rule = holidays.JAPANESE[match["holiday"]]
    if match["digits"]:
        return holidays.holiday(int(match["digits"]), rule)
    if match["year"] or match["era"]:
        year = _year_of(match, now)
        return None if year is None else holidays.holiday(year, rule)
    return choose(now.date(), holidays.around(now.date(), rule), None)


def _unknown(match: re.Match[str], now: datetime) -> None:
    return None


def _rule(
    triggers: str, pattern: str, resolve: Resolver, fits: Callable[[re.Match[str]], bool] | None = None
) -> TimeRule:
    rule = TimeRule(tuple(triggers.split("|")), re.compile(pattern), resolve)
    return rule._replace(fits=fits) if fits else rule


_YEAR = (
    rf"(?:(?P<year>{'|'.join(sorted(_YEARS, key=len, reverse=True))})"
    rf"|(?P<era>{'|'.join(_ERAS)})(?P<number>元|\d{{1,2}}|[一二三四五六七八九十]{{1,3}})年)"
)
_HOLIDAYS = "|".join(sorted(holidays.JAPANESE, key=len, reverse=True))
_KANJI_DAYS = "一昨日|明後日|昨日|今日|本日|明日"
_KANA_DAYS = "おととい|きのう|きょう|あした|あさって|あす"
RULES = (
    _rule(
        "日|おととい|きのう|きょう|あした|あさって|あす",
        rf"(?:(?P<name>{_KANJI_DAYS})|{_KANA}(?P<kana>{_KANA_DAYS}){_KANA_END}){_PART}",
        _near_day,
    ),
    _rule("昨夜|昨晩|ゆうべ|今朝|今夜|今晩|明朝|明晩", "|".join(_NIGHTS), _night),
    _rule(
        "週",
        rf"{_STEP}週(?:の?(?P<weekend>週末|末)|の?(?P<weekday>[月火水木金土日])曜日?{_PART})?",
        _of_week,
    ),
    _rule("曜", r"(?<![週の毎\d])[月火水木金土日]曜日?", _unknown),
    _rule("月", rf"{_STEP}月(?:の?{DAY})?", _of_month),
    _rule(
        "年|おととし",
        rf"{_YEAR}(?:の?(?P<season>[春夏秋冬])|の?{MONTH}(?:\s?{DAY})?)?",
        _of_year,
    ),
    _rule("日に", r"(?P<day>\d{1,2}|[一二三四五六七八九十]{1,3})日(?=に(?![一1１]))", _day_of_month),
    _rule("前|後|まえ", rf"{COUNT}\s?{_UNIT}\s?(?P<side>前|まえ|後)(?!半)", _distance),
    _rule("ここ|この|過去|今後|これから", rf"(?P<side>ここ|この|過去|今後|これから)の?{COUNT}{_UNIT}間?", _window),
    _rule(
        "間",
        rf"{COUNT}(?P<unit>日|週|[か箇ヶケカヵ]月|年)間(?=[^。、！？!?\n]{{0,20}}(?:てい(?:る|ます)|でい(?:る|ます)|続けて))",
        _duration,
    ),
    _rule(
        "日|ン|ス|イブ|デー",
        rf"(?:(?:{_YEAR}|(?P<digits>(?:19|20)\d\d)年)の?)?(?P<holiday>{_HOLIDAYS})"
        r"(?!ツリー|プレゼント|パーティー|ケーキ|カード|ソング)",
        _holiday,
    ),
)
