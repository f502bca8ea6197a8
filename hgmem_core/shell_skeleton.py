"""Command lines of a shell to what they have in common: commands, flags, and what joins them."""

import re
from collections.abc import Iterator

_NAMES = frozenset(
    "apt apt-get awk base64 bash cal cat cd chmod chown cp curl date df diff dig docker du echo egrep env export fgrep"
    " git grep gunzip gzip hostname id ifconfig java kubectl ln ls lsof make md5sum mkdir mount mv nl node npm od ping"
    " pip pip3 printf ps pwd python python3 rm rmdir scp sed seq sh sha256sum shopt ssh stat sudo systemctl tac tar tee"
    " top tr uname uniq unzip uptime wc wget whereis which whoami xargs xxd zip".split()
)
"""Commands that no game or user would name so; other words need a shell's signs beside them."""
_FIRST = re.compile(r"[({!\s]*(?:([a-z][a-z0-9_.+-]*)(?=[\s;|&)]|$)|[A-Za-z_]\w*=|\.{0,2}/\S|\[\[?\s|:[;\s])")
_SIGN = re.compile(
    r"(?:^|\s)(?:--?[A-Za-z][\w-]*(?=[\s=]|$)|(?:~|\.{0,2})/|\|\|?\s*[a-z]|&&|[12&]?>>?\s*[\w/.&$\"'])|\$[({A-Za-z_]|\*\.\w"
)
_OPERATOR = re.compile(r"\|\||&&|&>>?|;;|\d?>>?&\d|\d?>>?|<{1,3}|[|&;()\n]")
_REDIRECTION = re.compile(r"&?>>?|\d?>>?|<{1,3}")
_BLANK = re.compile(r"[^\S\n]+")
_PLAIN = re.compile(r"[^\s|&;()<>'\"\\`$]+")
_PREFIXES = frozenset("sudo xargs env nohup time command exec then do else elif if while until ! {".split())
"""Words after which a command comes."""
_WORDS = frozenset("[ [[ : { } ! ]] ]".split())
_EXEC = frozenset("-exec -execdir -ok -okdir".split())
_FLAG = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z]+)(=?)(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?[A-Za-z%]?")
_PATH = re.compile(r"[/*?]|^~|^\.\.|\.\w{1,5}$")
_MOST_NESTED = 3
_MOST_WORDS = 80


def shell_skeleton(text: str) -> str | None:
    """Return the commands and flags of a command line, with other words left open; None where it is none.

    A command line begins with a word in small letters, and that is a well-known command, or there is a flag, a path, a
    variable or an operator with it.

    >>> shell_skeleton("find /tmp -type f -name '*.log' | xargs -n 1 rm")
    'find <path> -type f -name <path> | xargs -n <number> rm'
    """
    first = _FIRST.match(text)
    if not first or not (first[1] in _NAMES or _SIGN.search(text)):
        return None
    return _skeleton(text, 0)


def _skeleton(text: str, depth: int) -> str:
    shown: list[str] = []
    awaits = True  # whether the next word is a command
    for token in _tokens(text):
        if len(shown) > _MOST_WORDS:
            shown.append("…")
            break
        if _OPERATOR.fullmatch(token):
            token = ";" if token == "\n" else token
            if token != ";" or (shown and shown[-1] != ";"):
                shown.append(token)
            awaits = awaits or (token[0] in "|&;()" and not token.startswith("&>"))
            continue
        before = shown[-1] if shown else ""
        if _REDIRECTION.fullmatch(before):  # takes a file, and then the command begins or goes on
            shown.append(_word(token, before, False, depth) or "<text>")
            continue
        word = _word(token, before, awaits, depth)
        awaits = word in _PREFIXES or word in _EXEC or (awaits and _is_before_command(word))
        if word and not (word.startswith("<") and shown and shown[-1] == word):
            shown.append(word)
    while shown and shown[-1] == ";":
        shown.pop()
    return " ".join(shown).replace(" ;", ";")


def _is_before_command(word: str) -> bool:
    return word.startswith(("-", "<name>=", "{}", "<number>"))


def _word(token: str, before: str, awaits: bool, depth: int) -> str:
    """Return what stands for a word; nothing for what only ends the command of a `find`."""
    if token in ("\\;", "';'", '";"', "+"):
        return ""
    if token == "{}" or token in _WORDS:
        return token
    if awaits and (assigned := re.match(r"[A-Za-z_]\w*=", token)):
        nested = _nested(token[assigned.end() :], depth)
        return f"<name>={nested or '<text>'}"
    if nested := _nested(token, depth):
        return nested
    bare = re.sub(r"['\"]|\\(?=.)", "", token)
    if awaits and not bare.startswith("-"):
        return _name(bare)
    if flag := _FLAG.fullmatch(bare):
        name, equals, value = flag.groups()
        value = f"<{_kind(value)}>" if value else ""
        return f"{name}{equals}{value}" if equals or not value else f"{name} {value}"
    if re.fullmatch("[a-z]", token) and before.startswith("-"):
        return token  # such as the f of `-type f`
    return f"<{_kind(bare)}>"


def _name(bare: str) -> str:
    if bare.startswith("/"):
        bare = bare.rsplit("/", 1)[-1]
    return bare if re.fullmatch(r"[\w.+-]{1,64}", bare) and not _NUMBER.fullmatch(bare) else f"<{_kind(bare)}>"


def _kind(bare: str) -> str:
    """Return what an argument is."""
    if _NUMBER.fullmatch(bare):
        return "number"
    if bare in ("-", ".") or (_PATH.search(bare) and not re.search(r"[\s{}]", bare)):
        return "path"
    return "text"


def _nested(token: str, depth: int) -> str:
    """Return the skeleton of the first command that a word is to be replaced with; nothing where there is none."""
    if token.startswith("'"):
        return ""
    start = token.find("$(")
    if start >= 0 and not token.startswith("$((", start):
        inner = token[start + 2 : _end_of_brackets(token, start + 2, 0) - 1]
    elif token.count("`") > 1:
        inner = token.split("`", 2)[1]
    else:
        return ""
    return f"$({_skeleton(inner, depth + 1)})" if depth < _MOST_NESTED else "$(…)"


def _tokens(text: str) -> Iterator[str]:
    """Yield the words of a command line, with their quotes, and what stands between them."""
    place = 0
    while place < len(text):
        if blank := _BLANK.match(text, place):
            place = blank.end()
        elif text[place] == "#":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif found := _OPERATOR.match(text, place):
            yield found[0]
            place = found.end()
        else:
            end = _end_of_word(text, place)
            yield text[place:end]
            place = end


def _end_of_word(text: str, place: int) -> int:
    while place < len(text):
        sign = text[place]
        if sign == "'":
            place = _after(text, "'", place + 1)
        elif sign == '"':
            place = _end_of_quotes(text, place + 1, 0)
        elif sign == "`":
            place = _after(text, "`", place + 1)
        elif sign == "\\":
            place += 2
        elif text.startswith("$(", place):
            place = _end_of_brackets(text, place + 2, 0)
        elif sign == "$":
            place += 1
        elif plain := _PLAIN.match(text, place):
            place = plain.end()
        else:
            break
    return min(place, len(text))


def _after(text: str, sign: str, place: int) -> int:
    """Return the place after the next `sign`, or the end of the text."""
    found = text.find(sign, place)
    return len(text) if found < 0 else found + 1


_MOST_QUOTED = 20
"""How deep quotes and brackets are followed into each other."""


def _end_of_quotes(text: str, place: int, depth: int) -> int:
    while place < len(text) and text[place] != '"':
        if text[place] == "\\":
            place += 2
        elif text.startswith("$(", place) and depth < _MOST_QUOTED:
            place = _end_of_brackets(text, place + 2, depth + 1)
        else:
            place += 1
    return min(place + 1, len(text))


def _end_of_brackets(text: str, place: int, depth: int) -> int:
    opened = 1
    while place < len(text) and opened:
        if text[place] == "\\":
            place += 2
        elif text[place] == "'":
            place = _after(text, "'", place + 1)
        elif text[place] == '"' and depth < _MOST_QUOTED:
            place = _end_of_quotes(text, place + 1, depth + 1)
        else:
            opened += {"(": 1, ")": -1}.get(text[place], 0)
            place += 1
    return min(place, len(text))
