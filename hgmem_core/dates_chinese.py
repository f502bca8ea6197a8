"""Chinese temporal expressions, and the Japanese ones of the same signs; the rule table is in `hgmem_core.dates`."""

import re
from datetime import date, datetime, timedelta
from types import MappingProxyType

from hgmem_core import spans
from hgmem_core.dates_english import Resolver
from hgmem_core.spans import Span

_DIGITS = MappingProxyType({sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "兩": 2})
_COUNT = r"(?P<count>\d{1,4}|[一二三四五六七八九十两兩]{1,3}|几|幾)"
_UNIT = r"(?P<unit>分钟|分鐘|个?小时|個?小時|天|日|个?星期|個?星期|个?礼拜|周|週間?|个?月|個?月|か月|年)"
_WEEK = r"(?:个|個)?(?:周|週|星期|礼拜|禮拜)"
_DAYS = MappingProxyType(
    {"大前天": -3, "前天": -2, "一昨日": -2, "昨天": -1, "昨晚": -1, "昨日": -1, "今天": 0, "今早": 0, "今晚": 0}
    | {"今日": 0, "明天": 1, "明晚": 1, "明日": 1, "后天": 2, "後天": 2, "明後日": 2, "大后天": 3, "大後天": 3}
)
_STEPS = MappingProxyType(
    {"上上": -2, "上": -1, "先": -1, "这": 0, "這": 0, "本": 0, "今": 0, "下": 1, "来": 1, "下下": 2}
)
_YEARS = MappingProxyType({"前年": -2, "去年": -1, "今年": 0, "明年": 1, "来年": 1, "后年": 2, "後年": 2})
_SEASONS = MappingProxyType({"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"})
_WEEKDAYS = MappingProxyType(
    {sign: number for number, sign in enumerate("一二三四五六日")}
    | {"天": 6}
    | {sign: number for number, sign in enumerate("月火水木金土")}
)
_MONTH = r"(?P<month>1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])\s?月"
_DAY = r"(?P<day>\d{1,2}|[一二三四五六七八九十]{1,3})\s?(?:日|号|號)"
_NUMBER = re.compile(r"[零一二三四五六七八九两兩]|(?P<tens>[一二三四五六七八九]?)十(?P<ones>[一二三四五六七八九]?)")
_SIGNS = "零〇一二三四五六七八九十百千万萬亿億两兩几幾"
# Before a number that is the end of another: 十|几, 一百|二十, 1.|5, 三到|五, 第|三, 一年零|三个月.
_PART = re.compile(
    rf"(?:[\d{_SIGNS}数數多半第点點.．/~～–−-]|\d[,，]|[\d{_SIGNS}](?:到|至|或|、|—)"
    rf"|[\d{_SIGNS}]\s?[个個]?(?:年|月|周|週|星期|礼拜|天|日|小时|小時|分钟|分鐘)[又零多半]?)\s?$"
)
_MOST_BEFORE = 8
_FIRST_YEAR = 1900


def chinese_number(text: str) -> int:
    """Return a number below one hundred, or one of decimal digits.

    Raises:
        ValueError: The signs are no single number, as 二三 or 十五六.

    >>> chinese_number("二十三"), chinese_number("十"), chinese_number("12")
    (23, 10, 12)
    """
    if text.isdecimal():
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not one number")
    if match["tens"] is None:
        return _DIGITS[text]
    return _DIGITS.get(match["tens"], 1) * 10 + _DIGITS.get(match["ones"], 0)


def _is_part(match: re.Match[str], name: str) -> bool:
    """Say whether the number in the group `name` is the end of another."""
    start = match.start(name)
    return _PART.search(match.string, max(0, start - _MOST_BEFORE), start) is not None


def _near_day(match: re.Match[str], now: datetime) -> Span:
    return spans.day(now.date(), _DAYS[match[0]])


def _of_week(match: re.Match[str], now: datetime) -> Span:
    step = _STEPS[match["step"]]
    if match["weekend"]:
        return spans.weekend(now.date(), step)
    if match["weekday"]:
        return spans.weekday_of_week(now.date(), _WEEKDAYS[match["weekday"]], step)
    return spans.week(now.date(), step)


def _of_month(match: re.Match[str], now: datetime) -> Span:
    return spans.unit(now.date(), "month", _STEPS[match["step"]])


def _of_year(match: re.Match[str], now: datetime) -> Span:
    """Resolve `去年`, `去年夏天`, `去年五月`, `去年五月七日`, and the same with a year in digits."""
    number = int(match["digits"]) if match["digits"] else now.year + _YEARS[match["year"]]
    if match["season"]:
        return spans.season(number, _SEASONS[match["season"]])
    if not match["month"]:
        return spans.year(number)
    month = chinese_number(match["month"])
    if match["day"]:
        return spans.day(date(number, month, chinese_number(match["day"])))
    return spans.month(number, month)


def _month_day(match: re.Match[str], now: datetime) -> Span | None:
    if _is_part(match, "month"):
        return None
    month = chinese_number(match["month"])
    if match["day"]:
        return spans.named_day(now.date(), month, chinese_number(match["day"]), None)
    return spans.nearest_month(now.date(), month)


def _distance(match: re.Match[str], now: datetime) -> Span | None:
    if match["half"] or _is_part(match, "count"):
        return None
    sign = -1 if match["side"].endswith("前") else 1
    low, high = spans.FEW if match["count"] in "几幾" else (chinese_number(match["count"]),) * 2
    unit = match["unit"].lstrip("个個")
    if unit == "年" and low >= _FIRST_YEAR:
        return None  # 2020年前 is before that year
    if unit[0] in "分小":
        step = timedelta(minutes=1) if unit[0] == "分" else timedelta(hours=1)
        ends = sorted([now + sign * low * step, now + sign * high * step])
        return ends[0].date(), ends[1].date() + timedelta(days=1)
    name = "day" if unit in "天日" else "year" if unit == "年" else "month" if unit.endswith("月") else "week"
    return spans.units(now.date(), name, (low, high), sign)


def _rule(triggers: str, pattern: str, resolve: Resolver) -> tuple[tuple[str, ...], re.Pattern[str], Resolver]:
    return tuple(triggers), re.compile(pattern), resolve


RULES = (
    _rule("天日晚早", "|".join(sorted(_DAYS, key=len, reverse=True)), _near_day),
    _rule(
        "周週星礼禮",
        rf"(?P<step>上上|下下|[上这這本下先今来]){_WEEK}"
        r"(?:(?P<weekend>末)|の?(?P<weekday>[一二三四五六日天月火水木金土])(?:曜日?)?)?",
        _of_week,
    ),
    _rule("月", r"(?P<step>上上|下下|[上这這下])(?:个|個)月|(?P<near>[本先今来])月", _of_month),
    _rule(
        "年",
        r"(?:(?P<year>前年|去年|今年|明年|来年|后年|後年)|(?<!\d)(?P<digits>(?:19|20)\d\d)\s?年)の?"
        rf"(?:(?P<season>[春夏秋冬])[天季]?|\s?{_MONTH}(?:份|\s?{_DAY})?)?",
        _of_year,
    ),
    _rule("月", rf"(?<![\d个個]){_MONTH}(?:份|\s?{_DAY})", _month_day),
    _rule("前后後", rf"{_COUNT}\s?{_UNIT}(?P<half>半)?\s?(?P<side>以前|之前|前|以后|之后|以後|之後|后|後)", _distance),
)
