"""Chinese temporal expressions, and what Japanese writes with the same signs; the rule table is `docs/time.md`."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType

from hgmem_core import holidays, spans
from hgmem_core.spans import Span
from hgmem_core.time_rules import Resolver, TimeRule, choose

_DIGITS = MappingProxyType(
    {sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
)
COUNT = r"(?P<count>\d{1,4}|[一二三四五六七八九十两兩]{1,3}|几|幾|数|數)"
_UNIT = r"(?P<unit>分钟|分鐘|个?小时|個?小時|天|日|个?星期|個?星期|个?礼拜|周|週間?|个?月|個?月|年)"
_WEEK = r"(?:个|個)?(?:周|週|星期|礼拜|禮拜)"
_DAYS = MappingProxyType(
    {"大前天": -3, "前天": -2, "昨天": -1, "昨日": -1, "昨": -1, "今天": 0, "今日": 0, "今": 0, "明天": 1, "明日": 1}
    | {"明": 1, "后天": 2, "後天": 2, "大后天": 3, "大後天": 3}
)
_PARTS = MappingProxyType(
    {"早上": "morning", "早晨": "morning", "清晨": "morning", "上午": "morning", "早": "morning", "下午": "afternoon"}
    | {"傍晚": "evening", "晚上": "night", "夜里": "night", "夜裡": "night", "晚": "night"}
)
_PART = rf"(?P<part>{'|'.join(name for name in _PARTS if len(name) > 1)})"
_STEPS = MappingProxyType({"上上": -2, "上": -1, "这": 0, "這": 0, "本": 0, "下": 1, "下下": 2})
_STEP = r"(?P<step>上上|下下|[上这這本下])"
_YEARS = MappingProxyType({"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2, "後年": 2})
YEAR_DIGITS = r"(?<![\d零〇一二三四五六七八九])(?P<digits>(?:19|20)\d\d|[一二][零〇一二三四五六七八九]{3})"
SEASONS = MappingProxyType({"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"})
_WEEKDAYS = MappingProxyType({sign: number for number, sign in enumerate("一二三四五六日")} | {"天": 6})
SIGNED_MONTH = r"(?:1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])\s?月"
SIGNED_DAY = r"(?:\d{1,2}|[一二三四五六七八九十]{1,3})\s?[日号號]"
MONTH = r"(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])\s?月"
DAY = r"(?P<day>\d{1,2}|[一二三四五六七八九十]{1,3})\s?(?:日|号|號)"
_NUMBER = re.compile(r"[零一二三四五六七八九两兩]|(?P<tens>[一二三四五六七八九]?)十(?P<ones>[一二三四五六七八九]?)")
_YEAR_SIGNS = re.compile(r"[一二][零〇一二三四五六七八九]{3}")
_SIGNS = "零〇一二三四五六七八九十百千万萬亿億两兩几幾"
# Before a number that is the end of another: 十|几, 一百|二十, 1.|5, 三到|五, 第|三, 一年零|三个月.
_PART_NUMBER = re.compile(
    rf"(?:[\d{_SIGNS}数數多半第点點.．/~～–−-]|\d[,，]|[\d{_SIGNS}](?:到|至|或|、|—)"
    rf"|[\d{_SIGNS}]\s?[个個]?(?:年|月|周|週|星期|礼拜|天|日|小时|小時|分钟|分鐘)[又零多半]?)\s?$"
)
_MOST_BEFORE = 8
_KANA = re.compile("[ぁ-んァ-ヶ]")
_FIRST_YEAR = 1900


def chinese_number(text: str) -> int:
    """Return a number below one hundred, one of decimal digits, or a year of four signs.

    Raises:
        ValueError: The signs are no single number, as 二三 or 十五六.

    >>> chinese_number("二十三"), chinese_number("十"), chinese_number("12"), chinese_number("二〇二四")
    (23, 10, 12, 2024)
    """
    if text.isdecimal():
        return int(text)
    if _YEAR_SIGNS.fullmatch(text):
        return int("".join(str(_DIGITS[sign]) for sign in text))
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not one number")
    if match["tens"] is None:
        return _DIGITS[text]
    return _DIGITS.get(match["tens"], 1) * 10 + _DIGITS.get(match["ones"], 0)


def is_part(match: re.Match[str], name: str) -> bool:
    """Say whether the number in the group `name` is the end of another."""
    start = match.start(name)
    return _PART_NUMBER.search(match.string, max(0, start - _MOST_BEFORE), start) is not None


def count_of(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the lowest and the highest number that is meant; None for a part of another number."""
    if is_part(match, "count"):
        return None
    return spans.FEW if match["count"] in "几幾数數" else (chinese_number(match["count"]),) * 2


def away(now: datetime, unit: str, count: tuple[int, int], sign: int) -> Span:
    """Return what lies so many minutes, hours, days, weeks, months or years before (`sign` -1) or after (1) now."""
    name = unit_name(unit)
    if name in ("minute", "hour"):
        step = timedelta(minutes=1) if name == "minute" else timedelta(hours=1)
        moments = sorted((now.astimezone(UTC) + sign * number * step).astimezone(now.tzinfo) for number in count)
        first, last = (spans.moment(at, "minute" if name == "minute" else "hour") for at in moments)
        return Span(first.start, last.end, first.granularity)
    return spans.units(now.date(), name, count, sign)


def unit_name(unit: str) -> str:
    """Return the name that `hgmem_core.spans` has for a Chinese or Japanese unit."""
    unit = unit.lstrip("个個")
    if unit[0] in "分小時":
        return "minute" if unit[0] == "分" else "hour"
    return "day" if unit[0] in "天日" else "year" if unit[0] == "年" else "month" if unit[-1] == "月" else "week"


def window(now: datetime, unit: str, count: tuple[int, int], sign: int) -> Span:
    """Return so many units up to, or from, the day of saying."""
    name = unit_name(unit)
    return spans.day(now.date()) if name in ("minute", "hour") else spans.window(now.date(), name, count[1], sign)


def _in_day(day: Span, part: str | None, now: datetime) -> Span:
    return spans.part_of_day(day.start, _PARTS[part], now.tzinfo) if part else day


def _near_day(match: re.Match[str], now: datetime) -> Span:
    name, part = (match["near"], match["near_part"]) if match["near"] else (match["name"], match["part"])
    return _in_day(spans.day(now.date(), _DAYS[name]), part, now)


def _few_days_ago(match: re.Match[str], now: datetime) -> Span:
    return spans.units(now.date(), "day", (1, 7), -1)


def _of_week(match: re.Match[str], now: datetime) -> Span:
    step = _STEPS[match["step"]]
    if match["weekend"]:
        return spans.weekend(now.date(), step)
    if match["weekday"]:
        day = spans.weekday_of_week(now.date(), _WEEKDAYS[match["weekday"]], step)
        return _in_day(day, match["part"], now)
    return spans.week(now.date(), step)


def _of_month(match: re.Match[str], now: datetime) -> Span:
    month = spans.unit(now.date(), "month", _STEPS[match["step"]])
    if not match["day"]:
        return month
    return spans.named_day(now.date(), month.start.month, chinese_number(match["day"]), month.start.year)


def year_of(match: re.Match[str], now: datetime) -> int:
    """Return the year that the groups `year` or `digits` name."""
    return chinese_number(match["digits"]) if match["digits"] else now.year + _YEARS[match["year"]]


def within_year(number: int, match: re.Match[str]) -> Span:
    """Return the season, the month or the day of a year that a match names, else the year."""
    if match["season"]:
        return spans.season(number, SEASONS[match["season"]])
    if not match["month"]:
        return spans.year(number)
    month = chinese_number(match["month"])
    if match["day"]:
        return spans.day(date(number, month, chinese_number(match["day"])))
    return spans.month(number, month)


def _is_chinese(match: re.Match[str]) -> bool:
    # In Japanese, 前年 and 後年 count from what is told.
    return match["year"] not in ("前年", "後年") or _KANA.search(match.string) is None


def _of_year(match: re.Match[str], now: datetime) -> Span:
    """Resolve `去年`, `去年夏天`, `去年五月`, `去年五月七日`, and the same with a year in digits or signs."""
    return within_year(year_of(match, now), match)


def _month_day(match: re.Match[str], now: datetime) -> Span | None:
    if is_part(match, "month"):
        return None
    month = chinese_number(match["month"])
    if match["day"]:
        return spans.named_day(now.date(), month, chinese_number(match["day"]), None)
    return spans.nearest_month(now.date(), month)


def _day_of_month(match: re.Match[str], now: datetime) -> Span | None:
    return None if is_part(match, "day") else spans.day_of_month(now.date(), chinese_number(match["day"]))


def _distance(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    if count is None or match["half"] or (match["unit"] == "年" and count[0] >= _FIRST_YEAR):
        return None  # 2020年前 is before that year
    return away(now, match["unit"], count, -1 if match["side"].endswith("前") else 1)


def _window(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    return count and window(
        now, match["unit"], count, 1 if match["side"] in ("未来", "未來", "接下来", "接下來") else -1
    )


def _duration(match: re.Match[str], now: datetime) -> Span | None:
    count = count_of(match)
    return count and window(now, match["unit"], count, -1)


_QUARTERS = MappingProxyType({sign: number for number, sign in enumerate("一二三四", 1)})


def _quarter(match: re.Match[str], now: datetime) -> Span:
    if match["step"]:
        return spans.unit(now.date(), "quarter", _STEPS[match["step"]])
    return spans.quarter(year_of(match, now), _QUARTERS.get(match["quarter"]) or int(match["quarter"]))


def _decade(match: re.Match[str], now: datetime) -> Span | None:
    if is_part(match, "decade"):
        return None
    number = chinese_number(match["decade"])
    return spans.decade(number if number >= 100 else 1900 + number)


def _holiday(match: re.Match[str], now: datetime) -> Span:
    rule = holidays.CHINESE[match["holiday"]]
    if match["digits"] or match["year"]:
        return holidays.holiday(year_of(match, now), rule)
    return choose(now.date(), holidays.around(now.date(), rule), None)


def _unknown(match: re.Match[str], now: datetime) -> None:
    return None


def _rule(
    triggers: str, pattern: str, resolve: Resolver, fits: Callable[[re.Match[str]], bool] | None = None
) -> TimeRule:
    rule = TimeRule(tuple(triggers), re.compile(pattern), resolve)
    return rule._replace(fits=fits) if fits else rule


_YEAR = rf"(?:(?P<year>{'|'.join(_YEARS)})|{YEAR_DIGITS}\s?年)"
_NAMED_DAYS = "|".join(sorted((name for name in _DAYS if len(name) > 1), key=len, reverse=True))
# What stands after a holiday where something else is named after it.
_NO_HOLIDAY = r"(?![礼禮树樹卡歌晚劳勞])"
# A number with 号 may also name a house, a line or a player.
_DAY_END = (
    r"(?=[，。！？、；,.!?;\s]|$|[我你他她它咱们去来在到就要是那见会有]|[上下中]午|晚上|早上|之前|以前|之后|以后|开始)"
)
# 五一 is also a number.
_HOLIDAYS = "|".join(holidays.CHINESE).replace(
    "五一", rf"(?<![\d{_SIGNS}])五一(?![\d{_SIGNS}年月日号號天个個点點路班])"
)
RULES = (
    _rule(
        "天日早晚",
        rf"(?P<name>{_NAMED_DAYS}){_PART}?|(?P<near>[昨今明])(?P<near_part>[早晚])(?!点|點)",
        _near_day,
    ),
    _rule("前", r"前[几幾两兩些]天", _few_days_ago),
    _rule(
        "周週星礼禮",
        rf"(?<![日以]){_STEP}{_WEEK}(?![期围圍边邊])(?:(?P<weekend>末)|(?P<weekday>[一二三四五六日天]){_PART}?)?",
        _of_week,
    ),
    _rule(
        "周週星礼禮",
        r"(?<![上下这這本个個每隔\d])(?:周|週|星期|礼拜|禮拜)[一二三四五六日天](?![一二三四五六日天])",
        _unknown,
    ),
    _rule("月", rf"{_STEP}(?:个|個)?月(?:\s?{DAY})?", _of_month),
    _rule(
        "年",
        rf"{_YEAR}(?:的?(?P<season>[春夏秋冬])[天季]?|的?\s?{MONTH}(?:份|\s?{DAY})?)?(?!代)",
        _of_year,
        _is_chinese,
    ),
    _rule("月", rf"(?<![\d个個]){MONTH}(?:份|\s?{DAY}|(?!\s?[\d{_SIGNS}龄]))", _month_day),
    _rule("号號", rf"(?P<day>\d{{1,2}}|[一二三四五六七八九十]{{1,3}})[号號]{_DAY_END}", _day_of_month),
    _rule("前后後", rf"{COUNT}\s?{_UNIT}(?P<half>半)?\s?(?P<side>以前|之前|前|以后|之后|以後|之後|后|後)", _distance),
    _rule("半", "半(?:年|个月|個月|月)[前后後]", _unknown),
    _rule("去近未接", rf"(?P<side>过去|過去|最近|近|未来|未來|接下来|接下來)的?{COUNT}{_UNIT}", _window),
    _rule("了", rf"(?:(?<=了)|(?<=已经)|(?<=已經)){COUNT}{_UNIT}(?=了)", _duration),
    _rule("季", rf"{_STEP}(?:个|個)?季度|{_YEAR}的?第?(?P<quarter>[1-4一二三四])季度", _quarter),
    _rule("代", r"(?:上世纪|上世紀)?(?P<decade>(?:(?:19|20)\d|[3-9])0|[三四五六七八九]十)年代", _decade),
    _rule("节節旦安五庆慶", rf"(?:{_YEAR}的?)?(?P<holiday>{_HOLIDAYS}){_NO_HOLIDAY}", _holiday),
    # Their days come from the moon or the sun.
    _rule("节節夕", rf"(?:{_YEAR}的?)?(?:春节|春節|元宵节|清明节|端午节|端午節|中秋节|中秋節|重阳节|除夕)", _unknown),
)
