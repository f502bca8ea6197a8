"""SQL statements to what they have in common: their clauses and joins.

Nothing is parsed: a statement is read word by word, so that a wrong or a cut one has a skeleton, too.
"""

import re

_STATEMENT = re.compile(
    r"""(?:WITH\s+(?:RECURSIVE\s+)?[\w"`]+\s*(?:\([^()]*\)\s*)?AS\s*\(
    |\(?\s*SELECT\s+(?:DISTINCT\s+)?(?:[\w.`"]+(?:\s*,\s*[\w.`"]+)*\s+FROM\s+\S|(?=[^;]*\bFROM\b)(?=[^;]*[*=(])\S)
    |SHOW\s+(?:FULL\s+|EXTENDED\s+)?(?:TABLES?|DATABASES|SCHEMAS|COLUMNS|FIELDS|INDEX(?:ES)?|KEYS|CREATE|GRANTS)\b
    |(?:DESCRIBE|DESC)\s+(?:TABLE\s+)?[\w.`"\[\]]+\s*;?\s*$
    |EXPLAIN\s+(?:ANALYZE\s+|QUERY\s+PLAN\s+)?(?:SELECT|UPDATE|DELETE|INSERT|WITH)\b
    |(?:INSERT|REPLACE)\s+(?:IGNORE\s+|OR\s+\w+\s+)?INTO\b
    |DELETE\s+FROM\s+\S+\s*(?:;|$|WHERE\b)
    |UPDATE\s+\S+\s+SET\b
    |(?:CREATE|ALTER|DROP|TRUNCATE)\s+(?:OR\s+REPLACE\s+|UNIQUE\s+|TEMP(?:ORARY)?\s+)?
        (?:TABLE|VIEW|INDEX|DATABASE|SCHEMA|COLUMN)\b
    |PRAGMA\s+\w+)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_UPPER = re.compile(r"\(?\s*(?:SELECT\s+\S|USE\s+\w+\s*;?\s*$)")
_TOKEN = re.compile(r"""--[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|'[^']*'?|"[^"]*"?|`[^`]*`?|[^\W\d][\w$]*|\d[\w.]*|\S""")
_WORDS = frozenset(
    "SELECT DISTINCT FROM JOIN ON USING WHERE HAVING LIMIT UNION INTERSECT EXCEPT INSERT INTO VALUES DELETE CREATE"
    " ALTER DROP WITH".split()
)
_OPENINGS = frozenset("SHOW CREATE ALTER DROP TRUNCATE".split())
_NOUNS = frozenset(
    "TABLE TABLES DATABASES SCHEMAS COLUMNS FIELDS INDEX INDEXES KEYS CREATE GRANTS VIEW DATABASE SCHEMA COLUMN ADD"
    " DROP RENAME MODIFY".split()
)
_SIDES = frozenset("LEFT RIGHT FULL CROSS NATURAL".split())
_AGGREGATES = frozenset("COUNT SUM AVG MIN MAX".split())
_TAKES = {
    **dict.fromkeys("FROM JOIN INTO UPDATE TABLE DESCRIBE INDEX VIEW USE DATABASE SCHEMA".split(), "<table>"),
    "COLUMN": "<column>",
}
_FIRST = frozenset("SET REPLACE UPDATE USE SHOW DESCRIBE EXPLAIN PRAGMA TRUNCATE".split())
"""Words that are keywords only where a statement begins."""
_CLOSED = frozenset("LIMIT TABLES DATABASES SCHEMAS COLUMNS FIELDS INDEXES KEYS GRANTS SHOW EXPLAIN".split())
"""After these nothing is left open."""


def sql_skeleton(text: str) -> str | None:
    """Return the clauses and joins of a statement, with what stands in them left open; None where it is no SQL.

    >>> sql_skeleton("select count(*) from pets p left join cats c on p.id = c.id where p.age > 3;")
    'SELECT COUNT(…) FROM <table> LEFT JOIN <table> ON … WHERE …'
    """
    if not _STATEMENT.match(text) and not _UPPER.match(text):
        return None
    return _Skeleton([token for token in _TOKEN.findall(text) if not token.startswith(("--", "/*"))]).text()


class _Skeleton:
    """A statement token by token.

    Attributes:
        shown: The words of the skeleton so far.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.shown: list[str] = []
        self._depth = 0
        self._clause = ""
        self._opening = ""
        """The word that began the statement, where others follow it that are keywords only there."""
        self._side = ""
        self._begin("")
        words = [token.upper() for token in tokens]
        for word, after in zip(words, [*words[1:], ""], strict=True):
            self._take(word, after)

    def text(self) -> str:
        """Return the skeleton, without a last semicolon."""
        return " ".join(self.shown).replace(" ,", ",").replace(" ;", ";").strip("; ")

    def _begin(self, clause: str) -> None:
        self._clause = clause
        self._awaits = True
        """Whether an item of the clause, such as a column, is to begin."""
        self._items: set[str] = set()
        """What the clause has shown, so that it is shown once."""

    def _take(self, word: str, after: str) -> None:
        if word == "(":
            if not self._depth:
                self._open()
            self._depth += bool(self._clause)  # a statement in brackets is read like one without them
        elif word == ")":
            self._depth = max(0, self._depth - 1)
        elif self._depth:
            if word == "SELECT":
                self._once("(SELECT …)")
        elif word == ";":
            self.shown.append(word)
            self._opening = ""
            self._begin("")
        elif self._is_keyword(word, after):
            self._keyword(word)
        else:
            self._fill(word, after)

    def _open(self) -> None:
        """Take the first bracket of an expression, of a table that is selected, or of a list."""
        if self._clause == "SELECT" and self._awaits:
            self._item("<column>")
        elif self._clause in _TAKES:
            self._awaits = False
        elif self._clause and self._clause != "SELECT" and self._clause not in _CLOSED:
            self._once("…")

    def _is_keyword(self, word: str, after: str) -> bool:
        if word in _SIDES:
            return after in ("JOIN", "OUTER", "INNER")
        if word in ("GROUP", "ORDER"):
            return after == "BY"
        if word == "DESC":
            return self._clause in ("", "ORDER BY")
        if word in _FIRST:
            return self._clause in ("", "EXPLAIN") or (word, self._clause) == ("SET", "UPDATE")
        return word in _WORDS or (self._opening != "" and word in _NOUNS)

    def _keyword(self, word: str) -> None:
        if word in _SIDES:
            self._side = f"{word} "
        elif word == "DISTINCT":
            if self._clause == "SELECT" and not self._items:
                self.shown.append(word)
        elif word == "DESC" and self._clause:
            self._once(word)
        else:
            if not self._clause and word in _OPENINGS:
                self._opening = word
            word = {"GROUP": "GROUP BY", "ORDER": "ORDER BY", "DESC": "DESCRIBE"}.get(word, word)
            self.shown.append(self._side + word if word == "JOIN" else word)
            self._side = ""
            self._begin(word)

    def _fill(self, word: str, after: str) -> None:
        """Leave open what stands in a clause: columns that are selected, tables, or all that it says."""
        if word == ",":
            self._awaits = True
        elif self._clause == "SELECT":
            if self._awaits:
                self._item(f"{word}(…)" if word in _AGGREGATES and after == "(" else "<column>")
        elif self._clause in _TAKES:
            if self._awaits:
                self.shown += [","] if self._items else []
                self.shown.append(_TAKES[self._clause])
                self._items.add(word)
                self._awaits = False
        elif self._clause not in _CLOSED and word not in ("BY", "ALL"):
            self._once("…")

    def _item(self, item: str) -> None:
        self._awaits = False
        if item not in self._items:
            self.shown += [",", item] if self._items else [item]
            self._items.add(item)

    def _once(self, word: str) -> None:
        if word not in self._items:
            self.shown.append(word)
            self._items.add(word)
