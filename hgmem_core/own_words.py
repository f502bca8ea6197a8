"""What somebody says in their own words: a text without the code in it and without what others said that it quotes."""

import re

# A fence on a line of its own encloses code up to its like, or to the end: the text may have been cut there.
_FENCE = re.compile(r"[ \t>]*(`{3,}(?=[^`]*$)|~{3,}(?=[ \t]*[A-Za-z0-9+#.-]*[ \t]*$))")
# Within a line, as chats write it, a fence needs its partner.
_INLINE_FENCE = re.compile(r"```[^`\n]+```")
# A mark, then a blank or a letter: neither `>:(` nor `>5 people`.
_QUOTED = re.compile(r"\s{0,3}(?:>\s*)*>(?:\s|$|[^\W\d_])")
_QUOTED_TO_THE_END = re.compile(r"\s{0,3}>>>")
_WROTE = re.compile(
    r"\s{0,3}(?:On\b.{1,300}\bwrote|Am\b.{1,300}\bschrieb\b.{0,100}|Le\b.{1,300}\ba écrit|El\b.{1,300}\bescribió"
    r"|Il\b.{1,300}\bha scritto|.{1,200}(?:写道|寫道|のメール))\s?[:：]\s*"
)
_BEGINS = re.compile(r"\s{0,3}(?:On|Am|Le|El|Il)\b")
_LONGEST = 300
"""Of a line that says who wrote."""
_FORWARDED = re.compile(
    r"\s{0,3}(?:-{2,}\s?(?:Forwarded message|Original Message|Weitergeleitete Nachricht|Ursprüngliche Nachricht"
    r"|Message transféré|Message d'origine|Mensaje reenviado|Mensaje original"
    r"|转发邮件信息|转发的邮件|原始邮件|転送メッセージ).{0,80}"
    r"|Begin forwarded message:|\[?Forwarded from\b.{0,200})\s*",
    re.IGNORECASE,
)
_SENDER = re.compile(r"\s{0,3}(?:From|Von|De|差出人|发件人)\s?[:：]\s?\S.*", re.IGNORECASE)
_HEADER = re.compile(
    r"\s{0,3}(?:Sent|Date|To|Cc|Gesendet|Datum|An|Envoyé|À|Enviado|Fecha|Para|送信日時|宛先|发送时间|收件人)\s?[:：].*",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"\s{0,3}(?:Subject|Betreff|Objet|Asunto|件名|主题)\s?[:：].*", re.IGNORECASE)
_MARKS = ("```", "~~~", ">", ":", "：", "--")
"""Without any of them a text has nothing to leave out."""


def own_words(text: str) -> str:
    r"""Return `text` without fenced code, quoted lines, and forwarded or answered messages with what introduces them.

    What is left out is not said by whoever said the text. A line that says who wrote, and that no quoted line follows,
    makes the rest a quotation, and so does the head of a forwarded message.

    >>> own_words("Agreed.\n\nOn Tue, Bo wrote:\n> I hate tea.\nSee you at six.")
    'Agreed.\n\nSee you at six.'
    """
    if not any(mark in text for mark in _MARKS):
        return text
    kept: list[str] = []
    lines = _INLINE_FENCE.sub(" ", text).split("\n")
    # A row of tildes without a partner is a flourish.
    last_tildes = max((number for number, line in enumerate(lines) if _closes(line, "~~~")), default=-1)
    at, fence = 0, ""
    while at < len(lines):
        line = lines[at]
        opened = _FENCE.match(line)
        introduced = 0 if fence or opened else _introduction(lines, at)
        if fence:
            fence = "" if _closes(line, fence) else fence
        elif opened and (opened[1][0] == "`" or at < last_tildes):
            fence = opened[1]
        elif introduced:
            if not _QUOTED.match(
                next((one for one in lines[at + introduced : at + introduced + 3] if one.strip()), "")
            ):
                break
            at += introduced - 1
        elif _QUOTED_TO_THE_END.match(line) or _FORWARDED.fullmatch(line) or _begins_mail(lines, at):
            break
        elif not _QUOTED.match(line):
            kept.append(line)
        at += 1
    return "\n".join(kept)


def _closes(line: str, fence: str) -> bool:
    mark = line.strip(" \t>")
    return mark.startswith(fence) and not mark.strip(fence[0])


def _introduction(lines: list[str], at: int) -> int:
    """Return how many lines from here on say who wrote what comes next: 1, 2 where a mail program broke it, or 0."""
    if _WROTE.fullmatch(lines[at]):
        return 1
    if at + 1 < len(lines) and len(lines[at]) < _LONGEST and len(lines[at + 1]) < _LONGEST:
        return 2 if _BEGINS.match(lines[at]) and _WROTE.fullmatch(f"{lines[at]} {lines[at + 1]}") else 0
    return 0


def _begins_mail(lines: list[str], at: int) -> bool:
    """Say whether the head of a mail begins here: its sender, then its other fields, the subject among them."""
    if not _SENDER.fullmatch(lines[at]):
        return False
    for line in lines[at + 1 : at + 6]:
        if _SUBJECT.fullmatch(line):
            return True
        if not _HEADER.fullmatch(line):
            return False
    return False
