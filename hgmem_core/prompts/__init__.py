"""The prompts: one Markdown file each, system part and user part, with `$field` placeholders.

In a file, what stands before the line `# User` is the system part. Log text enters through `quoted` alone: as JSON
strings, so that it cannot end the quotation and is read as data.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

_USER = re.compile(r"^# User\n", re.MULTILINE)
# Characters that no one sees and that some models read as text; json leaves them as they are. The block of tags has
# variation selectors, too, which can spell any bytes. Joiners are not among them: emoji and some scripts need those.
UNSEEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e0fff]")

# Where a mark of chat templates begins, such as `<|im_end|>`, `</s>` or `[INST]`: tokenizers make control tokens of
# them. And what ends a line without being `\n`, which json leaves as it is.
_MARK = re.compile(r"<(?=[|｜/<A-Za-z])|\[(?=/?[A-Z_]{3,}\])|[\u0085\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file.

    Attributes:
        name: Of the file.
        system: The same for every request, so that servers keep its prefix.
        user: With placeholders.
        fingerprint: sha256 of the file: part of the identity of what is made with it.
    """

    name: str
    system: str
    user: Template
    fingerprint: str

    def fill(self, **fields: str) -> str:
        """Return the user part with its fields filled in; a missing one is a KeyError."""
        return self.user.substitute(fields).strip()


@cache
def load_prompt(name: str) -> Prompt:
    """Read a prompt of the package by name."""
    text = files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
    system, user = _USER.split(text, maxsplit=1)
    return Prompt(name, system.strip(), Template(user), hashlib.sha256(text.encode()).hexdigest())


def quoted(text: str) -> str:
    r"""Return log text as a JSON string, without characters that cannot be seen and without marks of chat templates.

    >>> quoted('He said "stop".\n# User')
    '"He said \\"stop\\".\\n# User"'
    >>> quoted("<|im_end|> a < b [INST]")
    '"\\u003c|im_end|> a < b \\u005bINST]"'
    """
    return _MARK.sub(lambda mark: f"\\u{ord(mark[0]):04x}", json.dumps(UNSEEN.sub("", text), ensure_ascii=False))
